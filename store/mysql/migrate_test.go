package mysql_test

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/mysql"
	"github.com/tuskqueue/tusk/store/mysql/mysqltest"
)

// program installs the procedures of another program besides the existing ones.
func program(t *testing.T, dsn, mark string) *mysql.Store {
	t.Helper()
	s, err := mysql.OpenProgram(t.Context(), dsn, mark)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	if _, err := s.Migrate(t.Context(), -1); err != nil {
		t.Fatal(err)
	}
	return s
}

// goRound enqueues, claims and completes tasks.
func goRound(t *testing.T, s *mysql.Store, n int) {
	t.Helper()
	enqueue(t, s, newTasks(n, "q")...)
	tasks := claim(t, s, startWorker(t, s), n)
	if finish(t, s, tasks); len(tasks) != n {
		t.Fatalf("%d of %d tasks", len(tasks), n)
	}
}

// installed returns how many programs have procedures after the leader's hourly work, and checks that the list of
// programs says the same.
func installed(t *testing.T, s *mysql.Store, term int64) int64 {
	t.Helper()
	s.EndHour()
	if err := s.Maintain(t.Context(), term); err != nil {
		t.Fatal(err)
	}
	n := number(t, s, "select count(*) from information_schema.routines where routine_schema = database()")
	if listed := number(t, s, "select count(*) from tusk_program"); n != 5*listed {
		t.Fatalf("%d procedures of %d programs", n, listed)
	}
	return n / 5
}

// age makes all programs look unused for long.
func age(t *testing.T, s *mysql.Store) {
	t.Helper()
	exec(t, s, "update tusk_program set seen_at = seen_at - ?", mysql.DropAfter.Microseconds())
}

func signOff(t *testing.T, s *mysql.Store, worker store.ID) {
	t.Helper()
	if _, err := s.Extend(t.Context(), store.Beat{Worker: store.Worker{ID: worker}}); err != nil {
		t.Fatal(err)
	}
}

// Two programs with their own procedures work on the same tasks. The procedures of one are removed when it has not run
// for long.
func TestProceduresGoWhenNoProgramCallsThem(t *testing.T) {
	ctx := t.Context()
	dsn := mysqltest.Database(t)
	migrate(t, dsn)
	s, other := open(t, dsn), program(t, dsn, "of another build")
	w, theirs := startWorker(t, s), startWorker(t, other)
	enqueue(t, s, newTasks(20, "q")...)
	mine := claim(t, s, w, 10)
	finish(t, s, claim(t, other, theirs, 10))
	finish(t, other, mine)
	term := lead(t, s)
	if n := installed(t, s, term); n != 2 {
		t.Fatalf("procedures of %d programs, want 2", n)
	}
	age(t, s)
	if n := installed(t, s, term); n != 2 {
		t.Fatalf("procedures of %d programs, want those of a living worker, too", n)
	}
	signOff(t, other, theirs)
	other.EndHour()
	enqueue(t, other, newTasks(1, "q")...) // a producer, which has no worker
	if n := installed(t, s, term); n != 2 {
		t.Fatalf("procedures of %d programs, want those of a producer, too", n)
	}
	age(t, s)
	if n := installed(t, s, term); n != 1 {
		t.Fatalf("procedures of %d programs, want those of this one alone", n)
	}
	fresh := open(t, dsn)
	if _, err := fresh.Check(ctx); err != nil {
		t.Error(err)
	}
	_, err := other.Claim(ctx, store.ClaimRequest{Worker: startWorker(t, other), Queues: []string{"q"}, Limit: 1,
		Token: store.NewToken()})
	if !errors.Is(err, store.ErrSchemaMissing) || !strings.Contains(err.Error(), "tusk migrate up") {
		t.Errorf("a program without its procedures: %v", err)
	}
	if steps, err := other.Migrate(ctx, -1); err != nil || len(steps) != 1 || steps[0].Name != "procedures" {
		t.Fatal(steps, err)
	}
	finish(t, s, claim(t, s, w, 1))
	goRound(t, other, 10)
}

