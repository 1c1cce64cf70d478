package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/postgres"
	"github.com/tuskqueue/tusk/store/postgres/pgtest"
)

// roles makes the roles of a database, and returns a pool that logs in as one of them.
func roles(t *testing.T, dsn string) (as func(role string) *pgxpool.Pool) {
	t.Helper()
	s, pool := open(t, dsn, true)
	prefix := "r" + strings.ToLower(newID().String()[28:])
	if _, err := s.Roles(t.Context(), prefix, true); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, role := range []string{"migrate", "work", "enqueue", "read"} {
			if _, err := pool.Exec(context.Background(),
				fmt.Sprintf("reassign owned by %[1]s_%[2]s to current_user; drop owned by %[1]s_%[2]s; drop role %[1]s_%[2]s",
					prefix, role)); err != nil {
				t.Error(err)
			}
		}
	})
	return func(role string) *pgxpool.Pool {
		t.Helper()
		if _, err := pool.Exec(t.Context(), fmt.Sprintf("alter role %s_%s login password 'p'", prefix, role)); err != nil {
			t.Fatal(err)
		}
		u, err := url.Parse(dsn)
		if err != nil {
			t.Fatal(err)
		}
		u.User = url.UserPassword(prefix+"_"+role, "p")
		p, err := pgxpool.New(t.Context(), u.String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(p.Close)
		return p
	}
}

