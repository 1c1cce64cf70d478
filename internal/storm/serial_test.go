//go:build unix

package storm

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/mysql/mysqltest"
	"github.com/tuskqueue/tusk/store/postgres/pgtest"
)

const (
	serialTenants = 4
	serialTasks   = 60 // of each tenant
	serialTakes   = 25 * time.Millisecond
)

// step is a task of a serial tenant. Each must begin after the previous one has ended.
type step struct{ N int }

func (step) Kind() string { return "step" }

// playSerialWorker works until it is killed, and records when each step begins and ends.
func playSerialWorker(p part) error {
	ctx := context.Background()
	s, closeStore, err := engines[p.Engine].open(ctx, p.DSN)
	if err != nil {
		return err
	}
	defer closeStore()
	file, err := os.OpenFile(p.History, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	client, err := tusk.NewClient(s, &tusk.ClientConfig{Logger: quiet})
	if err != nil {
		return err
	}
	mux := tusk.NewMux()
	tusk.Handle(mux, func(_ context.Context, t *tusk.Task[step]) error {
		if _, err := fmt.Fprintln(file, "begin", time.Now().UnixNano(), t.Tenant, t.Args.N); err != nil {
			return err
		}
		time.Sleep(serialTakes)
		_, err := fmt.Fprintln(file, "end", time.Now().UnixNano(), t.Tenant, t.Args.N)
		return err
	})
	worker, err := tusk.NewWorker(client, mux, &tusk.WorkerConfig{Queues: []string{queueSerial}, Concurrency: 8,
		Lease: time.Second, Poll: 100 * time.Millisecond})
	if err != nil {
		return err
	}
	return worker.Run(ctx)
}

// TestASerialTenantUnderKilledWorkersNeverOverlapsAndNeverSkips kills three workers, and their replacements, while
// they run the steps of serial tenants.
func TestASerialTenantUnderKilledWorkersNeverOverlapsAndNeverSkips(t *testing.T) {
	const kills = 3
	for name, dsn := range map[string]func(t *testing.T) string{
		"sqlite":   func(t *testing.T) string { return filepath.Join(t.TempDir(), "tusk.db") },
		"postgres": func(t *testing.T) string { return pgtest.DSN(t) },
		"mysql":    func(t *testing.T) string { return mysqltest.Start(t).Database(t) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			at := &part{Engine: name, DSN: dsn(t)}
			if err := prepare(t.Context(), name, at.DSN); err != nil {
				t.Fatal(err)
			}
			client := serialClient(t, at)
			f := &fleet{t: t, dir: t.TempDir()}
			t.Cleanup(f.killAll)
			died := map[string]time.Time{} // by the log file of the process
			for range 3 {
				f.start(role{name: "serial", part: at})
			}
			for range kills {
				left := serialLeft(t, client)
				f.await(time.Minute, func() bool { return serialLeft(t, client) < left-3 })
				var p *process
				f.await(time.Minute, func() bool { p = f.atWork(); return p != nil })
				f.kill(p)
				died[p.log] = time.Now()
				f.start(role{name: "serial", part: at})
			}
			if !f.await(2*time.Minute, func() bool { return serialLeft(t, client) == 0 }) {
				t.Fatalf("%d steps are left: %s", serialLeft(t, client), f.living[0].tail())
			}
			f.killAll()
			checkSerial(t, f.dir, died)
		})
	}
}

// atWork returns a worker that is running a step, or nil if there is none.
func (f *fleet) atWork() *process {
	for _, p := range f.living {
		text, _ := os.ReadFile(strings.TrimSuffix(p.log, ".log") + ".history")
		if strings.Count(string(text), "begin") > strings.Count(string(text), "end") {
			return p
		}
	}
	return nil
}

// serialClient limits the queue and fills it.
func serialClient(t *testing.T, at *part) *tusk.Client {
	t.Helper()
	s, closeStore, err := engines[at.Engine].open(t.Context(), at.DSN)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = closeStore() })
	client, err := tusk.NewClient(s, &tusk.ClientConfig{Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	if err := client.SetLimits(t.Context(), queueSerial, tusk.Limits{PerTenant: 1, BlockOnRetry: true}); err != nil {
		t.Fatal(err)
	}
	var tasks []tusk.NewTask
	for n := range serialTasks {
		for tenant := range serialTenants {
			tasks = append(tasks, tusk.NewTask{Args: step{n},
				Options: &tusk.Options{Queue: queueSerial, Tenant: fmt.Sprint("t", tenant)}})
		}
	}
	if _, err := client.EnqueueMany(t.Context(), tasks); err != nil {
		t.Fatal(err)
	}
	return client
}

// serialLeft returns how many steps have not completed.
func serialLeft(t *testing.T, client *tusk.Client) int {
	t.Helper()
	done, err := client.List(context.Background(),
		tusk.Filter{Queues: []string{queueSerial}, States: []tusk.State{tusk.StateCompleted}, Limit: store.MaxPage})
	if err != nil {
		t.Fatal(err)
	}
	return serialTasks*serialTenants - len(done)
}

// stint is one run of a step, until the end of its process if that was killed.
type stint struct {
	tenant     string
	n          int
	begin, end int64
}

func checkSerial(t *testing.T, dir string, died map[string]time.Time) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.history"))
	if err != nil {
		t.Fatal(err)
	}
	runs, cut := map[string][]stint{}, 0
	for _, file := range files {
		open := map[string]stint{}
		for _, line := range strings.Split(strings.TrimSpace(read(t, file)), "\n") {
			var what string
			var s stint
			var at int64
			if _, err := fmt.Sscan(line, &what, &at, &s.tenant, &s.n); err != nil {
				continue // the line was cut off when its process died
			}
			if what == "begin" {
				s.begin = at
				open[s.tenant] = s
				continue
			}
			s = open[s.tenant]
			s.end = at
			delete(open, s.tenant)
			runs[s.tenant] = append(runs[s.tenant], s)
		}
		for _, s := range open {
			s.end = died[strings.TrimSuffix(file, ".history")+".log"].UnixNano()
			runs[s.tenant] = append(runs[s.tenant], s)
			cut++
		}
	}
	if len(runs) != serialTenants || cut == 0 {
		t.Errorf("%d tenants ran, %d runs were cut short", len(runs), cut)
	}
	for tenant, all := range runs {
		slices.SortFunc(all, func(a, b stint) int { return cmp.Compare(a.begin, b.begin) })
		next := 0
		for i, s := range all {
			if i > 0 && s.begin < all[i-1].end {
				t.Errorf("tenant %s: step %d began %v before step %d had ended", tenant, s.n, time.Duration(all[i-1].end-s.begin),
					all[i-1].n)
			}
			if s.n != next && s.n != next-1 {
				t.Errorf("tenant %s: step %d began when %d was next", tenant, s.n, next)
			}
			next = s.n + 1
		}
		if next != serialTasks {
			t.Errorf("tenant %s: the last step is %d", tenant, next-1)
		}
	}
	t.Logf("%d runs were cut short by a kill", cut)
}
