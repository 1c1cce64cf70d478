package doctor_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/doctor"
	"github.com/tuskqueue/tusk/server/herald"
	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/enginetest"
	"github.com/tuskqueue/tusk/store/mysql"
	"github.com/tuskqueue/tusk/store/mysql/mysqltest"
	"github.com/tuskqueue/tusk/store/postgres"
	"github.com/tuskqueue/tusk/store/postgres/pgtest"
	"github.com/tuskqueue/tusk/store/sqlite/sqlitefile"
)

var faults = []struct {
	name, check string
	status      doctor.Status
	text, fix   string
	make        func(p *patient)
}{
	{"no schema", "schema", doctor.Critical, "no Tusk schema", "tusk migrate up", func(p *patient) {
		p.postgres(pgtest.DSN(p))
	}},
	{"an old schema", "schema", doctor.Critical, "older", "tusk migrate up", func(p *patient) {
		p.postgres(enginetest.PostgresDSN(p))
		m, _ := store.As[store.Migrator](p.Store())
		steps, err := m.Migrations(p.Context())
		p.must(err)
		p.migrate(steps[len(steps)-3].Version) // the last step is the functions
	}},
	{"a setting that loses tasks", "settings", doctor.Warn, "synchronous_commit is off", "set it to on", func(p *patient) {
		p.healthy("synchronous_commit=off")
	}},
	{"a pooler in transaction mode", "pooler", doctor.Warn, "a pooler stands between: workers poll", "past the pooler",
		func(p *patient) {
			p.pooled("transaction")
		}},
	{"a pooler in session mode", "pooler", doctor.Warn, "seen by its heartbeat alone", "past the pooler",
		func(p *patient) {
			p.pooled("session")
		}},
	{"a pool that is exhausted", "pool", doctor.Warn, "all 2 connections of this process's pool", "pool_max_conns",
		func(p *patient) {
			p.healthy()
			config, err := pgxpool.ParseConfig(p.dsn)
			p.must(err)
			config.MaxConns = 2
			pool, err := pgxpool.NewWithConfig(p.Context(), config)
			p.must(err)
			p.Cleanup(pool.Close)
			ctx, stop := context.WithCancel(context.Background())
			var handlers sync.WaitGroup
			p.Cleanup(func() { stop(); handlers.Wait() })
			for range 6 { // some of them always wait
				handlers.Go(func() {
					for ctx.Err() == nil {
						_ = pool.AcquireFunc(ctx, func(*pgxpool.Conn) error { time.Sleep(20 * time.Millisecond); return nil })
					}
				})
			}
			for pool.Stat().AcquiredConns() < 2 {
				time.Sleep(time.Millisecond)
			}
			s, err := postgres.New(ctx, pool, postgres.Options{})
			p.open(s, err)
		}},
	{"a receiver that does not answer", "receivers", doctor.Warn,
		"the hook crm has waited for its receiver for 10m: it is down",
		"tusk hooks show crm", func(p *patient) {
			p.healthy()
			p.deliver(herald.HookState, "crm", `{"waits": "2026-01-31T12:00:00Z", "error": "it is down", "cursor": "7"}`)
			p.change = func(f *doctor.Facts) { f.Health.Now = time.Date(2026, 1, 31, 12, 10, 0, 0, time.UTC) }
		}},
	{"an endpoint that is not reached", "endpoints", doctor.Warn,
		"the endpoint of queue mail was not reached 10m ago, and has not answered since: no route", "--push-allow",
		func(p *patient) {
			p.healthy()
			p.deliver(herald.EndpointState, "mail", `{"failed": "2026-01-31T12:00:00Z", "error": "no route"}`)
			p.deliver(herald.EndpointState, "well",
				`{"failed": "2026-01-31T12:00:00Z", "error": "no route", "arrived": "2026-01-31T12:01:00Z"}`)
			p.change = func(f *doctor.Facts) { f.Health.Now = time.Date(2026, 1, 31, 12, 10, 0, 0, time.UTC) }
		}},
	{"a task that runs for long", "running", doctor.Warn, "of the kind k in queue mail has run for", "tusk tasks cancel",
		func(p *patient) {
			p.healthy().add("mail")
			p.claim(p.work(tusk.Version(), "mail"), "mail")
			p.options.Running = time.Nanosecond
		}},
	{"more running tasks than are examined", "running", doctor.Warn, "only the newest 10000 of the tasks", "--queue",
		func(p *patient) {
			p.healthy()
			p.change = func(f *doctor.Facts) {
				f.Running = make([]store.Task, 10000)
				for i := range f.Running {
					f.Running[i].ClaimedAt = f.Local
				}
			}
		}},
	{"messages that were given up", "receivers", doctor.Warn, "given up: 3 messages of the alert leader",
		"tusk alerts show leader",
		func(p *patient) {
			p.healthy()
			p.deliver(herald.AlertState, "leader", `{"dropped": 3}`)
		}},
	{"a clock that is off", "clock", doctor.Warn, "10m0", "chrony", func(p *patient) {
		p.healthy()
		p.change = func(f *doctor.Facts) { f.Local = f.Local.Add(-10 * time.Minute) }
	}},
	{"a transaction that is held open", "transactions", doctor.Warn, "tusk-test-holder", "pg_terminate_backend",
		func(p *patient) {
			c, err := pgx.Connect(p.Context(), p.healthy().dsn)
			p.must(err)
			p.Cleanup(func() { c.Close(context.Background()) })
			_, err = c.Exec(p.Context(), "set application_name = 'tusk-test-holder'; begin; select pg_current_xact_id()")
			p.must(err)
			p.options.Open = time.Nanosecond
			p.change = func(f *doctor.Facts) { f.Health.OpenFor = min(f.Health.OpenFor, 2) } // old, but not very
		}},
	{"a transaction that is held open on MariaDB", "transactions", doctor.Critical, "connection", "kill",
		func(p *patient) {
			s, err := mysql.Open(p.Context(), mysqltest.Database(p))
			p.open(s, err)
			p.migrate(-1)
			p.lead()
			tx, err := s.DB().BeginTx(p.Context(), nil)
			p.must(err)
			p.Cleanup(func() { _ = tx.Rollback() })
			_, err = tx.Exec("update tusk_leader set version = version where one = 2")
			p.must(err)
			e, _ := store.As[store.Examiner](p.Store())
			for h := (store.Health{}); h.OpenFor < time.Second; { // it reports whole seconds
				h, err = e.Examine(p.Context())
				p.must(err)
			}
			p.options.Open = time.Nanosecond
		}},
	{"dead rows", "bloat", doctor.Warn, "dead rows", "vacuum", func(p *patient) {
		c, err := pgx.Connect(p.Context(), p.healthy().dsn)
		p.must(err)
		defer c.Close(p.Context())
		for _, text := range []string{
			"create table tusk.spare with (autovacuum_enabled = off) as select n from generate_series(1, 150000) n",
			"delete from tusk.spare"} {
			_, err = c.Exec(p.Context(), text)
			p.must(err)
		}
		c.Close(p.Context()) // it reports its statistics when it ends
		e, _ := store.As[store.Examiner](p.Store())
		for h := (store.Health{}); h.DeadRows < 150000; {
			h, err = e.Examine(p.Context())
			p.must(err)
		}
	}},
	{"a leader that stopped", "leader", doctor.Critical, "no process leads", "tusk serve", func(p *patient) {
		p.postgres(enginetest.PostgresDSN(p))
		id := tusk.NewID()
		l, err := p.Store().Lead(p.Context(), store.Candidate{ID: id, TTL: time.Hour})
		p.must(err)
		_, err = p.Store().Lead(p.Context(), store.Candidate{ID: id, Term: l.Term})
		p.must(err)
	}},
	{"a schedule that was missed", "schedules", doctor.Critical, "nightly should have fired", "tusk schedules why nightly",
		func(p *patient) {
			p.healthy()
			p.must(p.PutSchedule(p.Context(), tusk.Schedule{Name: "nightly", Spec: "@every 1s", Args: tusk.RawArgs{Name: "k"}}))
			records, err := p.Store().Records(p.Context(), store.RecordFilter{Kind: "schedule"})
			p.must(err)
			r := records[0] // as a leader left it that died an hour ago
			r.Body = []byte(strings.Replace(string(r.Body), "{",
				`{"next":"`+time.Now().Add(-time.Hour).UTC().Format(time.RFC3339)+`",`, 1))
			_, _, err = p.Store().PutRecord(p.Context(), store.PutRecord{Record: r})
			p.must(err)
		}},
	{"a queue without a worker", "queues", doctor.Warn, "queue lonely has 1 available task and no worker",
		"tusk work --queue lonely", func(p *patient) {
			p.healthy().add("lonely")
		}},
	{"a queue whose worker is quiet", "queues", doctor.Warn,
		"1 available task and only quiet workers", "tusk workers wake ",
		func(p *patient) {
			p.healthy().add("lonely")
			p.must(p.QuietWorker(p.Context(), p.work(tusk.Version(), "lonely")))
		}},
	{"many queues without workers", "queues", doctor.Warn, "20 more queues like these",
		"tusk queues list", func(p *patient) {
			h := p.healthy()
			for i := range 30 {
				h.add(fmt.Sprint("lonely", i))
			}
		}},
	{"a queue that was forgotten", "queues", doctor.Critical, "no worker", "tusk work --queue lonely", func(p *patient) {
		p.healthy().add("lonely")
		p.options.Waiting = time.Nanosecond
	}},
	{"a pause that was forgotten", "queues", doctor.Warn, "is paused with 1 available task, the oldest waits",
		"tusk queues resume q", func(p *patient) {
			p.healthy().add("q")
			p.must(p.PauseQueue(p.Context(), "q"))
			p.options.Waiting = time.Nanosecond
		}},
	{"a queue with too few workers", "queues", doctor.Warn, "the oldest of 1 available task in", "tusk work",
		func(p *patient) {
			p.healthy().add("q")
			p.work(tusk.Version(), "q")
			p.options.Waiting = time.Nanosecond
		}},
	{"a kind that nobody has a handler for", "kinds", doctor.Warn, "postponed: 1 task of the kind k,",
		"tusk work --queue q --exec k=COMMAND", func(p *patient) {
			p.healthy().add("q")
			p.putOff("q")
		}},
	{"a worker of another version", "versions", doctor.Warn, "v0.0.1", "upgrade", func(p *patient) {
		p.healthy().work("v0.0.1", "q")
	}},
	{"connections that run out", "connections", doctor.Warn, "connections are open", "pool_max_conns", func(p *patient) {
		p.healthy()
		p.options.Busy = 1e-9
	}},
	{"tasks that are not pruned", "pruning", doctor.Warn, "a completed task ended", "leads", func(p *patient) {
		p.healthy().add("q")
		w := p.work(tusk.Version(), "q")
		var tasks []store.Task
		for len(tasks) == 0 {
			var err error
			tasks, err = p.Store().Claim(p.Context(), store.ClaimRequest{Worker: w, Queues: []string{"q"}, Limit: 1,
				Token: store.NewToken()})
			p.must(err)
		}
		_, err := p.Store().Finish(p.Context(), []store.Outcome{{Task: &tasks[0], State: store.Completed, Attempt: 1}})
		p.must(err)
		p.options.Completed = time.Nanosecond
		p.change = func(f *doctor.Facts) { f.Health.Now = f.Health.Now.Add(time.Second) }
	}},
	{"a full disk", "disk", doctor.Critical, "% of the database's disk", "free some space", func(p *patient) {
		dir := p.TempDir()
		if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=4m"); err != nil {
			p.Skipf("NOT TESTED: a small disk takes the right to mount one: %v", err)
		}
		p.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
		s, err := sqlitefile.Open(p.Context(), "sqlite:"+filepath.Join(dir, "tusk.db"))
		p.open(s, err)
		p.migrate(-1)
		p.lead()
		file, err := os.Create(filepath.Join(dir, "ballast"))
		p.must(err)
		defer file.Close()
		for err == nil {
			_, err = file.Write(make([]byte, 64<<10))
		}
	}},
}

