package postgres

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tuskqueue/tusk/store"
)

const (
	lowestID  = "00000000-0000-0000-0000-000000000000"
	highestID = "ffffffff-ffff-ffff-ffff-ffffffffffff"
)

var forever = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)

// lookFound is the result of searching a table.
type lookFound struct {
	ids []store.ID // of rows that may match
	end store.ID   // the id down to which it has searched; zero if it has searched all
}

// lookInto searches, in one statement, the newest rows that an index finds in each table.
func (s *Store) lookInto(
	ctx context.Context, f *store.Filter, tables []*lookTable, rows, most int,
) ([]lookFound, error) {
	found, limits := make([]lookFound, len(tables)), make([]int, len(tables))
	parts := make([]string, len(tables))
	var c conditions
	for i, t := range tables {
		parts[i], limits[i] = s.lookText(f, t, &c, rows, most)
		parts[i] = fmt.Sprintf("select %d, x.* from (\n%s) x", i, parts[i])
	}
	err := s.queryPinned(ctx, strings.Join(parts, "\nunion all\n"), func(raw [][]byte) error {
		i := int32Of(raw[0])
		found[i].ids = idsOf(raw[3])
		switch {
		case len(found[i].ids) == most:
			found[i].end = found[i].ids[most-1]
		case int(int64Of(raw[1])) == limits[i]:
			found[i].end = idOf(raw[2])
		}
		return nil
	}, c.args...)
	return found, err
}

// lookText returns SQL that searches one table, and the maximum number of rows that it reads.
func (s *Store) lookText(f *store.Filter, t *lookTable, c *conditions, rows, most int) (text string, limit int) {
	rest := *f
	rest.Key, rest.Fingerprint, rest.Workflow, rest.Before = "", "", store.ID{}, store.ID{}
	if t.name == "log" {
		rest.States = nil // only the views know the states of tasks in the log
	}
	var others conditions
	if others.of(&rest); len(others.list) == 0 {
		rows = min(rows, most)
	}
	c.list = nil
	from, few, rows := s.lookFrom(f, t, c, rows, most)
	c.list = nil
	c.of(&rest)
	if t.only == inLine || t.only != "" && !whole(f) {
		c.list = append(c.list, t.only)
	}
	text = strings.NewReplacer("{few}", few, "{from}", from, "{rest}", c.text()).Replace(s.sql["look"])
	return strings.NewReplacer("{state}", t.state, "{table}", t.name, "{rows}", strconv.Itoa(rows), "{many}",
		strconv.Itoa(lookRows), "{most}", strconv.Itoa(most)).Replace(text), rows
}

// lookFrom chooses the index. It returns SQL that reads rows, newest first, SQL that must precede it, and the
// maximum number of rows that it reads.
func (s *Store) lookFrom(f *store.Filter, t *lookTable, c *conditions, rows, most int) (from, few string, limit int) {
	tenant := len(f.Tenants) == 1 && f.Tenants[0] != ""
	if t.name == "log" && !exact(f) && !tenant {
		cursor := "'" + highestID + "'"
		if !f.Before.IsZero() {
			cursor = c.arg([16]byte(f.Before))
		}
		return strings.NewReplacer("{cursor}", cursor, "{packs}", strconv.Itoa(rows/s.packLeast+2)).Replace(
			s.sql["look_rows_of_log"]), "", rows
	}
	order := "s.id desc"
	if f.Key == "" && f.Fingerprint == "" && !f.Workflow.IsZero() {
		order = "s.workflow desc, s.id desc"
		workflow, below := c.arg([16]byte(f.Workflow)), "'"+highestID+"'"
		if !f.Before.IsZero() {
			below = c.arg([16]byte(f.Before))
		}
		c.list = append(c.list, "s.workflow is not null", fmt.Sprintf(
			"(s.workflow, s.id) >= (%[1]s, '%[2]s') and (s.workflow, s.id) < (%[1]s, %[3]s)", workflow, lowestID, below))
	} else {
		c.of(&store.Filter{Key: f.Key, Fingerprint: f.Fingerprint, Workflow: f.Workflow, Before: f.Before})
	}
	if t.name == "log" { // tasks in packs have neither a key nor a tenant, a workflow or a failure
		c.list = append(c.list, "s.packed is null")
	}
	if t.only == inLine {
		from, few = s.lookLine(f, c)
		return from, few, rows
	}
	part := "" // the part of the table that the index covers; the index of ids covers all rows
	if t.only != "" && !whole(f) {
		part = " and " + t.only
	}
	if tenant {
		c.add("s.tenant = ?"+part, f.Tenants[0])
	}
	if from = s.lookWhere(c, order, ""); t.name == "log" || direct(f) {
		return from, "", rows
	}
	states := slices.DeleteFunc(slices.Clone(t.states), func(state store.State) bool {
		return len(f.States) > 0 && !slices.Contains(f.States, state)
	})
	switch {
	case len(f.Kinds) > 0:
		from = strings.NewReplacer("{kinds}", c.arg(f.Kinds), "{look}", s.lookWhere(c, "s.kind desc, s.id desc",
			between("s.kind, s.id", "k.kind")+part)).Replace(s.sql["look_kinds"])
		rows = max(rows/len(f.Kinds), most)
	case len(f.Queues) > 0 || len(states) < len(t.states):
		lanes := ""
		if len(f.Queues) > 0 {
			lanes = " where l.id >> 16 = any(" + c.arg(hashesOf(f.Queues)) + ")"
		}
		from = strings.NewReplacer("{lanes}", lanes, "{states}", c.arg(numbersOf(states)),
			"{look}", s.lookWhere(c, "s.lane desc, s.state desc, s.id desc",
				between("s.lane, s.state, s.id", "q.lane, t.state")+part)).Replace(s.sql["look_lanes"])
		rows = most
	}
	if len(f.Tags) > 0 || !f.From.IsZero() || !f.Until.IsZero() {
		from, few = s.lookFew(f, c, from)
	}
	return from, few, rows
}

