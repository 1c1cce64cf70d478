package doctor

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/tuskqueue/tusk/internal/duration"
	"github.com/tuskqueue/tusk/internal/words"
	"github.com/tuskqueue/tusk/store"
)

// mends maps errors of the engine's check to their fixes.
var mends = []struct {
	err error
	fix string
}{
	{store.ErrSchemaMissing, "tusk migrate up"},
	{store.ErrSchemaOld, "tusk migrate up"},
	{store.ErrSchemaNew, "install the version of tusk that migrated it, or a newer one"},
	{store.ErrMoved, "tusk db rebase --dry-run"},
	{store.ErrReadOnly, "name the primary with --db, or fix the permissions"},
	{store.ErrFull, "free some space"},
	{store.ErrUnavailable, "check that the database is up; of many ledgers, tusk ledgers list says which are not"},
}

// check reports what the engine itself checks: version, schema, settings, pooler.
func (f *Facts) check() (found []Finding) {
	if f.Check != nil {
		fix := "read the text: it names the setting"
		for _, m := range mends {
			if errors.Is(f.Check, m.err) {
				fix = m.fix
				break
			}
		}
		found = append(found, Finding{"schema", Critical, f.Check.Error(), fix})
	} else {
		found = append(found, ok("schema", "the schema is the one that this program needs"))
	}
	for _, warning := range f.Warnings {
		text, fix := warning, ""
		if i := strings.LastIndex(warning, "; "); i > 0 {
			text, fix = warning[:i], warning[i+2:]
		}
		if check := "settings"; strings.Contains(warning, "pooler") {
			found = append(found, Finding{"pooler", Warn, text,
				"give workers a database URL that goes past the pooler, or accept it with --ignore pooler"})
		} else {
			found = append(found, Finding{check, Warn, text, fix})
		}
	}
	if len(f.Warnings) == 0 && f.Check == nil {
		found = append(found, ok("settings", "the server keeps what Tusk promises"))
	}
	return found
}

// health judges what the engine says about its database.
func (f *Facts) health(o Options) []Finding {
	h := &f.Health
	switch {
	case f.Unknown:
		return nil
	case f.HealthErr != nil:
		return []Finding{{"health", Critical, f.HealthErr.Error(), "read the log of the database server"}}
	}
	found := []Finding{ok("server", "%s", h.Server), f.clock(o), f.leader()}
	for _, one := range []func(Options) (Finding, bool){f.open, f.dead, f.disk, f.connections, f.pool, f.pruned} {
		if finding, known := one(o); known {
			found = append(found, finding)
		}
	}
	return found
}

func (f *Facts) clock(o Options) Finding {
	apart := f.Health.Now.Sub(f.Local)
	if apart.Abs() <= o.Clock {
		return ok("clock", "this machine's clock and the database's are %s apart",
			duration.Text(apart.Abs().Round(time.Millisecond)))
	}
	return Finding{"clock", Warn, fmt.Sprintf("this machine's clock is %s off the database's, by which tasks run",
		duration.Text(apart.Round(time.Millisecond))),
		"synchronize the clocks of both machines (chrony, ntpd)"}
}

func (f *Facts) leader() Finding {
	l := f.Health.Leader
	if l.Held {
		text := fmt.Sprintf("a process leads, in term %d", l.Term)
		if !l.Renewed.IsZero() {
			text += fmt.Sprintf(", renewed %s ago",
				duration.Text(f.Health.Now.Sub(l.Renewed).Round(time.Millisecond)))
		}
		return ok("leader", "%s", text)
	}
	return Finding{"leader", Critical, "no process leads: due tasks, schedules, limits, rescue and pruning stand still",
		"start tusk serve, or a worker without --never-lead"}
}

