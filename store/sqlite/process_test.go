package sqlite_test

import (
	"bufio"
	"context"
	"database/sql"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/sqlite/sqlitefile"
)

// parts are what a test does in a process of its own, on a file. The result is the process's exit status.
var parts = map[string]func(path string) int{
	"migrate": part(func(ctx context.Context, s testStore) error { return nil }),
	"consume": part(consume),
	"work":    part(workForEver),
}

type testStore interface {
	store.Store
	store.Migrator
}

func part(fn func(context.Context, testStore) error) func(string) int {
	return func(path string) int {
		ctx := context.Background()
		s, err := sqlitefile.Open(ctx, path)
		if err == nil {
			defer s.Close()
			_, err = s.Migrate(ctx, -1)
		}
		if err == nil {
			err = fn(ctx, s)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return 0
	}
}

// start runs a part in a process of its own and returns what it prints.
func start(t *testing.T, name, path string) (*exec.Cmd, io.Reader) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "TUSK_TEST_PART="+name, "TUSK_TEST_FILE="+path)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd, out
}

// consume claims and finishes until nothing is left, and prints what it got.
func consume(ctx context.Context, s testStore) error {
	worker := newID()
	if _, err := s.Extend(ctx, store.Beat{Worker: store.Worker{ID: worker}, TTL: time.Minute}); err != nil {
		return err
	}
	for empty := 0; empty < 3; {
		tasks, err := s.Claim(ctx, store.ClaimRequest{Worker: worker, Queues: []string{"default"}, Limit: 7,
			Token: store.NewToken()})
		if err != nil {
			return err
		}
		if len(tasks) == 0 {
			empty++
			continue
		}
		outcomes := make([]store.Outcome, len(tasks))
		for i := range tasks {
			fmt.Println(tasks[i].ID)
			outcomes[i] = store.Outcome{Task: &tasks[i], State: store.Completed, Attempt: tasks[i].Attempt}
		}
		if lost, err := s.Finish(ctx, outcomes); err != nil || len(lost) > 0 {
			return fmt.Errorf("lost %d: %w", len(lost), err)
		}
	}
	return nil
}

func TestProcessesOnOneFileClaimNothingTwice(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tusk.db")
	s := open(t, path)
	if _, err := s.Migrate(t.Context(), -1); err != nil {
		t.Fatal(err)
	}
	const n = 3000
	if _, err := s.Enqueue(t.Context(), newTasks(n)); err != nil {
		t.Fatal(err)
	}
	var cmds []*exec.Cmd
	outs := make(chan string)
	const processes = 3
	for range processes {
		cmd, out := start(t, "consume", path)
		cmds = append(cmds, cmd)
		go func() {
			text, _ := io.ReadAll(out)
			outs <- string(text)
		}()
	}
	seen := map[string]bool{}
	took := 0
	for range processes {
		ids := strings.Fields(<-outs)
		if len(ids) > 0 {
			took++
		}
		for _, id := range ids {
			if seen[id] {
				t.Errorf("%s was claimed twice", id)
			}
			seen[id] = true
		}
	}
	for _, cmd := range cmds {
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	}
	if len(seen) != n {
		t.Errorf("%d of %d were claimed", len(seen), n)
	}
	if took < 2 {
		t.Logf("one process took all: this run says little")
	}
}

func TestProcessesThatMigrateAtOnceAllSucceed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tusk.db")
	var cmds []*exec.Cmd
	for range 4 {
		cmd, _ := start(t, "migrate", path)
		cmds = append(cmds, cmd)
	}
	for _, cmd := range cmds {
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	}
}