// A program of the release before migration 3 goes on while the migration is applied.
func TestProceduresWithPlainNamesStayWhileTheirWorkersLive(t *testing.T) {
	ctx := t.Context()
	dsn := mysqltest.Database(t)
	s := open(t, dsn)
	if _, err := s.Migrate(ctx, 2); err != nil {
		t.Fatal(err)
	}
	old, err := mysql.OpenUnmarked(ctx, dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer old.Close()
	if err := old.InstallOld(ctx); err != nil {
		t.Fatal(err)
	}
	enqueue(t, old, newTasks(20, "q")...)
	if _, err := s.Check(ctx); !errors.Is(err, store.ErrSchemaOld) {
		t.Fatal(err)
	}
	steps, err := s.Migrate(ctx, -1)
	if err != nil || len(steps) != 2 || steps[0].Name != "program" || steps[1].Name != "procedures" {
		t.Fatal(steps, err)
	}
	w := startWorker(t, old)
	finish(t, old, claim(t, old, w, 10))
	term := lead(t, s)
	age(t, s)
	if n := installed(t, s, term); n != 2 {
		t.Fatalf("procedures of %d programs, want those of a living worker, too", n)
	}
	finish(t, old, claim(t, old, w, 10))
	signOff(t, old, w)
	if n := installed(t, s, term); n != 1 {
		t.Fatalf("procedures of %d programs, want those of this one alone", n)
	}
	goRound(t, s, 10)
}

func TestASchemaOfTheNextReleaseIsWorkedOnByThisOneUnlessItRefuses(t *testing.T) {
	ctx := t.Context()
	dsn := mysqltest.Database(t)
	migrate(t, dsn)
	s := open(t, dsn)
	goRound(t, s, 10)
	exec(t, s, "create table tusk_later (id int) engine = innodb")
	exec(t, s, "insert into tusk_migration (version_id, is_applied) values (9000, true)")
	exec(t, s, "insert into tusk_program (name, version, installed_at, seen_at) values ('_fffffffffffff', 9000, 0, 0)")
	exec(t, s, "create procedure tusk_claim_fffffffffffff() select 1")
	exec(t, s, "update tusk_program set seen_at = 1 << 60 where version = 9000")
	goRound(t, s, 10)
	old := open(t, dsn) // a program that starts on it
	if _, err := old.Check(ctx); err != nil {
		t.Fatal(err)
	}
	goRound(t, old, 10)
	if _, err := old.Migrate(ctx, 1); !errors.Is(err, store.ErrSchemaNew) {
		t.Errorf("it migrates what it does not know: %v", err)
	}
	other, err := mysql.OpenProgram(ctx, dsn, "of a release before") // its procedures are not installed yet
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if _, err := other.Check(ctx); !errors.Is(err, store.ErrSchemaOld) ||
		!strings.Contains(err.Error(), other.Procedure("tusk_claim")+", which belongs to this program, is missing") {
		t.Error(err)
	}
	if steps, err := other.Migrate(ctx, -1); err != nil || len(steps) != 1 || steps[0].Name != "procedures" {
		t.Error(steps, err)
	}
	goRound(t, other, 10)
	if n := number(t, s, "select count(*) from information_schema.routines where routine_schema = database() "+
		"and routine_name = 'tusk_claim_fffffffffffff'"); n != 1 {
		t.Error("an older program drops the procedures of a newer one")
	}
	exec(t, s, "update tusk_leader set term = 9000 where one = 5")
	if _, err := old.Migrate(ctx, -1); !errors.Is(err, store.ErrSchemaNew) {
		t.Errorf("it installs procedures that break on these tables: %v", err)
	}
	if _, err := old.Check(ctx); !errors.Is(err, store.ErrSchemaNew) {
		t.Error(err)
	}
}

// Programs of two versions continue to work while the procedures of others come and go.
func TestProgramsComeAndGoWhileWorkersRun(t *testing.T) {
	dsn := mysqltest.Database(t)
	migrate(t, dsn)
	s, older := open(t, dsn), program(t, dsn, "of the release before")
	var done atomic.Bool
	var g sync.WaitGroup
	for _, of := range []*mysql.Store{s, older} {
		w := startWorker(t, of)
		g.Go(func() {
			for !done.Load() {
				if _, err := of.Enqueue(context.Background(), newTasks(5, "q")); err != nil {
					t.Error(err)
					return
				}
				tasks := claim(t, of, w, 5)
				finish(t, of, tasks)
			}
		})
	}
	term, rounds := lead(t, s), 0
	for ; rounds < 10 && !t.Failed(); rounds++ {
		passing := program(t, dsn, "of a visitor")
		exec(t, s, "update tusk_program set seen_at = 0 where name = ?",
			strings.TrimPrefix(passing.Procedure("tusk_claim"), "tusk_claim"))
		if n := installed(t, s, term); n != 2 {
			t.Errorf("procedures of %d programs, want 2", n)
		}
	}
	done.Store(true)
	g.Wait()
}

// What a migration sets in its session does not affect others, whether it succeeds or not.
func TestMigrationsLeaveSessionsAsTheyWere(t *testing.T) {
	ctx := t.Context()
	dsn := mysqltest.Database(t)
	migrate(t, dsn)
	s := open(t, dsn+"?lock_wait_timeout=77")
	check := func(after string) {
		t.Helper()
		var conns []*sql.Conn
		for range max(s.DB().Stats().OpenConnections, 3) {
			c, err := s.DB().Conn(ctx)
			if err != nil {
				t.Fatal(err)
			}
			conns = append(conns, c)
		}
		for _, c := range conns {
			var wait int
			err := c.QueryRowContext(ctx, "select @@session.lock_wait_timeout").Scan(&wait)
			if err != nil || wait != 77 {
				t.Errorf("after %s: %d, %v", after, wait, err)
			}
			c.Close()
		}
	}
	tx, err := s.DB().BeginTx(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.ExecContext(ctx, "select * from tusk_worker"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Migrate(ctx, 2); err == nil {
		t.Fatal("a step did not wait for the transaction")
	}
	check("a step that failed")
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	for _, version := range []int64{2, -1} {
		if _, err := s.Migrate(ctx, version); err != nil {
			t.Fatal(err)
		}
	}
	check("steps that succeeded")
}

func TestDownTakesTheProceduresOfNewerProgramsFirst(t *testing.T) {
	ctx := t.Context()
	dsn := mysqltest.Database(t)
	migrate(t, dsn)
	s, other := open(t, dsn), program(t, dsn, "of another build")
	goRound(t, other, 10)
	enqueue(t, s, newTasks(3, "q")...)
	taken, err := s.Migrate(ctx, 2)
	if err != nil || len(taken) != 2 || !taken[0].AppliedAt.IsZero() || taken[0].Name != "procedures" {
		t.Fatal(taken, err)
	}
	if n := number(t, s, "select count(*) from information_schema.routines where routine_schema = database()"); n != 0 {
		t.Errorf("%d procedures are left", n)
	}
	steps, err := s.Migrations(ctx)
	if err != nil || !slices.EqualFunc(steps, []bool{true, true, false, false},
		func(m store.Migration, applied bool) bool { return m.AppliedAt.IsZero() != applied }) {
		t.Error(steps, err)
	}
	if _, err := s.Migrate(ctx, -1); err != nil {
		t.Fatal(err)
	}
	if tasks := claim(t, s, startWorker(t, s), 10); len(tasks) != 3 {
		t.Errorf("%d tasks outlived it, want 3", len(tasks))
	}
}
