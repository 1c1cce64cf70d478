//go:build unix

package storm

import (
	"context"
	"database/sql"
	"encoding/json"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/sqlite/sqlitefile"
)

const (
	workers   = 3
	enqueuers = 2
	lease     = 2 * time.Second
)

// TestKilledProcessesLoseNothing kills workers, servers and enqueuers with SIGKILL, 200 in a row, while they work on
// one SQLite file. Some are also stopped for longer than their lease and then continued. The last one is stopped
// until its tasks were rescued, and then reports how they ended.
func TestKilledProcessesLoseNothing(t *testing.T) {
	kills := 200
	if testing.Short() {
		kills = 20
	}
	dir := t.TempDir()
	database := filepath.Join(dir, "tusk.db")
	client := openClient(t, database)
	f := &fleet{t: t, dir: dir}
	work := role{name: "tusk", args: []string{"work", "--db", "sqlite:" + database, "--log-level", "warn",
		"--queue", queue,
		"--concurrency", "8", "--lease", lease.String(), "--poll", "200ms",
		"--exec", kindSlow + "=sh -c 'sleep 1; tee -a effects'", "--exec", kindEffect + "=tee -a effects", "--exec",
		kindFlaky + `=sh -c 'tee -a effects; test "$TUSK_TASK_ATTEMPT" -gt 1 || exit 75'`}}
	serve := role{name: "tusk", args: []string{"serve", "--db", "sqlite:" + database, "--log-level", "warn", "--addr",
		"127.0.0.1:0"}}
	enqueuer := role{name: "enqueuer", args: []string{database, filepath.Join(dir, "acks")}}
	t.Cleanup(f.killAll)
	for range workers {
		f.start(work)
	}
	for range enqueuers {
		f.start(enqueuer)
	}
	f.start(serve)

	began := time.Now()
	for n := range kills {
		time.Sleep(150*time.Millisecond + rand.N(300*time.Millisecond))
		p := f.victim()
		if n%20 == 10 {
			f.freeze(p)
		}
		f.kill(p)
		f.start(p.role)
	}
	t.Logf("%d kills in %v", kills, time.Since(began).Round(time.Second))
	f.killAll()

	f.start(serve)
	f.start(work)
	frozen := f.start(work)
	f.outlive(frozen, client)
	awaitEmpty(t, f, client)
	f.killAll()
	newCount(t, dir, client).check()
	checkFile(t, database)
}

// freeze stops a process other than but for longer than its lease.
func (f *fleet) freeze(but *process) {
	p := f.victim()
	if p == but {
		return
	}
	_ = p.cmd.Process.Signal(syscall.SIGSTOP)
	time.Sleep(lease + lease/2)
	_ = p.cmd.Process.Signal(syscall.SIGCONT)
}

// outlive stops a worker until it no longer holds any of its tasks, and then continues it. If it was stopped in the
// middle of a write, nobody can rescue anything; outlive then tries again.
func (f *fleet) outlive(p *process, client *tusk.Client) {
	f.t.Helper()
	for range 5 {
		for range 32 { // slow tasks for both workers
			id := tusk.NewID()
			args := tusk.RawArgs{Name: kindSlow, JSON: json.RawMessage(`"` + id.String() + `"`)}
			if _, err := client.Enqueue(f.t.Context(), args, &tusk.Options{Queue: queue, ID: id, Priority: -1}); err != nil {
				f.t.Fatal(err)
			}
		}
		var worker tusk.ID
		f.await(time.Minute, func() (held bool) { worker, held = f.holding(p, client); return held })
		_ = p.cmd.Process.Signal(syscall.SIGSTOP)
		rescued := f.await(10*lease, func() bool { return heldBy(f.t, client, worker) == 0 })
		_ = p.cmd.Process.Signal(syscall.SIGCONT)
		if rescued && f.await(5*time.Second, func() bool { return strings.Contains(p.said(), "finish: refused") }) {
			return
		}
	}
	f.t.Log("no late outcome was reported")
}

// holding reports whether a process holds slow tasks, and the id of its worker.
func (f *fleet) holding(p *process, client *tusk.Client) (worker tusk.ID, held bool) {
	workers, err := client.Workers(f.t.Context())
	if err != nil {
		f.t.Fatal(err)
	}
	for _, w := range workers {
		if w.PID == p.cmd.Process.Pid {
			return w.ID, heldBy(f.t, client, w.ID) > 0
		}
	}
	return worker, false
}

func heldBy(t *testing.T, client *tusk.Client, worker tusk.ID) (n int) {
	t.Helper()
	running, err := client.List(t.Context(),
		tusk.Filter{Kinds: []string{kindSlow}, States: []tusk.State{tusk.StateRunning}, Limit: store.MaxPage})
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range running {
		if task.Worker == worker {
			n++
		}
	}
	return n
}

// await reports whether a condition became true in time.
func (f *fleet) await(most time.Duration, holds func() bool) bool {
	for deadline := time.Now().Add(most); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if holds() {
			return true
		}
	}
	return false
}

