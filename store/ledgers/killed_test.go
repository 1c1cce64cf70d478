package ledgers_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/ledgers"
	"github.com/tuskqueue/tusk/store/postgres/pgtest"
)

// moveEnv has the target of a move and the servers, for a process that a test kills.
const moveEnv = "TUSK_TEST_MOVE"

func TestMoveProcess(t *testing.T) {
	words := strings.Fields(os.Getenv(moveEnv))
	if len(words) == 0 {
		t.Skip("only in a process that another test starts")
	}
	_, err := open(t, words[1:]...).Move(t.Context(), words[0], 1)
	t.Fatalf("the move has ended: %v", err)
}

// startMove moves ledger 1 in a process of its own.
func startMove(t *testing.T, to string, dsns []string, environ ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestMoveProcess$")
	cmd.Env = append(append(os.Environ(), moveEnv+"="+to+" "+strings.Join(dsns, " ")), environ...)
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return cmd
}

const fencedOnBoth = "tusk_0_of_2 open, tusk_0_of_2 copy, tusk_1_of_2 away, tusk_1_of_2_fenced fenced, " +
	"tusk_1_of_2_fenced fenced"

// A move to a standby is killed. The same move continues it, or the ledger is opened where it was, and nothing is lost.
func TestAMoveThatWasKilledIsContinued(t *testing.T) {
	for _, c := range []struct {
		name    string
		promote string // what happens instead of pg_promote()
		ready   string // what is true of the standby then
		undo    bool
		want    string
	}{
		{"before the promotion", "perform pg_sleep(20)", "not exists (select from pg_stat_wal_receiver)", false,
			"tusk_0_of_2 open, tusk_1_of_2 away, tusk_1_of_2_fenced fenced"},
		{"after the promotion", "perform pg_catalog.pg_promote(); perform pg_sleep(20)", "not pg_is_in_recovery()", false,
			fencedOnBoth},
		{"after the promotion, and undone", "perform pg_catalog.pg_promote(); perform pg_sleep(20)",
			"not pg_is_in_recovery()", true,
			fencedOnBoth},
	} {
		t.Run(c.name, func(t *testing.T) { moveIsKilled(t, c.promote, c.ready, c.undo, c.want) })
	}
}

func moveIsKilled(t *testing.T, promote, ready string, undo bool, want string) {
	all, dsns := servers(t, 1)
	ctx := t.Context()
	if err := divide(2, dsns[0]); err != nil {
		t.Fatal(err)
	}
	hangs := "create function public.pg_promote() returns boolean language plpgsql as $$ begin " + promote +
		"; return false; end $$"
	if err := all[0].Exec(ctx, hangs); err != nil {
		t.Fatal(err)
	}
	standby, err := all[0].Standby()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(standby.Stop)
	s := open(t, all[0].DSN, standby.DSN)
	before := keyedInto(s, 1, nil)
	add(t, s, before)
	w := worker(t, s)
	running := claim(t, s, w, 1)
	killed := startMove(t, operatorName(standby),
		[]string{all[0].DSN, standby.DSN + "&search_path=public,pg_catalog"})
	eventually(t, "the move hangs", func() bool { return sleeps(t, standby, ready) })
	if err := killed.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = killed.Wait()
	operator := open(t, all[0].DSN, standby.DSN)
	if got := places(t, operator); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if _, err := operator.Check(ctx); err == nil || !strings.Contains(err.Error(), "repeat the move") {
		t.Errorf("check: %v", err)
	}
	if dropped, err := operator.DropCopies(ctx, true); err != nil || len(dropped) > 1 {
		t.Errorf("the ledger itself would be dropped: %+v, %v", dropped, err)
	}
	if undo {
		if err := operator.Open(ctx, operatorName(all[0]), 1); err != nil {
			t.Fatal(err)
		}
	} else {
		moved, err := operator.Move(ctx, operatorName(standby), 1)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%+v", moved)
		if _, err := operator.Move(ctx, operatorName(standby), 1); err == nil ||
			!strings.Contains(err.Error(), "already") {
			t.Errorf("a third move: %v", err)
		}
		if got := places(t, operator); !strings.Contains(got, "tusk_0_of_2_fenced fenced") {
			t.Errorf("the copy of the other ledger is open: %s", got)
		}
	}
	eventually(t, "it is used", func() bool {
		_, err := s.Enqueue(ctx, []store.NewTask{keyedInto(s, 1, nil)})
		return err == nil
	})
	finish(t, s, store.Outcome{Task: &running[0], State: store.Completed, Attempt: 1})
	if left := len(claim(t, s, w, 10)); left != 1 {
		t.Errorf("claimed %d tasks, want 1", left)
	}
	if _, err := operator.DropCopies(ctx, false); err != nil {
		t.Fatal(err)
	}
	if got := places(t, operator); got != "tusk_0_of_2 open, tusk_1_of_2 open" {
		t.Errorf("left: %s", got)
	}
}