func (f *Facts) open(o Options) (Finding, bool) {
	h := &f.Health
	if h.OpenFor <= o.Open {
		return ok("transactions", "none has been open for longer than %s", duration.Text(o.Open)), h.OpenFor >= 0
	}
	status := Warn
	if h.OpenFor > 12*o.Open {
		status = Critical
	}
	return Finding{"transactions", status, fmt.Sprintf(
		"a transaction has been open for %s, which keeps deleted rows from being cleaned up: %s",
		duration.Text(h.OpenFor.Round(time.Second)), h.OpenBy), h.OpenEnd}, true
}

func (f *Facts) dead(o Options) (Finding, bool) {
	const few = 100_000
	h := &f.Health
	if h.DeadRows <= few || float64(h.DeadRows) <= o.Dead*float64(max(h.LiveRows, 0)) {
		return ok("bloat", "%s", words.Count(h.DeadRows, "dead row")), h.DeadRows >= 0
	}
	return Finding{"bloat", Warn, fmt.Sprintf("%d dead rows beside %d live ones", h.DeadRows, max(h.LiveRows, 0)),
		"end old transactions, then vacuum (analyze) Tusk's tables; see that autovacuum is on"}, true
}

func (f *Facts) disk(o Options) (Finding, bool) {
	h := &f.Health
	if h.DiskSize <= 0 {
		return Finding{}, false
	}
	free := float64(h.DiskFree) / float64(h.DiskSize)
	text := fmt.Sprintf("%.0f %% of the database's disk is free, %d MiB", 100*free, h.DiskFree>>20)
	switch {
	case free < o.Free/3:
		return Finding{"disk", Critical, text,
			"free some space, or enlarge the disk: a full disk refuses enqueues"}, true
	case free < o.Free:
		return Finding{"disk", Warn, text, "free some space, or grow the disk"}, true
	}
	return ok("disk", "%s", text), true
}

func (f *Facts) connections(o Options) (Finding, bool) {
	h := &f.Health
	text := fmt.Sprintf("%d of the server's %d connections are open", h.Connections, h.ConnectionsMost)
	if h.ConnectionsMost > 0 && float64(h.Connections) > o.Busy*float64(h.ConnectionsMost) {
		return Finding{"connections", Warn, text, "lower pool_max_conns of Tusk's processes, or raise max_connections"}, true
	}
	return ok("connections", "%s", text), h.ConnectionsMost > 0 && h.Connections >= 0
}

// pool checks the connections of this process: that of the server, for its page and API.
func (f *Facts) pool(Options) (Finding, bool) {
	if f.Exhausted {
		text := fmt.Sprintf("all %d connections of this process's pool are in use: what needs another one waits", f.Pool)
		return Finding{"pool", Warn, text,
			"raise pool_max_conns in the database URL, or let fewer handlers hold a connection at the same time"}, true
	}
	return ok("pool", "this process has a pool of %d connections, and some are free", f.Pool), f.Pool > 0
}

// pruned judges whether completed tasks are deleted when their retention is over. Engines delete
// many at once, so some stay longer. Twice as long is too long.
func (f *Facts) pruned(o Options) (Finding, bool) {
	oldest := f.Health.OldestCompleted
	if oldest.IsZero() {
		return Finding{}, false
	}
	keep := o.Completed
	for _, q := range f.Queues {
		if q.Retention.Completed < 0 {
			return ok("pruning", "queue %s keeps its tasks for ever", q.Name), true
		}
		keep = max(keep, q.Retention.Completed)
	}
	age := f.Health.Now.Sub(oldest).Round(time.Second)
	if age <= 2*keep {
		return ok("pruning", "the oldest completed task ended %s ago", duration.Text(age)), true
	}
	why := "the leader's log says why"
	if !f.Health.Leader.Held {
		why = "nobody leads"
	} else if f.Health.OpenFor > o.Open {
		why = "a transaction is held open"
	}
	return Finding{"pruning", Warn, fmt.Sprintf("a completed task ended %s ago, and is to be kept for %s: %s",
		duration.Text(age), duration.Text(keep), why),
		"see that a process leads and that no transaction is held open"}, true
}
