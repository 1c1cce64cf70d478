//go:build unix

package storm

import (
	"database/sql"
	"encoding/json"
	"os"
	"reflect"
	"strings"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/internal/lifecycle"
	"github.com/tuskqueue/tusk/store"
)

// checker compares a history with the final contents of the database.
type checker struct {
	*storm
	*record
	stored map[tusk.ID]*tusk.TaskInfo
}

// check looks for violations of the invariants. The history says of some events that they took place, and of others
// that they may have. A violation is what no choice of the latter explains.
func (s *storm) check() {
	s.t.Helper()
	events, err := readHistory(s.fleet.dir)
	if err != nil {
		s.t.Fatal(err)
	}
	c := &checker{s, newRecord(events), map[tusk.ID]*tusk.TaskInfo{}}
	c.resyncs = c.ground.cb != nil
	c.read()
	c.archived()
	c.large()
	c.order()
	for _, e := range c.alarms {
		if e.Err == "I10" && (c.lapsed(e.At) || c.lapsed(e.At-int64(4*stormLease)) || c.takenOver(e)) {
			continue // the parent's attempt had lost its task and did not know that yet
		}
		c.violation(e.Err, "%s", e.Text)
	}
	claims, stale := 0, 0
	for _, p := range c.tasks {
		claims += len(p.claims)
		for _, x := range p.releases {
			if x.no {
				stale++
			}
		}
		c.lost(p)
		c.unexpected(p)
		c.finishedTwice(p)
		c.leasedTwice(p)
		c.attempts(p)
		c.tooEarly(p)
		c.needs(p)
		c.steps(p)
	}
	c.buried()
	c.effects()
	c.transactions()
	c.keys()
	c.newest()
	c.serial()
	c.limited()
	c.ticks()
	c.leaders()
	c.sums()
	c.growth()
	c.unheard()
	c.goneOn()
	c.left()
	c.ledgers()
	atOnce := 0
	for _, e := range events {
		if e.Text == asStored {
			atOnce++
		}
	}
	c.t.Logf("%d events of %d tasks, %d claims, %d leased as they were stored, %d late outcomes refused, %d terms",
		len(events), len(c.tasks), claims, atOnce, stale, c.terms())
}

func (c *checker) read() {
	clear(c.stored)
	for f := (tusk.Filter{Detail: true, Limit: store.MaxPage}); ; {
		page, err := c.client.List(c.t.Context(), f)
		if err != nil {
			c.t.Fatal(err)
		}
		for i := range page {
			c.stored[page[i].ID] = &page[i]
		}
		if len(page) < f.Limit {
			return
		}
		f.Before = page[len(page)-1].ID
	}
}

// lost checks I1: acknowledged tasks exist, and have ended.
func (c *checker) lost(p *past) {
	e := p.added()
	if e == nil {
		return
	}
	switch t := c.stored[p.id]; {
	case t == nil:
		c.violation("I1", "task %s of kind %s in queue %s was acknowledged and is lost", p.id, e.Kind, e.Queue)
	case !t.State.Finished():
		c.violation("I1", "task %s of kind %s in queue %s is %v at the end", p.id, e.Kind, e.Queue, t.State)
	case e.Kind == doKiller:
		if t.State != tusk.StateDiscarded || !strings.HasPrefix(t.Reason, "quarantined") {
			c.violation("I13", "task %s kills whoever runs it, and is %v: %s", p.id, t.State, t.Reason)
		}
		// Some attempts could not be recorded in time, for example because commits took 4 s.
		const unnoted = 5
		// An old worker has no handler for the task.
		if p.begun > lifecycle.MaxCrashes+unnoted && os.Getenv(envOld) == "" {
			c.violation("I13", "task %s was begun %d times, and killed a worker each time", p.id, p.begun)
		}
	case t.State == tusk.StateDiscarded && e.Kind != doDoomed && e.Kind != doHostile:
		c.violation("I1", "task %s of kind %s was discarded: %s", p.id, e.Kind, t.Reason)
	case t.State == tusk.StateCompleted && e.Kind == doDoomed:
		c.violation("I1", "task %s gave up and is completed", p.id)
	}
}

// unexpected checks I2: every stored task was enqueued, and its enqueue was not rolled back.
func (c *checker) unexpected(p *past) {
	if c.stored[p.id] == nil {
		return
	}
	for _, e := range p.enqueues {
		if !e.no {
			return
		}
	}
	c.violation("I2", "task %s is stored: it was enqueued by nobody, or that was taken back (%d)", p.id, len(p.enqueues))
}

// effects checks I6: an effect in the completing transaction exists exactly once, others at least once.
func (c *checker) effects() {
	inside := map[string]int{}
	for _, id := range c.column("storm_effect") {
		inside[id]++
	}
	for id, t := range c.stored {
		n := inside[id.String()]
		done := t.State == tusk.StateCompleted
		switch {
		case (t.Kind == doTx || t.Kind == doLinger) && (done && n != 1 || !done && n != 0):
			c.violation("I6", "task %s is %v with %d effects in its transaction", id, t.State, n)
		case t.Kind == doEffect && done && len(c.of(id).effects) == 0:
			c.violation("I6", "task %s is completed without its effect", id)
		case t.Kind == doEcho && done && !sameJSON(t.Detail.Output, t.Args):
			c.violation("I6", "task %s has the args %.80s and the output %.80s", id, t.Args, t.Detail.Output)
		}
	}
}

// transactions checks I1 and I2 for tasks that were enqueued in users' transactions.
func (c *checker) transactions() {
	rows := map[string]bool{}
	for _, id := range c.column("storm_ledger") {
		rows[id] = true
	}
	for id, p := range c.tasks {
		for _, e := range p.enqueues {
			if there := c.stored[id] != nil; e.how == "tx" && there != rows[id.String()] {
				c.violation("I2", "task %s and its transaction parted: task %v, row %v", id, there, rows[id.String()])
			}
		}
	}
}

// column returns the ids in one of the storm's own tables, on all servers. A promoted standby has the rows of its
// server, too.
func (c *checker) column(table string) (ids []string) {
	if c.ground.cluster == nil {
		return c.texts("select id from " + table)
	}
	dbs, err := engines[many].pools(c.ground.dsn)
	if err != nil {
		c.t.Fatal(err)
	}
	defer dbs.Close()
	seen := map[string]bool{}
	for _, db := range dbs {
		for _, row := range c.textsIn(db, "select id || ' ' || token from "+table) {
			if !seen[row] {
				seen[row] = true
				id, _, _ := strings.Cut(row, " ")
				ids = append(ids, id)
			}
		}
	}
	return ids
}

// texts returns the texts that a query finds.
func (c *checker) texts(query string) (texts []string) {
	if c.ground.admin == nil { // there is nothing to query
		return nil
	}
	return c.textsIn(c.ground.admin, query)
}

func (c *checker) textsIn(db *sql.DB, query string) (texts []string) {
	rows, err := db.QueryContext(c.t.Context(), query)
	if err != nil {
		c.t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var one string
		if err := rows.Scan(&one); err != nil {
			c.t.Fatal(err)
		}
		texts = append(texts, one)
	}
	if err := rows.Err(); err != nil {
		c.t.Fatal(err)
	}
	return texts
}

func sameJSON(a, b []byte) bool {
	var x, y any
	return json.Unmarshal(a, &x) == nil && json.Unmarshal(b, &y) == nil && reflect.DeepEqual(x, y)
}