func openClient(t *testing.T, database string) *tusk.Client {
	t.Helper()
	s, err := sqlitefile.Open(t.Context(), database)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	if _, err := s.Migrate(t.Context(), -1); err != nil {
		t.Fatal(err)
	}
	client, err := tusk.NewClient(s, &tusk.ClientConfig{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// awaitEmpty waits until everything has ended. A task is in quarantine if three workers in a row were killed while
// they held it; awaitEmpty frees it.
func awaitEmpty(t *testing.T, f *fleet, client *tusk.Client) {
	t.Helper()
	began, freed := time.Now(), 0
	for {
		left, err := unfinished(t.Context(), client)
		if err != nil {
			t.Fatal(err)
		}
		if left == 0 {
			quarantined, err := client.List(t.Context(),
				tusk.Filter{States: []tusk.State{tusk.StateDiscarded}, Limit: store.MaxPage})
			if err != nil {
				t.Fatal(err)
			}
			for _, task := range quarantined {
				if !strings.HasPrefix(task.Reason, "quarantined") {
					t.Fatalf("task %s was discarded: %s", task.ID, task.Reason)
				}
				if err := client.Retry(t.Context(), task.ID); err != nil {
					t.Fatal(err)
				}
				freed++
			}
			if len(quarantined) == 0 {
				t.Logf("all ended %v after the last kill, %d tasks let out of quarantine",
					time.Since(began).Round(time.Millisecond), freed)
				return
			}
		}
		if time.Since(began) > 2*time.Minute {
			t.Fatalf("%d tasks are unfinished: %s", left, f.living[0].tail())
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// count is what there is after a storm.
type count struct {
	t       *testing.T
	client  *tusk.Client
	acked   map[string]bool
	effects map[string]int
	refused int // outcomes that came after the lease had ended, from the workers' logs
}

func newCount(t *testing.T, dir string, client *tusk.Client) *count {
	t.Helper()
	c := &count{t: t, client: client, acked: map[string]bool{}, effects: map[string]int{}}
	for _, id := range strings.Fields(read(t, filepath.Join(dir, "acks"))) {
		c.acked[id] = true
	}
	for _, id := range strings.Split(read(t, filepath.Join(dir, "effects")), `"`) {
		if id != "" {
			c.effects[id]++
		}
	}
	logs, err := filepath.Glob(filepath.Join(dir, "*.log"))
	if err != nil {
		t.Fatal(err)
	}
	for _, log := range logs {
		c.refused += strings.Count(read(t, log), "finish: refused")
	}
	return c
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func (c *count) check() {
	c.t.Helper()
	stored, rescued, again := 0, 0, 0
	missing := len(c.acked)
	for f := (tusk.Filter{Queues: []string{queue}, Detail: true, Limit: store.MaxPage}); ; {
		page, err := c.client.List(context.Background(), f)
		if err != nil {
			c.t.Fatal(err)
		}
		for i := range page {
			stored++
			if c.acked[page[i].ID.String()] {
				missing--
			}
			rescued += c.checkTask(&page[i])
			if c.effects[page[i].ID.String()] > 1 {
				again++
			}
		}
		if len(page) < f.Limit {
			break
		}
		f.Before = page[len(page)-1].ID
	}
	c.t.Logf(
		"%d tasks acknowledged, %d stored, %d attempts rescued, %d effects seen more than once, %d late outcomes refused",
		len(c.acked), stored, rescued, again, c.refused)
	if missing != 0 {
		c.t.Errorf("%d acknowledged tasks are lost", missing)
	}
	if finishes := c.finishes(); finishes != int64(stored) {
		c.t.Errorf("%d completions were accepted for %d tasks", finishes, stored)
	}
	if rescued == 0 || len(c.acked) == 0 {
		c.t.Error("the storm was too mild: nothing was rescued")
	}
}

// checkTask checks the end of one task and counts the rescues in its history.
func (c *count) checkTask(t *tusk.TaskInfo) (rescued int) {
	completed := 0
	for _, a := range t.Detail.Attempts {
		if a.Outcome == tusk.StateCompleted {
			completed++
		}
		if a.Error == "worker "+a.Worker.String()+" died" {
			rescued++
		}
	}
	id := t.ID.String()
	switch {
	case t.State != tusk.StateCompleted || completed != 1:
		c.t.Errorf("task %s is %v after %d completed attempts", id, t.State, completed)
	case t.Kind == kindEcho && string(t.Detail.Output) != `"`+id+`"`:
		c.t.Errorf("task %s has the output %s", id, t.Detail.Output)
	case t.Kind != kindEcho && c.effects[id] == 0:
		c.t.Errorf("task %s of kind %s is completed without an effect", id, t.Kind)
	}
	return rescued
}

// finishes counts the completions that the database has accepted.
func (c *count) finishes() (n int64) {
	stats, err := c.client.Stats(context.Background(), store.StatsFilter{Bucket: time.Hour, Queue: queue,
		From: time.Now().Add(-24 * time.Hour), Until: time.Now().Add(24 * time.Hour)})
	if err != nil {
		c.t.Fatal(err)
	}
	for _, s := range stats {
		n += s.Completed
	}
	return n
}

func checkFile(t *testing.T, database string) {
	t.Helper()
	db, err := sql.Open("sqlite", database)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var verdict string
	if err := db.QueryRow("pragma integrity_check").Scan(&verdict); err != nil || verdict != "ok" {
		t.Errorf("integrity_check: %s %v", verdict, err)
	}
}
