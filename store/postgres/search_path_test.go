package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/postgres"
	"github.com/tuskqueue/tusk/store/postgres/pgtest"
)

// sent are the statements that a connection sends.
type sent struct {
	mu    sync.Mutex
	texts map[string]bool
}

func (s *sent) note(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.texts[text] = true
}

func (s *sent) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	s.note(data.SQL)
	return ctx
}

func (s *sent) TraceBatchStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceBatchStartData) context.Context {
	for _, one := range data.Batch.QueuedQueries {
		s.note(one.SQL)
	}
	return ctx
}

func (s *sent) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}

func (s *sent) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

func (s *sent) all() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.texts))
}

func (s *sent) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// called finds functions in a statement.
var called = regexp.MustCompile(`(\w*)(\.?)\b([a-z_][a-z0-9_]*)\(`)

// namesIn returns the names of functions that statements call in a schema, or without one, as an array.
func namesIn(texts []string, schema string) string {
	names := map[string]bool{}
	for _, text := range texts {
		for _, found := range called.FindAllStringSubmatch(text, -1) {
			if found[1] == schema {
				names[found[3]] = true
			}
		}
	}
	return "{" + strings.Join(slices.Sorted(maps.Keys(names)), ",") + "}"
}

// part stands for a part of a statement.
var part = regexp.MustCompile(`\{[a-z_]+\}`)

// commentLine is a line with a comment.
var commentLine = regexp.MustCompile(`(?m)^ *--.*\n`)

