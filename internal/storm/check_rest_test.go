//go:build unix

package storm

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/store"
)

// goneOn checks I18: while the only fault is users' open transactions, tasks are completed, and each worker that kept
// its name until then continues to beat under it. A worker that lost its name just before only shows that the machine
// is busy.
func (c *checker) goneOn() {
	const busy = 300 * time.Millisecond // above this, nothing can be decided
	const before = int64(2 * stormLease)
	for _, h := range c.holds {
		if time.Duration(h.Term) > busy {
			continue
		}
		if h.Items[0].Attempt == 0 {
			c.violation("I18", "nothing was completed in %v of open transactions", time.Duration(h.At-h.Asked))
		}
		for file, beats := range c.beats {
			steady := beats[0].At < h.Asked-before && len(namesIn(beats, h.Asked-before, h.Asked)) == 1
			names := namesIn(beats, h.Asked, h.At)
			if steady && len(names) != 1 && beats[len(beats)-1].At > h.At {
				c.violation("I18", "process %d beat under %d names while transactions of users were open: it was taken for dead",
					file, len(names))
			}
		}
	}
}

// namesIn returns the names under which a process sent beats between two times.
func namesIn(beats []event, from, to int64) map[string]bool {
	names := map[string]bool{}
	for _, b := range beats {
		if b.At >= from && b.At <= to {
			names[b.Who] = true
		}
	}
	return names
}

// unheard checks I19: no task is leased for long to a live worker that does not know of it.
func (c *checker) unheard() {
	const long = 4 * stormLease
	if len(c.clocks) > 0 {
		return // cannot be decided
	}
	last := map[string]int64{} // when a worker last made a claim
	for _, p := range c.tasks {
		for _, l := range p.claims {
			last[l.worker] = max(last[l.worker], c.made(l))
		}
	}
	for _, p := range c.tasks {
		for _, x := range p.releases {
			if !x.Rescue || slices.ContainsFunc(p.claims, func(l claimed) bool { return l.Token == x.Token }) {
				continue
			}
			if lived := time.Duration(last[x.Part] - x.Claimed - c.unreachable(x.Claimed, last[x.Part])); lived > long {
				c.violation("I19", "task %s was leased to worker %s, which did not know, for %v", p.id, x.Part, lived)
			}
		}
	}
}

// left checks I20 and I21: after everything has ended nothing is left of it, nothing was recorded twice, and each
// chore succeeds.
func (c *checker) left() {
	ctx := c.t.Context()
	c.eachChore(ctx) // maintenance closes leases whose last tasks were ended in transactions
	for what, query := range leftovers[c.ground.engine] {
		if f, ok := store.As[interface{ FunctionSchema() string }](c.client.Store()); ok {
			query = strings.ReplaceAll(query, "tusk_fn", f.FunctionSchema())
		}
		var found []string
		// sessions of ended processes may still be closing
		for end := time.Now().Add(5 * time.Second); ; time.Sleep(100 * time.Millisecond) {
			if found = c.texts(query); len(found) == 0 || time.Now().After(end) {
				break
			}
		}
		if len(found) > 0 {
			c.violation("I20", "%s: %d: %s", what, len(found), strings.Join(found[:min(3, len(found))], "; "))
		}
	}
	if c.ground.bouncer != nil {
		c.sessions(ctx)
	}
}

// leftovers are queries for each engine that find nothing after everything has ended.
var leftovers = map[string]map[string]string{
	"postgres": {
		"leases are left": "select token::text from tusk.lease",
		"turns are left":  "select id::text from tusk.turn",
		"tasks are recorded as ended twice": `select i.id::text
			from tusk.outcome o cross join lateral tusk_fn.ids_of(o.firsts, o.counts) i
			group by 1 having count(*) > 1`,
		"tasks are recorded as completed, and wait": `select w.id::text from tusk.unready w
			where w.id in (select i.id from tusk.outcome o cross join lateral tusk_fn.ids_of(o.firsts, o.counts) i)`,
		"advisory locks are left": `select format('%s %s of %s', l.classid, l.objid, a.query)
			from pg_locks l left join pg_stat_activity a on a.pid = l.pid
			where l.locktype = 'advisory' and l.database = (select oid from pg_database where datname = current_database())`,
	},
	"mysql": {
		// A lease on tasks that are gone stays for a minute, because they might exist and not be visible yet.
		"leases are left": `select hex(token) from tusk_lease
			where claimed_at <= 1000000 * (unix_timestamp(now(6)) - 60) - 5000000`,
		"tasks are left in line":  "select hex(id) from tusk_line",
		"turns are not summed up": "select seq from tusk_held",
	},
	"sqlite": {"leases are left": "select hex(token) from tusk_lease"},
}

// eachChore runs each chore once, as a leader would.
func (c *checker) eachChore(ctx context.Context) {
	engine, id := c.client.Store(), tusk.NewID()
	var l store.Leadership
	var err error
	for end := time.Now().Add(20 * time.Second); l.Term == 0 &&
		time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if l, err = engine.Lead(ctx, store.Candidate{ID: id, TTL: time.Minute}); err != nil {
			break
		}
	}
	if err != nil || l.Term == 0 {
		c.violation("I21", "nobody can lead: %v", err)
		return
	}
	chores := map[string]func(context.Context) error{
		"admit":  func(ctx context.Context) error { _, err := engine.Admit(ctx, l.Term, 1000); return err },
		"turns":  func(ctx context.Context) error { _, err := engine.Turns(ctx, l.Term, 100, 100); return err },
		"rescue": func(ctx context.Context) error { _, err := engine.Rescue(ctx, l.Term, 1000); return err },
		"prune": func(ctx context.Context) error {
			_, err := engine.Prune(ctx, l.Term, store.Retention{Completed: 300 * time.Hour}, 1000)
			return err
		},
	}
	if m, ok := store.As[store.Maintainer](engine); ok {
		chores["maintain"] = func(ctx context.Context) error { return m.Maintain(ctx, l.Term) }
	}
	for name, do := range chores {
		within, cancel := context.WithTimeout(ctx, 40*time.Second)
		if err := do(within); err != nil {
			c.violation("I21", "%s fails when all is quiet: %v", name, err)
		}
		cancel()
	}
}

// sessions also checks I20: no setting is left on a connection of the pooler.
func (c *checker) sessions(ctx context.Context) {
	db, err := engines[c.ground.engine].pool(c.ground.via)
	if err != nil {
		c.t.Fatal(err)
	}
	defer db.Close()
	db.SetMaxOpenConns(bouncerPool)
	const ask = `select coalesce(string_agg(name || '=' || setting, ' '), '') from pg_settings where source = 'session'
		and name not in ('application_name', 'client_encoding', 'DateStyle', 'IntervalStyle', 'TimeZone',
			'standard_conforming_strings', 'search_path')`
	var mu sync.Mutex
	found := map[string]int{}
	var all sync.WaitGroup
	for range bouncerPool {
		all.Go(func() {
			tx, err := db.BeginTx(ctx, nil)
			if err != nil {
				return
			}
			defer tx.Rollback()
			var set string
			err = tx.QueryRowContext(ctx, ask).Scan(&set)
			time.Sleep(time.Second) // so that each query has its own connection
			mu.Lock()
			defer mu.Unlock()
			if err == nil && set != "" {
				found[set]++
			}
		})
	}
	all.Wait()
	for set, n := range found {
		c.violation("I20", "%s", fmt.Sprintf("%d connections of the pooler keep %s", n, set))
	}
}