func TestEachFaultIsFound(t *testing.T) {
	for _, fault := range faults {
		t.Run(fault.name, func(t *testing.T) {
			p := &patient{T: t}
			fault.make(p)
			found := p.examine()
			for _, f := range found {
				if !slices.Contains(doctor.Checks(), f.Check) {
					t.Errorf("%s is not among the checks that can be left out", f.Check)
				}
				if f.Check == fault.check && f.Status == fault.status && strings.Contains(f.Text, fault.text) &&
					strings.Contains(f.Fix, fault.fix) {
					return
				}
			}
			t.Errorf("%+v, want %s %s with %q and %q", found, fault.status, fault.check, fault.text, fault.fix)
		})
	}
}

func TestNothingIsFoundWhereNothingIsIll(t *testing.T) {
	p := &patient{T: t}
	p.healthy().work(tusk.Version(), "q")
	p.add("q")
	p.options = doctor.Options{Busy: 1, Free: 1e-9, Open: time.Hour}
	found := p.examine()
	if doctor.Worst(found) != doctor.OK || len(found) < 10 {
		t.Errorf("%+v", found)
	}
}

func TestADatabaseThatDoesNotAnswerIsNotSaidToAnswer(t *testing.T) {
	down := fmt.Errorf("check: %w", store.ErrUnavailable)
	found := doctor.Examine(doctor.Facts{Check: down, HealthErr: down, ReadErr: down}, doctor.Options{})
	if len(found) != 1 || found[0].Check != "connection" || found[0].Status != doctor.Critical {
		t.Errorf("%+v", found)
	}
}