// parsed returns the planted functions and operators that a statement means in a victim's session.
func parsed(t *testing.T, victim *pgx.Conn, safe *pgxpool.Pool, text string) (found []string) {
	t.Helper()
	text = strings.TrimSuffix(strings.TrimSpace(commentLine.ReplaceAllString(text, "")), ";")
	first := strings.Fields(strings.TrimLeft(text, "("))[0]
	if part.MatchString(text) || !slices.Contains([]string{"select", "with", "insert", "update", "delete"}, first) {
		return nil
	}
	ctx := t.Context()
	d, err := victim.Prepare(ctx, "", text)
	if isSyntax(err) {
		return nil // the text is sent as a part of another
	}
	var params string
	if err == nil {
		err = safe.QueryRow(ctx, `select coalesce(string_agg(u.o::regtype::text, ', ' order by u.n), '')
			from unnest($1::oid[]) with ordinality u(o, n)`, d.ParamOIDs).Scan(&params)
	}
	if err == nil {
		_, err = victim.Exec(ctx, "create function public.probe("+params+") returns void begin atomic "+text+"; end")
	}
	if err != nil {
		t.Errorf("%v\n%s", err, text)
		return nil
	}
	rows, err := safe.Query(ctx, `
		select pg_describe_object(d.refclassid, d.refobjid, 0) from pg_depend d
		where d.classid = 'pg_proc'::regclass and d.objid = (select p.oid from pg_proc p where p.proname = 'probe')
		  and (exists (select from pg_proc p where p.oid = d.refobjid and p.pronamespace = 'public'::regnamespace)
		    or exists (select from pg_operator o where o.oid = d.refobjid and o.oprnamespace = 'public'::regnamespace))`)
	if err == nil {
		found, err = pgx.CollectRows(rows, pgx.RowTo[string])
	}
	if err == nil {
		_, err = safe.Exec(ctx, "drop function public.probe")
	}
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func isSyntax(err error) bool {
	var said *pgconn.PgError
	return errors.As(err, &said) && said.Code == "42601"
}

// openTo returns the functions of the program that run with the search_path of the caller: those that statements,
// views or other such functions call, unless they set their own path or were parsed when they were made. Procedures
// that commit cannot have a path of their own, and set it themselves.
func openTo(t *testing.T, safe *pgxpool.Pool, program string, texts []string) []string {
	t.Helper()
	rows, err := safe.Query(t.Context(), `
		with own as (select p.* from pg_proc p where p.pronamespace = $1::regnamespace and p.prokind = 'f')
		select p.proname from own p
		where p.prosqlbody is null and not exists (select from unnest(p.proconfig) c where c like 'search_path=%')
		  and p.proname not in ('ids_of', 'place_of', 'queue_of') -- see functions/18_rights.sql
		  and (p.proname = any($2::text[]::name[])
		    or exists (
		      select from pg_depend d
		      where d.refclassid = 'pg_proc'::regclass and d.refobjid = p.oid and d.deptype = 'n'))
		order by 1`, program, namesIn(texts, program))
	if err != nil {
		t.Fatal(err)
	}
	open, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return open
}

// Everybody may create objects in the schema public, as up to PostgreSQL 14, and mallory does so. Her objects are
// preferred to those of PostgreSQL wherever a statement leaves the choice to the search_path.
func TestNobodyRunsCodeByWayOfTheSearchPath(t *testing.T) {
	dsn := pgtest.DSN(t)
	open(t, dsn, true)
	ctx := t.Context()
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	trace := &sent{texts: map[string]bool{}}
	config.ConnConfig.Tracer = trace
	traced, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(traced.Close)
	s, err := postgres.New(ctx, traced, postgres.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	_, pool := open(t, dsn+"&search_path=pg_catalog", false)
	names := namesIn(append(s.Statements(), postgres.FunctionText()), "")
	for _, text := range []string{plant, strings.ReplaceAll(plantedFunctions, "{names}", names), plantedOperators} {
		if _, err := pool.Exec(ctx, text); err != nil {
			t.Fatal(err)
		}
	}
	if n := number(t, pool, "select count(*) from pg_proc where pronamespace = 'public'::regnamespace"); n < 1000 {
		t.Fatalf("%d functions were planted", n)
	}
	if n := number(t, pool, "select count(*) from pg_operator where oprnamespace = 'public'::regnamespace"); n < 5000 {
		t.Fatalf("%d operators were planted", n)
	}
	doAll(t, s, traced)
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
	texts := append(s.Statements(), trace.all()...)
	if open := openTo(t, pool, s.FunctionSchema(), texts); len(open) > 0 {
		t.Errorf("functions look into the schemas of whoever calls them: %v", open)
	}
	victim := acquire(t, traced)
	defer victim.Release()
	for _, text := range texts {
		if found := parsed(t, victim.Conn(), pool, text); len(found) > 0 {
			t.Errorf("%v would run in\n%s", found, text)
		}
	}
}

// doAll makes an engine send all of its statements.
func doAll(t *testing.T, s *postgres.Store, pool *pgxpool.Pool) {
	t.Helper()
	ctx := t.Context()
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
	exchangeRound(t, s, w) // while nothing is beside leases; otherwise what mallory did would be rolled back
	tasks := newTasks(4, "q")
	tasks[0].Key, tasks[1].Delay, tasks[2].Tags, tasks[3].Needs = "k", time.Millisecond, []string{"a"},
		[]store.Need{{Task: tasks[0].ID}}
	_, err := s.Enqueue(ctx, tasks)
	ignore(err)
	_, err = s.Admit(ctx, term, 10)
	ignore(err)
	got, err := s.Claim(ctx, store.ClaimRequest{Worker: w, Queues: []string{"q", "r", "s", "t", "u"}, Limit: 10,
		Token: store.NewToken()})
	ignore(err)
	for i := range got {
		_, err = s.Finish(ctx, []store.Outcome{{Task: &got[i], State: store.Retryable, Attempt: 1, Error: "e",
			Fingerprint: "f", Note: &store.Note{Output: []byte("1")}}})
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
	for _, change := range []store.Change{{Op: store.Cancel, Reason: "r"}, {Op: store.Retry},
		{Op: store.Reprioritize, Priority: 3},
		{Op: store.Move, Queue: "r"}, {Op: store.Reschedule, Delay: time.Hour}, {Op: store.Delete}} {
		_, err = s.Edit(ctx, store.Edit{IDs: []store.ID{tasks[0].ID, tasks[1].ID, tasks[2].ID, tasks[3].ID}, Change: change})
		ignore(err)
	}
	_, _, err = s.Search(ctx, store.Filter{Tags: []string{"a"}, Queues: []string{"q"},
		States: []store.State{store.Available}}, 10)
	ignore(err)
	_, err = s.Workers(ctx)
	ignore(err)
	_, err = s.Turns(ctx, term, 10, 10)
	ignore(err)
	_, err = s.Grant(ctx, term, []store.ID{tasks[0].ID})
	ignore(err)
	_, _, err = s.PutRecord(ctx, store.PutRecord{Record: store.Record{Kind: "k", Name: "n", Body: []byte("{}")},
		Tasks: newTasks(1, "q")})
	ignore(err)
	records, err := s.Records(ctx, store.RecordFilter{Kind: "k"})
	ignore(err)
	for _, r := range records {
		r.Version, _, err = s.PutRecord(ctx, store.PutRecord{Record: r})
		ignore(err)
		_, err = s.UpdateRecords(ctx, term, []store.PutRecord{{Record: r}})
		ignore(err)
	}
	_, err = s.Look(ctx, []string{"q"}, "k")
	ignore(err)
	_, err = postgres.AdoptAll(ctx, []*postgres.Store{s}, store.Candidate{ID: newID(), Term: 0, TTL: time.Minute})
	ignore(err)
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
	_, err = pool.Exec(ctx,
		"select tusk.enqueue('k', tags => '{a}', key => 'y'); select * from tusk.tasks; select tusk.find('"+
			tasks[0].ID.String()+"')")
	ignore(err)
}

// exchangeRound exchanges tasks until there is none.
func exchangeRound(t *testing.T, s *postgres.Store, w store.ID) {
	t.Helper()
	if _, err := s.Enqueue(t.Context(), newTasks(3, "swap")); err != nil {
		t.Fatal(err)
	}
	r := store.ClaimRequest{Worker: w, Queues: []string{"swap"}, Limit: 1, Token: store.NewToken()}
	got, err := s.Claim(t.Context(), r)
	for err == nil && len(got) > 0 {
		r.Token = store.NewToken()
		x := s.Exchange(t.Context(), completed(got)[0], r)
		got, err = x.Tasks, errors.Join(x.ClaimErr, x.FinishErr)
	}
	if err != nil {
		t.Error(err)
	}
}

func where(said *pgconn.PgError) string {
	if said == nil {
		return ""
	}
	return said.Where
}
