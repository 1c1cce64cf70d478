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
			if _, err := pool.Exec(context.Background(), fmt.Sprintf("reassign owned by %[1]s_%[2]s to current_user; drop owned by %[1]s_%[2]s; drop role %[1]s_%[2]s", prefix, role)); err != nil {
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
	for _, text := range []string{"select tusk.enqueue('k')", "select tusk.enqueue('k', key => 'x')", "select tusk.enqueue('k', run_at => now() + interval '1 h')",
		"select tusk.enqueue('k', queue => 'other', tenant => 'acme', tags => '{a}')"} {
		if _, err := shop.Exec(t.Context(), text); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
	refused(t, shop, "select args from tusk.log", "select * from tusk.tasks", "select tusk.find(gen_random_uuid())",
		"insert into tusk.log (xid, lane, id, kind, args) values ('99999999999', 1, gen_random_uuid(), 'k', '{}')",
		"insert into tusk.lane values (1, 'q')", "update tusk.waiting set kind = 'k'", "delete from tusk.key", "select nextval('tusk.beside')",
		"select tusk_fn.lock_lane(1)", "select tusk_fn.attend(array[gen_random_uuid()])", "select tusk_fn.rebase()", "select tusk_fn.name_lanes('{1}', '{q}')",
		"create table tusk.mine (a int)", "select * from tusk_fn.put('{1}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}')")
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
	r, err := postgres.New(reader, postgres.Options{})
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
	if _, err := reader.Exec(t.Context(), postgres.InFunctions("select * from tusk.tasks; select * from tusk.find('"+tasks[0].ID.String()+"'); select * from tusk_fn.depth")); err != nil {
		t.Error(err)
	}
	refused(t, reader, "select tusk.enqueue('k')", "delete from tusk.log", "select tusk_fn.lock_lane(1)", "select tusk_fn.try_lane(1)", "update tusk.leader set term = 7",
		"select tusk_fn.attend(array[gen_random_uuid()])", "insert into tusk.lane values (1, 'q')", "select nextval('tusk.beside')")
}

func TestARoleThatWorksDoesAllThatWorkersDo(t *testing.T) {
	dsn := pgtest.DSN(t)
	as := roles(t, dsn)
	crew := as("work")
	s, err := postgres.New(crew, postgres.Options{})
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
	w, err := tusk.NewWorker(client, mux, &tusk.WorkerConfig{Logger: slog.New(slog.DiscardHandler), Poll: 20 * time.Millisecond})
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
	refused(t, crew, "select tusk_fn.rebase()", "drop table tusk.log", "alter table tusk.log add a int", "create table tusk.mine (a int)",
		"insert into tusk.migration (version_id, is_applied) values (99, true)", "update tusk.server set system_identifier = 1")
}

func TestARoleThatMigratesGoesDownAndUp(t *testing.T) {
	dsn := pgtest.DSN(t)
	as := roles(t, dsn)
	s, err := postgres.New(as("migrate"), postgres.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, to := range []int64{0, -1} {
		if _, err := s.Migrate(t.Context(), to); err != nil {
			t.Fatal(err)
		}
	}
}

// plantedOperators makes each usual operator for each pair of types that PostgreSQL has none for: without them it
// converts an operand, or takes the operator of any array; an exact match is preferred to both.
const plantedOperators = `
do $do$
declare l text; r text; o text; name text;
begin
  foreach l in array '{uuid,text,bytea,bigint,int,boolean,timestamptz,xid8,uuid[],text[],bigint[],int[],xid8[]}'::text[] loop
    foreach r in array '{uuid,text,bytea,bigint,int,boolean,timestamptz,xid8,uuid[],text[],bigint[],int[],xid8[]}'::text[] loop
      name := format('operand(%s, %s)', l, r);
      execute format('create function public.%s returns boolean language plpgsql as $$ begin
        insert into public.loot values (current_user, %L); return null; end $$', name, 'operator ' || name);
      foreach o in array '{=,<>,<,>,<=,>=,+,-,*,/,||,@>,<@,&&}'::text[] loop
        if to_regoperator(format('pg_catalog.%s(%s, %s)', o, l, r)) is null then
          execute format('create operator public.%s (leftarg = %s, rightarg = %s, function = public.operand)', o, l, r);
        end if;
      end loop;
    end loop;
  end loop;
end $do$`

// Everybody may create in the schema public, as up to PostgreSQL 14. mallory does, for every function of PostgreSQL
// that takes any type a function of the very types that Tusk has, and operators likewise.
func TestNobodyRunsCodeByWayOfTheSearchPath(t *testing.T) {
	dsn := pgtest.DSN(t)
	s, pool := open(t, dsn, true)
	ctx := t.Context()
	if _, err := pool.Exec(ctx, `create table public.loot (who text, by text);
		grant all on public.loot to public;
		do $do$
		declare f record; t text; args text;
		begin
		  for f in
		    select distinct p.proname, p.pronargs, array_to_string(array(
		      select case when a::regtype in ('anyarray', 'anycompatiblearray') then '%1$s[]'
		        when a::regtype in ('anyelement', 'anynonarray', 'anycompatible', 'anycompatiblenonarray', '"any"') then '%1$s' else a::regtype::text end
		      from unnest(p.proargtypes::oid[]) with ordinality u(a, n) order by n), ', ') as args
		    from pg_catalog.pg_proc p
		    where p.pronamespace = 'pg_catalog'::regnamespace and p.prokind in ('f', 'a') and p.pronargs between 1 and 3 and p.provariadic = 0
		      and p.prorettype <> 'internal'::regtype and 'internal'::regtype <> all(p.proargtypes::oid[])
		      and p.proargtypes::oid[] && '{anyarray,anyelement,anynonarray,"\"any\"",anycompatible,anycompatiblearray,anycompatiblenonarray}'::regtype[]::oid[]
		  loop
		    foreach t in array '{uuid,text,bytea,bigint,int,boolean,timestamptz,xid8}'::text[] loop
		      args := format(f.args, t);
		      begin
		        execute format('create function public.%I(%s) returns text language plpgsql as $$ begin
		          insert into public.loot values (current_user, %L); return null; end $$', f.proname, args, f.proname || '(' || args || ')');
		      exception when others then null;
		      end;
		    end loop;
		  end loop;
		end $do$`); err != nil {
		t.Fatal(err)
	}
	if _, err := pool.Exec(ctx, plantedOperators); err != nil {
		t.Fatal(err)
	}
	if n := number(t, pool, "select count(*) from pg_proc where pronamespace = 'public'::regnamespace"); n < 200 {
		t.Fatalf("%d functions were planted", n)
	}
	if n := number(t, pool, "select count(*) from pg_operator where oprnamespace = 'public'::regnamespace"); n < 2000 {
		t.Fatalf("%d operators were planted", n)
	}
	term, w := lead(t, s), startWorker(t, s)
	ignore := func(err error) {
		if err != nil {
			var said *pgconn.PgError
			errors.As(err, &said)
			t.Errorf("%v: %.300s", err, fmt.Sprint(said != nil && said.Where != "", " ", where(said)))
		}
	}
	for _, n := range []int{1, 3, 300} {
		goRound(t, s, w, n)
	}
	tasks := newTasks(4, "q")
	tasks[0].Key, tasks[1].Delay, tasks[2].Tags, tasks[3].Needs = "k", time.Millisecond, []string{"a"}, []store.Need{{Task: tasks[0].ID}}
	_, err := s.Enqueue(ctx, tasks)
	ignore(err)
	_, err = s.Admit(ctx, term, 10)
	ignore(err)
	got, err := s.Claim(ctx, store.ClaimRequest{Worker: w, Queues: []string{"q", "r", "s", "t", "u"}, Limit: 10, Token: store.NewToken()})
	ignore(err)
	for i := range got {
		_, err = s.Finish(ctx, []store.Outcome{{Task: &got[i], State: store.Retryable, Attempt: 1, Error: "e", Fingerprint: "f", Note: &store.Note{Output: []byte("1")}}})
		ignore(err)
	}
	_, err = s.List(ctx, store.Filter{Detail: true, Kinds: []string{"mail"}, Tags: []string{"a"}})
	ignore(err)
	_, err = s.List(ctx, store.Filter{IDs: []store.ID{tasks[0].ID}, Detail: true})
	ignore(err)
	_, err = s.Count(ctx)
	ignore(err)
	_, err = s.Stats(ctx, store.StatsFilter{})
	ignore(err)
	_, err = s.Errors(ctx, store.ErrorFilter{})
	ignore(err)
	_, err = s.Extend(ctx, store.Beat{Worker: store.Worker{ID: w, Queues: []string{"q"}}, TTL: time.Minute,
		Notes: []store.Note{{ID: tasks[0].ID, Output: []byte("2")}}, Seq: 1})
	ignore(err)
	for _, change := range []store.Change{{Op: store.Cancel, Reason: "r"}, {Op: store.Retry}, {Op: store.Reprioritize, Priority: 3},
		{Op: store.Move, Queue: "r"}, {Op: store.Reschedule, Delay: time.Hour}, {Op: store.Delete}} {
		_, err = s.Edit(ctx, store.Edit{IDs: []store.ID{tasks[0].ID, tasks[1].ID, tasks[2].ID, tasks[3].ID}, Change: change})
		ignore(err)
	}
	_, _, err = s.Search(ctx, store.Filter{Tags: []string{"a"}, Queues: []string{"q"}, States: []store.State{store.Available}}, 10)
	ignore(err)
	_, err = s.Workers(ctx)
	ignore(err)
	_, err = s.Turns(ctx, term, 10, 10)
	ignore(err)
	_, err = s.Grant(ctx, term, []store.ID{tasks[0].ID})
	ignore(err)
	_, _, err = s.PutRecord(ctx, store.PutRecord{Record: store.Record{Kind: "k", Name: "n", Body: []byte("{}")}, Tasks: newTasks(1, "q")})
	ignore(err)
	_, err = s.Records(ctx, "k")
	ignore(err)
	_, err = s.Measure(ctx)
	ignore(err)
	_, err = s.Examine(ctx)
	ignore(err)
	_, err = s.Check(ctx)
	ignore(err)
	cursor, err := s.Follow(ctx, true)
	ignore(err)
	_, err = s.Ended(ctx, cursor, 10)
	ignore(err)
	_, err = s.Rescue(ctx, term, 10)
	ignore(err)
	_, err = s.Prune(ctx, term, store.Retention{Completed: 1}, 100)
	ignore(err)
	ignore(s.Maintain(ctx, term))
	_, err = pool.Exec(ctx, "select tusk.enqueue('k', tags => '{a}', key => 'y'); select * from tusk.tasks; select tusk.find('"+tasks[0].ID.String()+"')")
	ignore(err)
	rows, err := pool.Query(ctx, "select by, pg_catalog.count(*)::text from public.loot group by 1 order by 1")
	if err != nil {
		t.Fatal(err)
	}
	planted, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (line string, err error) {
		var n string
		err = row.Scan(&line, &n)
		return line + " " + n, err
	})
	if err != nil || len(planted) > 0 {
		t.Errorf("mallory's functions ran: %v %v", planted, err)
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
	s, err := postgres.New(crew, postgres.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Check(t.Context()); err == nil || !strings.Contains(err.Error(), "tusk db roles") {
		t.Errorf("a role that cannot see what is beside leases: %v", err)
	}
	if _, err := pool.Exec(t.Context(), "grant create on schema public to public"); err != nil {
		t.Fatal(err)
	}
	w, _ := open(t, dsn, false)
	if warnings, err := w.Check(t.Context()); err != nil || len(warnings) != 1 || !strings.Contains(warnings[0], "schema public") {
		t.Error(warnings, err)
	}
}

func where(said *pgconn.PgError) string {
	if said == nil {
		return ""
	}
	return said.Where
}