// refused says that a role may not do something.
func refused(t *testing.T, pool *pgxpool.Pool, texts ...string) {
	t.Helper()
	for _, text := range texts {
		_, err := pool.Exec(t.Context(), postgres.InFunctions(text))
		var said *pgconn.PgError
		if !errors.As(err, &said) || said.Code != "42501" {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestARoleThatEnqueuesBySQLCanDoNothingElse(t *testing.T) {
	as := roles(t, pgtest.DSN(t))
	shop := as("enqueue")
	for _, text := range []string{"select tusk.enqueue('k')", "select tusk.enqueue('k', key => 'x')",
		"select tusk.enqueue('k', run_at => now() + interval '1 h')",
		"select tusk.enqueue('k', queue => 'other', tenant => 'acme', tags => '{a}')"} {
		if _, err := shop.Exec(t.Context(), text); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
	refused(t, shop, "select args from tusk.log", "select * from tusk.tasks", "select tusk.find(gen_random_uuid())",
		"insert into tusk.log (xid, lane, id, kind, args) values ('99999999999', 1, gen_random_uuid(), 'k', '{}')",
		"insert into tusk.lane values (1, 'q')", "update tusk.waiting set kind = 'k'", "delete from tusk.key",
		"select nextval('tusk.beside')",
		"select tusk_fn.lock_lane(1)", "update tusk.worker set attended = now()", "select tusk_fn.publish()",
		"select tusk_fn.name_lanes('{1}', '{q}')",
		"create table tusk.mine (a int)",
		"select * from tusk_fn.put('{}')")
}

func TestARoleThatReadsChangesNothing(t *testing.T) {
	dsn := pgtest.DSN(t)
	as := roles(t, dsn)
	s, _ := open(t, dsn, false)
	tasks := newTasks(3, "q")
	if _, err := s.Enqueue(t.Context(), tasks); err != nil {
		t.Fatal(err)
	}
	startWorker(t, s)
	reader := as("read")
	r, err := postgres.New(t.Context(), reader, postgres.Options{})
	if err != nil {
		t.Fatal(err)
	}
	list, err := r.List(t.Context(), store.Filter{Detail: true, Kinds: []string{"mail"}})
	if err != nil || len(list) != 3 {
		t.Error(len(list), err)
	}
	if _, err := r.Count(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := r.Stats(t.Context(), store.StatsFilter{}); err != nil {
		t.Error(err)
	}
	if _, err := r.Errors(t.Context(), store.ErrorFilter{}); err != nil {
		t.Error(err)
	}
	if _, err := r.Workers(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := reader.Exec(t.Context(), postgres.InFunctions("select * from tusk.tasks; select * from tusk.find('"+
		tasks[0].ID.String()+"'); select * from tusk_fn.depth")); err != nil {
		t.Error(err)
	}
	refused(t, reader, "select tusk.enqueue('k')", "delete from tusk.log", "select tusk_fn.lock_lane(1)",
		"select tusk_fn.try_lane(1)", "update tusk.leader set term = 7", "update tusk.worker set attended = now()",
		"insert into tusk.lane values (1, 'q')", "select nextval('tusk.beside')")
}

func TestARoleThatWorksDoesAllThatWorkersDo(t *testing.T) {
	dsn := pgtest.DSN(t)
	as := roles(t, dsn)
	crew := as("work")
	s, err := postgres.New(t.Context(), crew, postgres.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if warnings, err := s.Check(t.Context()); err != nil || len(warnings) > 0 {
		t.Error(warnings, err)
	}
	client, err := tusk.NewClient(s, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := client.SetLimits(t.Context(), "default", tusk.Limits{Concurrency: 5}); err != nil {
		t.Fatal(err)
	}
	var ran atomic.Int32
	mux := tusk.NewMux()
	tusk.Handle(mux, func(ctx context.Context, task *tusk.Task[job]) error {
		ran.Add(1)
		switch {
		case task.Args.N == 1 && task.Attempt == 1:
			return tusk.RetryAfter(time.Millisecond, errors.New("once"))
		case task.Args.N == 2:
			return tusk.Discard(errors.New("no use"))
		case task.Args.N == 3:
			return pgx.BeginFunc(ctx, crew, func(tx pgx.Tx) error { return task.CompleteTx(ctx, tx) })
		}
		return nil
	})
	w, err := tusk.NewWorker(client, mux, &tusk.WorkerConfig{Logger: slog.New(slog.DiscardHandler),
		Poll: 20 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	for i := range 10 {
		if _, err := client.Enqueue(t.Context(), job{i}, &tusk.Options{Key: fmt.Sprint("k", i)}); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "all tasks run", func() bool {
		list, err := client.List(t.Context(), tusk.Filter{States: []tusk.State{tusk.StateCompleted, tusk.StateDiscarded}})
		return err == nil && len(list) == 10
	})
	stop()
	<-ended
	// Segments are made and dropped.
	_, pool := open(t, dsn, false)
	shrink(t, as("migrate"))
	term := lead(t, s)
	goRoundOf(t, s, startWorker(t, s), "other", 10)
	if err := s.Maintain(t.Context(), term); err != nil {
		t.Error(err)
	}
	eventually(t, "all is pruned", func() bool {
		_, err := s.Prune(t.Context(), term, store.Retention{Completed: time.Microsecond, Discarded: time.Microsecond}, 1000)
		return err == nil && number(t, pool, "select count(*) from tusk.outcome") == 0
	})
	if err := s.Maintain(t.Context(), term); err != nil {
		t.Error(err)
	}
	if n := number(t, pool, "select count(*) from tusk.segment where name = 'task_0'"); n != 0 {
		t.Error("the segment was not dropped")
	}
	refused(t, crew, "select tusk_fn.publish()", "drop table tusk.log", "alter table tusk.log add a int",
		"create table tusk.mine (a int)", "insert into tusk.migration (version_id, is_applied) values (99, true)",
		"update tusk.server set system_identifier = 1")
}

func TestARoleThatMigratesGoesDownAndUp(t *testing.T) {
	dsn := pgtest.DSN(t)
	as := roles(t, dsn)
	s, err := postgres.New(t.Context(), as("migrate"), postgres.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, to := range []int64{0, -1} {
		if _, err := s.Migrate(t.Context(), to); err != nil {
			t.Fatal(err)
		}
	}
}

func TestCheckNamesWhatBreaksTusk(t *testing.T) {
	dsn := pgtest.DSN(t)
	_, pool := open(t, dsn, true)
	for setting, want := range map[string]string{
		"default_query_exec_mode=exec":            "cache_describe",
		"default_query_exec_mode=simple_protocol": "cache_describe",
		"default_transaction_read_only=on":        "default_transaction_read_only",
		"default_query_exec_mode=describe_exec":   "",
	} {
		s, err := postgres.Open(t.Context(), dsn+"&"+setting)
		if err == nil {
			defer s.Close()
			_, err = s.Check(t.Context())
		}
		if (err != nil) != (want != "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", setting, err)
		}
	}
	as := roles(t, dsn)
	crew := as("work")
	var me string
	if err := crew.QueryRow(t.Context(), "select current_user").Scan(&me); err != nil {
		t.Fatal(err)
	}
	if _, err := pool.Exec(t.Context(), "revoke all on sequence tusk.beside from "+me); err != nil {
		t.Fatal(err)
	}
	s, err := postgres.New(t.Context(), crew, postgres.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	worker := newID()
	w := store.Worker{ID: worker, Queues: []string{"q"}}
	if _, err := s.Extend(t.Context(), store.Beat{Worker: w, TTL: time.Minute}); err != nil {
		t.Fatal(err)
	}
	_, err = s.Check(t.Context())
	r := store.ClaimRequest{Worker: worker, Queues: []string{"q"}, Limit: 1, Token: store.NewToken()}
	_, claimed := s.Claim(t.Context(), r)
	_, finished := s.Finish(t.Context(), nil)
	for what, err := range map[string]error{"check": err, "claim": claimed, "finish": finished} {
		if err == nil || !strings.Contains(err.Error(), "neither usage nor select on sequence tusk.beside") {
			t.Errorf("%s by a role that cannot see what is beside leases: %v", what, err)
		}
	}
	if _, err := s.Enqueue(t.Context(), newTasks(1, "q")); err != nil {
		t.Errorf("enqueue by a role that cannot see what is beside leases: %v", err)
	}
	if _, err := pool.Exec(t.Context(), "grant usage on sequence tusk.beside to "+me); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Claim(t.Context(), r); err != nil || len(got) != 1 {
		t.Errorf("claimed %d tasks once the right is given: %v", len(got), err)
	}
	if _, err := pool.Exec(t.Context(), "grant create on schema public to public"); err != nil {
		t.Fatal(err)
	}
	other, _ := open(t, dsn, false)
	if warnings, err := other.Check(t.Context()); err != nil || len(warnings) != 1 ||
		!strings.Contains(warnings[0], "schema public") {
		t.Error(warnings, err)
	}
}

// Check says what to grant to a role that lacks rights. With these rights, it works and leads.
func TestCheckNamesTheRightsThatARoleLacks(t *testing.T) {
	for name, reads := range map[string]bool{"of tables": false, "of functions, too": true} {
		t.Run(name, func(t *testing.T) { checkRights(t, reads) })
	}
}

// checkRights checks a role that may read the tables and, if reads is set, call the functions that only read.
func checkRights(t *testing.T, reads bool) {
	dsn := pgtest.DSN(t)
	owner, pool := open(t, dsn, true)
	exec := func(text string) {
		t.Helper()
		if _, err := pool.Exec(context.Background(), text); err != nil {
			t.Error(text, err)
		}
	}
	role := "hand" + strings.ToLower(newID().String()[28:])
	exec(fmt.Sprintf("create role %s login password 'p'; alter role %[1]s set search_path = pg_catalog, pg_temp", role))
	t.Cleanup(func() { exec(fmt.Sprintf("drop owned by %s; drop role %[1]s", role)) })
	exec(fmt.Sprintf("grant usage on schema tusk to %s; grant select on all tables in schema tusk to %[1]s; "+
		"grant usage on sequence tusk.beside to %[1]s", role))
	if reads {
		exec("select " + owner.FunctionSchema() + ".grant_rights()")
	}
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword(role, "p")
	s, err := postgres.Open(t.Context(), u.String())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	missing := func() string {
		t.Helper()
		warnings, err := s.Check(t.Context())
		if err != nil || len(warnings) > 1 {
			t.Fatal(warnings, err)
		}
		_, statements, _ := strings.Cut(strings.Join(warnings, ""), ", or ")
		return statements
	}
	exec(missing())
	if more := missing(); more != "" {
		t.Fatal(more)
	}
	term := lead(t, s)
	goRound(t, s, startWorker(t, s), 20)
	if err := s.Maintain(t.Context(), term); err != nil {
		t.Error(err)
	}
	grant := "grant delete on tusk.catalogue, tusk.segment, tusk.segment_part to " + role
	exec(strings.NewReplacer("grant", "revoke", " to ", " from ").Replace(grant))
	if got := missing(); got != grant {
		t.Errorf("missing: %q, want %q", got, grant)
	}
}

// Tables that a migration adds are open to the roles that may use the others.
func TestRolesMayUseTheTablesOfALaterMigration(t *testing.T) {
	dsn := pgtest.DSN(t)
	s, _ := open(t, dsn, false)
	all, err := s.Migrations(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Migrate(t.Context(), all[len(all)-3].Version); err != nil {
		t.Fatal(err)
	}
	as := roles(t, dsn)
	if _, err := s.Migrate(t.Context(), -1); err != nil {
		t.Fatal(err)
	}
	w, err := postgres.New(t.Context(), as("work"), postgres.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	term := lead(t, w)
	tasks := newTasks(100, "q")
	for i := range tasks {
		tasks[i].Turn, tasks[i].Args = true, make([]byte, 20_000)
	}
	if _, err := w.Enqueue(t.Context(), tasks); err != nil {
		t.Fatal(err)
	}
	if granted, err := w.Grant(t.Context(), term, []store.ID{tasks[0].ID}); err != nil || granted != 1 {
		t.Fatal(granted, err)
	}
	if err := w.Maintain(t.Context(), term); err != nil {
		t.Fatal(err)
	}
	r, err := postgres.New(t.Context(), as("read"), postgres.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if list, err := r.List(t.Context(), store.Filter{Queues: []string{"q"}}); err != nil || len(list) != 100 {
		t.Error(len(list), err)
	}
}