// A move seems to hang, and somebody repeats it, which opens the ledger on the standby. When the first one fails in the
// end, it does not open the ledger where it was as well.
func TestAMoveThatSomebodyElseHasFinishedOpensNothing(t *testing.T) {
	all, dsns := servers(t, 1)
	if err := divide(2, dsns[0]); err != nil {
		t.Fatal(err)
	}
	hangs := `create function public.pg_promote() returns boolean language plpgsql as $$
		begin
		  perform pg_catalog.pg_promote();
		  while not exists (select from pg_namespace where nspname = 'tusk_1_of_2') loop
		    perform pg_sleep(0.2);
		  end loop;
		  return false;
		end $$`
	if err := all[0].Exec(t.Context(), hangs); err != nil {
		t.Fatal(err)
	}
	standby, err := all[0].Standby()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(standby.Stop)
	first := open(t, all[0].DSN, standby.DSN+"&search_path=public,pg_catalog")
	over := make(chan error, 1)
	go func() {
		_, err := first.Move(t.Context(), operatorName(standby), 1)
		over <- err
	}()
	eventually(t, "the first move hangs", func() bool { return sleeps(t, standby, "not pg_is_in_recovery()") })
	operator := open(t, all[0].DSN, standby.DSN)
	if _, err := operator.Move(t.Context(), operatorName(standby), 1); err != nil {
		t.Fatal(err)
	}
	if err := <-over; err == nil || !strings.Contains(err.Error(), "another command") {
		t.Errorf("the first move: %v", err)
	}
	got := places(t, operator)
	if strings.Count(got, "tusk_1_of_2 open") != 1 || !strings.Contains(got, "tusk_1_of_2_fenced fenced") {
		t.Errorf("%s", got)
	}
	if warnings, err := operator.Check(t.Context()); err != nil {
		t.Errorf("check: %q, %v", warnings, err)
	}
}

// pg_dump and the process that moves a ledger are killed halfway. The half copy is not taken for the ledger.
func TestAHalfCopyIsNotTakenForTheLedger(t *testing.T) {
	_, dsns := servers(t, 2)
	if err := divide(2, dsns[0]); err != nil {
		t.Fatal(err)
	}
	s := open(t, dsns...)
	for range 20 {
		add(t, s, keyedInto(s, 1, nil))
	}
	real, err := exec.LookPath("pg_dump")
	if err != nil {
		found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/pg_dump")
		if len(found) == 0 {
			t.Fatal("no pg_dump: it comes with the server")
		}
		real = found[len(found)-1]
	}
	dir := t.TempDir()
	script := fmt.Sprintf("#!/bin/sh\n%s \"$@\" | sed '/^COPY /,$d'\nkill -9 $PPID\n", real)
	if err := os.WriteFile(filepath.Join(dir, "pg_dump"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	killed := startMove(t, s.ServerName(1), dsns, "PATH="+dir+":"+filepath.Dir(real)+":"+os.Getenv("PATH"))
	if err := killed.Wait(); err == nil || killed.ProcessState.ExitCode() != -1 {
		t.Fatalf("it was not killed: %v", err)
	}
	operator := open(t, dsns...)
	eventually(t, "psql has ended", func() bool {
		busy, err := ask(dsns[1], "select application_name from pg_stat_activity where application_name = 'psql'")
		return err == nil && len(busy) == 0
	})
	if got := places(t, operator); got != "tusk_0_of_2 open, tusk_1_of_2 away, tusk_1_of_2_fenced fenced" {
		t.Errorf("%s", got)
	}
	if _, err := operator.Move(t.Context(), operator.ServerName(1), 1); err != nil {
		t.Fatal(err)
	}
	if n, err := ledgers.CountIn(t.Context(), operator, 1, store.Filter{Limit: 100}); err != nil || n != 20 {
		t.Errorf("%d tasks of 20, %v", n, err)
	}
}

// A standby that dies during a move leaves no ledger fenced.
func TestAStandbyThatDiesDuringAMoveLeavesTheLedgers(t *testing.T) {
	all, dsns := servers(t, 1)
	if err := divide(2, dsns[0]); err != nil {
		t.Fatal(err)
	}
	hangs := "create function public.pg_promote() returns boolean language sql as 'select pg_sleep(60) is null'"
	if err := all[0].Exec(t.Context(), hangs); err != nil {
		t.Fatal(err)
	}
	standby, err := all[0].Standby()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(standby.Stop)
	operator := open(t, all[0].DSN, standby.DSN+"&search_path=public,pg_catalog")
	moved := make(chan error, 1)
	go func() {
		_, err := operator.Move(t.Context(), operatorName(standby), 1)
		moved <- err
	}()
	eventually(t, "the standby is about to be promoted", func() bool { return sleeps(t, standby, "true") })
	if err := standby.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := <-moved; err == nil {
		t.Error("it moved")
	}
	if got := places(t, operator); got != "tusk_0_of_2 open, tusk_1_of_2 open" {
		t.Errorf("%s", got)
	}
}

// A standby cannot be cut off, because its settings do not change. The ledgers go on where they were.
func TestAStandbyThatCannotBeCutOffIsNotPromoted(t *testing.T) {
	all, dsns := servers(t, 1)
	if err := divide(2, dsns[0]); err != nil {
		t.Fatal(err)
	}
	text := "create function public.pg_reload_conf() returns boolean language sql as 'select true'"
	if err := all[0].Exec(t.Context(), text); err != nil {
		t.Fatal(err)
	}
	standby, err := all[0].Standby()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(standby.Stop)
	operator := open(t, all[0].DSN, standby.DSN+"&search_path=public,pg_catalog")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, err = operator.Move(ctx, operatorName(standby), 1)
	if err == nil || ctx.Err() != nil || !strings.Contains(err.Error(), "cannot be cut off") {
		t.Errorf("%v", err)
	}
	if got := places(t, operator); got != "tusk_0_of_2 open, tusk_1_of_2 open" {
		t.Errorf("%s", got)
	}
}

// sleeps reports whether a statement sleeps on a server of which something is true.
func sleeps(t *testing.T, on *pgtest.Server, and string) bool {
	return on.Exec(t.Context(), "do $$ begin if not exists (select from pg_stat_activity where wait_event = 'PgSleep') "+
		"or not ("+and+") then raise 'no'; end if; end $$") == nil
}