// lookFew returns SQL that searches the tasks that tags or a time find if they are few, and otherwise all.
func (s *Store) lookFew(f *store.Filter, c *conditions, all string) (from, few string) {
	few = strings.NewReplacer("{tags}", c.arg(f.Tags), "{since}", c.arg(lower(f.From)), "{until}",
		c.arg(cmp.Or(f.Until, forever))).Replace(s.sql["look_few"])
	return s.lookOnes(c, all), few
}

// lookOnes returns SQL that searches the tasks of "few" one by one if they are few, and otherwise all.
func (s *Store) lookOnes(c *conditions, all string) string {
	one := strings.ReplaceAll(s.lookWhere(c, "s.id desc", "s.id = u.id"), "{rows}", "1")
	return strings.NewReplacer("{one}", one, "{look}", all).Replace(s.sql["look_few_rows"])
}

// lookLine returns SQL that searches tasks that wait for their turn: those of a queue or a tenant if they are few,
// and otherwise the newest of all.
func (s *Store) lookLine(f *store.Filter, c *conditions) (from, few string) {
	from = s.lookWhere(c, "s.id desc", "s.id is not null") // leaves out unready itself, which has no index
	if len(f.Tags) > 0 {
		return s.lookFew(f, c, from)
	}
	var queues []int64
	if len(f.Queues) > 0 {
		queues = hashesOf(f.Queues)
	}
	var tenant *string
	if len(f.Tenants) == 1 {
		tenant = &f.Tenants[0]
	}
	few = strings.NewReplacer("{queues}", c.arg(queues), "{tenant}", c.arg(tenant)).Replace(s.sql["look_few_line"])
	many := strings.NewReplacer("{many}", strconv.Itoa(lookLined))
	return many.Replace(s.lookOnes(c, from)), many.Replace(few)
}

// pinned begins a transaction in which the planner uses an index wherever there is one, and never combines indexes
// in a bitmap. This makes outdated statistics of fast-growing tables harmless.
var pinned = pgx.TxOptions{BeginQuery: "begin read only; set local enable_seqscan = off; " +
	"set local enable_bitmapscan = off; set local enable_sort = off; set local jit = off"}

// queryPinned is queryText with plans that do not depend on statistics.
func (s *Store) queryPinned(ctx context.Context, text string, row func(raw [][]byte) error, args ...any) error {
	s.trips.Add(3)
	args = append([]any{pgx.QueryResultFormats{pgx.BinaryFormatCode}}, args...)
	return translate(s.ownTx(ctx, pinned, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, text, args...)
		if err != nil {
			return err
		}
		return eachRow(rows, row)
	}))
}

// between returns a condition on columns of an index, the last of which is an id: the others have the given values.
// The first column has a bound of its own, because the planner needs that to see that it may use a partial index.
func between(columns, values string) string {
	column, _, _ := strings.Cut(columns, ",")
	value, _, _ := strings.Cut(values, ",")
	return fmt.Sprintf("%s >= %s and (%s) >= (%s, '%s') and (%[3]s) <= (%[4]s, '%[6]s')", column, value, columns, values,
		lowestID, highestID)
}

// lookWhere returns SQL that reads the rows for which the conditions and the condition more hold.
func (s *Store) lookWhere(c *conditions, order, more string) string {
	list := conditions{list: c.list}
	if more != "" {
		list.list = append(slices.Clone(c.list), more)
	}
	return strings.NewReplacer("{base}", list.text(), "{order}", order).Replace(s.sql["look_rows"])
}
