package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	_ "modernc.org/sqlite"

	"github.com/tuskqueue/tusk/store"
)

// openTest makes a migrated store for tests of what is inside the package.
func openTest(t testing.TB) *Store {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(t.TempDir(), "tusk.db"))
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(t.Context(), db, Options{CloseDB: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	if _, err := s.Migrate(t.Context(), -1); err != nil {
		t.Fatal(err)
	}
	return s
}

// Tables that hold only a few rows whatever the backlog, and sorts of as few.
var small = map[string][]string{
	// lanes that have tasks
	"list.available": {"SCAN tusk_lane USING COVERING INDEX tusk_lane_ready",
		"SCAN tusk_lane USING INDEX tusk_lane_ready"},
	"list.available.ids": {"SCAN l USING INDEX tusk_lane_ready"},
	"lease.all":          {"SCAN tusk_lease"},
	"prune.workers": {"SCAN tusk_lease", "SCAN tusk_worker EXISTS USING INDEX tusk_worker_dead",
		"SCAN tusk_worker USING INDEX tusk_worker_dead"},
	"list.running":     {"SCAN tusk_lease"}, // claims under way
	"list.running.ids": {"SCAN s"},
	"list.kinds":       {"SCAN tusk_kind"}, // a row for each kind in each queue
	"prune.kinds":      {"SCAN tusk_kind"},
	// a row each
	"health":        {"SCAN pragma_page_count VIRTUAL TABLE INDEX 0:", "SCAN pragma_page_size VIRTUAL TABLE INDEX 0:"},
	"count.lanes":   {"SCAN tusk_lane"},
	"count.waiting": {"SCAN tusk_waiting"},
	// claims of dead workers
	"rescue.leases": {"SCAN tusk_lease", "SCAN tusk_worker EXISTS USING INDEX tusk_worker_dead",
		"USE TEMP B-TREE FOR ORDER BY"},
	"rescue.strays": {"SCAN tusk_lease", "USE TEMP B-TREE FOR ORDER BY"}, // claims under way
	// a row for each table that counts
	"end.last":    {"SCAN sqlite_sequence"},
	"lease.find":  {"USE TEMP B-TREE FOR ORDER BY"},                                          // lanes of one claim
	"worker.list": {"SCAN w USING INDEX tusk_worker_living", "USE TEMP B-TREE FOR ORDER BY"}, // live workers
	// groups last seen in the same microsecond
	"error.list": {"USE TEMP B-TREE FOR LAST 2 TERMS OF ORDER BY"},
	"admit.next": {"SCAN tusk_task USING INDEX tusk_task_waiting"}, // its first row
	// A row for each queue and priority with tasks.
	"prune.lanes":  {"SCAN tusk_lane"},
	"prune.plain":  {"SCAN (subquery-1)"},            // as many as are pruned
	"doubt.any":    {"SCAN tusk_doubt"},              // its first row
	"doubt.list":   {"SCAN tusk_doubt"},              // as many as the rules are shown
	"doubt.drop":   {"SCAN tusk_doubt"},              // the same
	"need.list":    {"USE TEMP B-TREE FOR ORDER BY"}, // what a few tasks need
	"turn.waiting": {"SCAN w"},                       // as many as are returned
	// as many rows as count as few
	"turn.few": {"SCAN tusk_task USING COVERING INDEX tusk_task_turn"},
}

func TestNoStatementScansOrSorts(t *testing.T) {
	noneScansOrSorts(t, openTest(t))
}

// What ANALYZE, or another program with "pragma optimize", has stored when each table had one row.
func TestNoStatementScansOrSortsThoughStatisticsKnowOfOneRow(t *testing.T) {
	s := openTest(t)
	ctx := t.Context()
	path := s.Path()
	for _, text := range []string{
		"create table users (id integer primary key, name text)", "create index users_name on users (name)",
		"insert into users values (1, 'a')",
		"analyze",
		"delete from sqlite_stat1 where tbl glob 'tusk_*'",
		`insert into sqlite_stat1 (tbl, idx, stat)
		select t.name, i.name, '1' || replace(hex(zeroblob((select count(*) from pragma_index_info(i.name)))), '00', ' 1')
		from sqlite_schema t join pragma_index_list(t.name) i where t.type = 'table' and t.name glob 'tusk_*'`,
	} {
		if _, err := s.db.ExecContext(ctx, text); err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
	}
	db, err := sql.Open("sqlite", "file:"+path)
	if err != nil {
		t.Fatal(err)
	}
	again, err := New(ctx, db, Options{CloseDB: true})
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	noneScansOrSorts(t, again)
	var theirs, ours int
	if err := db.QueryRow(
		"select count(*) filter (where tbl = 'users'), count(*) filter (where tbl <> 'users') from sqlite_stat1").Scan(
		&theirs, &ours); err != nil {
		t.Fatal(err)
	}
	if theirs == 0 || ours != 0 {
		t.Errorf("statistics of %d other indexes and %d of Tusk's are left", theirs, ours)
	}
}

func noneScansOrSorts(t *testing.T, s *Store) {
	t.Helper()
	for name, text := range statements() {
		if name == "list.columns" || strings.HasPrefix(text, "select 1\nwhere exists") {
			continue
		}
		for _, step := range plan(t, s, text) {
			if bad(step) && !slices.ContainsFunc(small[name], func(ok string) bool {
				return step == ok || strings.HasPrefix(step, ok+" USING")
			}) {
				t.Errorf("%s: %s\n%s", name, step, text)
			}
		}
	}
}

func bad(step string) bool {
	if strings.HasPrefix(step, "SCAN CONSTANT ROW") || strings.HasPrefix(step, "SCAN json_each") ||
		strings.HasPrefix(step, "SCAN j VIRTUAL TABLE") {
		return false
	}
	return strings.HasPrefix(step, "SCAN ") || strings.Contains(step, "TEMP B-TREE") || strings.Contains(step, "AUTOMATIC")
}

func plan(t *testing.T, s *Store, text string, args ...any) (steps []string) {
	t.Helper()
	if len(args) == 0 {
		args = make([]any, strings.Count(text, "?"))
	}
	rows, err := s.db.QueryContext(t.Context(), "explain query plan "+text, args...)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	defer rows.Close()
	for rows.Next() {
		var id, parent, unused int
		var detail string
		if err := rows.Scan(&id, &parent, &unused, &detail); err != nil {
			t.Fatal(err)
		}
		steps = append(steps, detail)
	}
	return steps
}

// spy records the texts of the dynamic statements that it passes on.
type spy struct {
	session
	texts []string
	args  [][]any
}

func (s *spy) dynamic(ctx context.Context, text string, fn func(row) error, args ...any) error {
	s.texts, s.args = append(s.texts, text), append(s.args, args)
	return s.session.dynamic(ctx, text, fn, args...)
}

func TestEveryListGoesAlongAnIndex(t *testing.T) {
	s := openTest(t)
	work := []store.NewTask{
		{ID: store.ID{1}, Kind: "a", Queue: "q", Tenant: "t", Tags: []string{"x"}, Key: "k"},
		{ID: store.ID{2}, Kind: "b", Queue: "q", Delay: time.Hour},
	}
	if _, err := s.Enqueue(t.Context(), work); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Edit(t.Context(), store.Edit{IDs: []store.ID{{2}},
		Change: store.Change{Op: store.Cancel}}); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		filter store.Filter
		index  string
	}{
		{store.Filter{}, "tusk_task_id"},
		{store.Filter{Before: store.ID{9}}, "tusk_task_id"},
		{store.Filter{IDs: []store.ID{{1}, {2}}}, "tusk_task_id"},
		{store.Filter{Queues: []string{"q"}}, "tusk_task_kind"},
		{store.Filter{Kinds: []string{"a"}, Before: store.ID{9}}, "tusk_task_kind"},
		{store.Filter{Tenants: []string{"t", "u"}}, "tusk_task_tenant"},
		{store.Filter{Tags: []string{"x", "y"}}, "g USING PRIMARY KEY (tag=?)"},
		{store.Filter{Key: "k"}, "tusk_task_key"},
		{store.Filter{Workflow: store.ID{7}, Before: store.ID{9}}, "tusk_task_workflow"},
		{store.Filter{States: []store.State{store.Cancelled, store.Discarded}}, "tusk_task_state"},
		{store.Filter{States: []store.State{store.Scheduled, store.Retryable}, Queues: []string{"q"}}, "tusk_task_state"},
		{store.Filter{States: []store.State{store.Available, store.Running}}, "tusk_task_id"},
		{store.Filter{States: []store.State{store.Completed}, Queues: []string{"q"}}, "tusk_task_kind"},
		{store.Filter{States: []store.State{store.Completed}}, "tusk_task_id"},
		{store.Filter{From: time.Now().Add(-time.Minute), Until: time.Now().Add(time.Minute)},
			"USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)"},
	} {
		t.Run(fmt.Sprintf("%+v", test.filter), func(t *testing.T) {
			test.filter.Limit = 10
			var seen *spy
			err := s.read(t.Context(), func(ctx context.Context, c session) error {
				seen = &spy{session: c}
				l := &list{ctx: ctx, session: seen, store: s, filter: test.filter, names: readNames(ctx, c, s)}
				_, err := l.page()
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			if len(seen.texts) == 0 {
				t.Fatal("no statement")
			}
			for i, text := range seen.texts {
				steps := plan(t, s, text, values(seen.args[i])...)
				if !strings.Contains(strings.Join(steps, "\n"), test.index) {
					t.Errorf("not by %s: %q", test.index, steps)
				}
				// At most `few` rows, found by their numbers or ids and sorted.
				short := strings.Contains(test.index, "rowid") || strings.Contains(text, "from json_each(coalesce")
				for _, step := range steps {
					if bad(step) && !(short && step == "USE TEMP B-TREE FOR ORDER BY") && step != "SCAN p" {
						t.Errorf("%s\n%s", step, text)
					}
				}
			}
		})
	}
}