// workForEver enqueues, claims and finishes, and prints what was acknowledged.
func workForEver(ctx context.Context, s testStore) error {
	worker := newID()
	if _, err := s.Extend(ctx, store.Beat{Worker: store.Worker{ID: worker}, TTL: time.Minute}); err != nil {
		return err
	}
	for {
		tasks := newTasks(5)
		if _, err := s.Enqueue(ctx, tasks); err != nil {
			return err
		}
		for _, task := range tasks {
			fmt.Println("+", task.ID)
		}
		claimed, err := s.Claim(ctx, store.ClaimRequest{Worker: worker, Queues: []string{"default"}, Limit: 3,
			Token: store.NewToken()})
		if err != nil {
			return err
		}
		outcomes := make([]store.Outcome, len(claimed))
		for i := range claimed {
			outcomes[i] = store.Outcome{Task: &claimed[i], State: store.Completed, Attempt: claimed[i].Attempt}
		}
		if _, err := s.Finish(ctx, outcomes); err != nil {
			return err
		}
		for _, task := range claimed {
			fmt.Println("-", task.ID)
		}
	}
}

func TestKilledInTheMiddleLosesNothingAcknowledged(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tusk.db")
	added, ended := map[string]bool{}, map[string]bool{}
	for round := range 5 {
		cmd, out := start(t, "work", path)
		lines := bufio.NewScanner(out)
		for n := 0; lines.Scan(); n++ {
			switch what, id, ok := strings.Cut(lines.Text(), " "); {
			case !ok || len(id) != 36: // cut off by the kill
			case what == "+":
				added[id] = true
			default:
				ended[id] = true
			}
			if n == 150+37*round {
				cmd.Process.Kill()
			}
		}
		cmd.Wait() // killed
	}
	db, err := sql.Open("sqlite", "file:"+path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var verdict string
	if err := db.QueryRow("pragma integrity_check").Scan(&verdict); err != nil || verdict != "ok" {
		t.Fatal(verdict, err)
	}
	s := open(t, path)
	for id := range added {
		want, err := store.ParseID(id)
		if err != nil {
			t.Fatal(err)
		}
		found, err := s.List(t.Context(), store.Filter{IDs: []store.ID{want}})
		if err != nil || len(found) != 1 {
			t.Fatalf("%s: found %d, %v", id, len(found), err)
		}
		if ended[id] && found[0].State != store.Completed {
			t.Errorf("%s was finished and is %v", id, found[0].State)
		}
	}
	if len(ended) < 100 {
		t.Errorf("only %d tasks ended", len(ended))
	}
	countsAreRight(t, s, db)
}

// countsAreRight compares the counters with the tasks.
func countsAreRight(t *testing.T, s store.Store, db *sql.DB) {
	t.Helper()
	counts, err := s.Count(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	got := map[store.State]int64{}
	for _, c := range counts {
		got[c.State] += c.Tasks
	}
	for state, where := range map[store.State]string{
		store.Available: "t.state = 3 and t.pos > l.cursor",
		store.Running:   "t.state = 3 and t.pos <= l.cursor",
		store.Scheduled: "t.state = 1",
		store.Retryable: "t.state = 5",
	} {
		var want int64
		if err := db.QueryRow("select count(*) from tusk_task t left join tusk_lane l on l.id = t.lane where " + where).Scan(
			&want); err != nil {
			t.Fatal(err)
		}
		if got[state] != want {
			t.Errorf("%v: counted %d, there are %d", state, got[state], want)
		}
	}
	var open, running int64
	if err := db.QueryRow("select coalesce(sum(open), 0), (select sum(running) from tusk_lane) from tusk_lease").Scan(
		&open, &running); err != nil || open != running {
		t.Errorf("leases hold %d, lanes count %d running: %v", open, running, err)
	}
}

func TestAnotherProcessWakesListeners(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tusk.db")
	here, there := open(t, path), open(t, path) // two pools, as two processes have
	if _, err := here.Migrate(t.Context(), -1); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	woken := make(chan struct{}, 1000)
	ended := make(chan error)
	go func() {
		ended <- here.Listen(ctx, func(store.Hint) { woken <- struct{}{} })
	}()
	for heard := false; !heard; {
		if _, err := there.Enqueue(t.Context(), newTasks(1)); err != nil {
			t.Fatal(err)
		}
		select {
		case <-woken:
			heard = true
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			t.Fatal("never woken")
		}
	}
	cancel()
	if err := <-ended; err != context.Canceled {
		t.Error(err)
	}
}
