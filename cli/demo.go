package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/tuskqueue/tusk"
)

const (
	demoWorkers   = 3
	demoLease     = 3 * time.Second // short, so that the rescue can be watched
	demoPatience  = 90 * time.Second
	demoTickEvery = 2 * time.Second
	demoTicking   = 7 * time.Second // how long the schedule exists
)

func newDemoCommand(app *App) *cobra.Command {
	var keep bool
	cmd := &cobra.Command{
		Use:   "demo [DIR]",
		Short: "Show tasks that run, fail, are retried and rescued, and account for all",
		Long: `Every file under DIR (default: the working directory) becomes a task that computes its
SHA-256. In addition, some tasks fail and are retried, some take long, some are scheduled
a few seconds ahead, some give up on purpose, and a schedule adds one every 2 s. Three
worker processes run them. One is killed with SIGKILL while it runs tasks, and the others
take over its tasks when its lease is over.

The demo ends by itself within about 20 s, with exit status 0 only if every task is
accounted for. It uses its own SQLite file and deletes it at the end, unless the flag
--db names a database.`,
		Args: between(0, 1, "DIR"),
		RunE: func(cmd *cobra.Command, args []string) error {
			dir := "."
			if len(args) > 0 {
				dir = args[0]
			}
			return app.demo(cmd.Context(), dir, keep)
		},
	}
	cmd.Flags().BoolVar(&keep, "keep", false, "keep the SQLite file, to inspect it afterwards")
	return cmd
}

// demo is one run of the demonstration.
type demo struct {
	app    *App
	client *tusk.Client
	queue  string // only for this run
	begun  time.Time
	acked  map[tusk.ID]bool // acknowledged tasks
	crew   demoCrew
	screen demoScreen
}

func (app *App) demo(ctx context.Context, dir string, keep bool) error {
	files, notes, err := demoFiles(dir)
	if err != nil {
		return err
	}
	folder, err := app.demoDatabase()
	if err != nil {
		return err
	}
	if folder != "" && !keep {
		defer os.RemoveAll(folder)
	}
	client, closeStore, err := app.Client(ctx, creating)
	if err != nil {
		return err
	}
	defer closeStore()
	id := tusk.NewID().String()
	d := &demo{app: app, client: client, queue: "demo-" + id[len(id)-8:], acked: map[tusk.ID]bool{}}
	d.screen = demoScreen{app: app, demo: d}
	for _, line := range notes {
		app.note("%s", line)
	}
	report, err := d.run(ctx, files)
	if err != nil {
		return err
	}
	if err := printOne(app, *report); err != nil {
		return err
	}
	app.tryNext(folder != "" && !keep)
	return report.verdict()
}

// demoDatabase creates a folder for the demo's own file, unless --db was given.
func (app *App) demoDatabase() (folder string, err error) {
	if app.config.source["log_level"] == sourceDefault {
		app.Log = slog.New(slog.DiscardHandler) // the demo prints its own messages
	}
	app.flags.autoMigrate = true
	if app.config.source["db"] == sourceFlag {
		return "", nil
	}
	if folder, err = os.MkdirTemp("", "tusk-demo-"); err != nil {
		return "", fmt.Errorf("demo: %w", err)
	}
	app.flags.db = "sqlite:" + filepath.Join(folder, "tusk.db")
	return folder, nil
}

func (d *demo) run(ctx context.Context, files []demoArgs) (*demoReport, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, demoPatience,
		fmt.Errorf("the demo has not ended within %v", demoPatience))
	defer cancel()
	d.begun = time.Now()
	stopLeading := d.lead(ctx)
	defer stopLeading()
	if err := d.crew.start(ctx, d); err != nil {
		return nil, err
	}
	defer d.crew.stop()
	stopShowing := d.screen.start(ctx)
	defer stopShowing()
	err := d.story(ctx, files)
	stopShowing()
	if err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return nil, err
	}
	return d.account(ctx)
}

// lead does the leader's chores in this process, so that the tasks of a killed worker are rescued soon, whichever
// worker it is.
func (d *demo) lead(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := d.client.Lead(ctx, nil); err != nil {
			d.app.Log.Warn("demo: lead", "error", err)
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

// story runs the demonstration, step by step.
func (d *demo) story(ctx context.Context, files []demoArgs) error {
	if err := d.client.PutSchedule(ctx, tusk.Schedule{Name: d.queue, Spec: "@every " + demoTickEvery.String(),
		Args: demoArgs{Name: demoTick}, Options: &tusk.Options{Queue: d.queue}}); err != nil {
		return err
	}
	defer d.removeSchedule()
	tasks := demoTasks(files)
	began := time.Now()
	if err := d.enqueue(ctx, tasks); err != nil {
		return err
	}
	d.screen.say("enqueued %d tasks in %v", len(tasks), time.Since(began).Round(time.Millisecond))
	if err := d.killOne(ctx, int64(len(tasks))); err != nil {
		return err
	}
	for d.age() < demoTicking && sleep(ctx, 50*time.Millisecond) {
	}
	d.removeSchedule()
	return d.awaitEnd(ctx)
}

func (d *demo) age() time.Duration { return time.Since(d.begun) }

func (d *demo) enqueue(ctx context.Context, tasks []tusk.NewTask) error {
	const batch = 500
	for len(tasks) > 0 {
		n := min(batch, len(tasks))
		for i := range tasks[:n] {
			tasks[i].Options.Queue = d.queue
		}
		results, err := d.client.EnqueueMany(ctx, tasks[:n])
		if err != nil {
			return err
		}
		for _, r := range results {
			d.acked[r.ID] = true
		}
		tasks = tasks[n:]
	}
	return nil
}

func (d *demo) removeSchedule() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := d.client.RemoveSchedule(ctx, d.queue); err != nil && !errors.Is(err, tusk.ErrNotFound) {
		d.app.Log.Warn("demo", "error", err)
	}
}

// killOne kills a worker after a third of the tasks has finished, or after two seconds.
func (d *demo) killOne(ctx context.Context, tasks int64) error {
	began := time.Now()
	for time.Since(began) < 2*time.Second && sleep(ctx, 20*time.Millisecond) {
		if left, err := countUnfinished(ctx, d.client.Store(), d.queue); err == nil && left < tasks*2/3 {
			break
		}
	}
	for {
		pid, held, err := d.crew.kill(ctx, d)
		if err != nil {
			return err
		}
		if held > 0 {
			d.screen.say("killed worker %d with SIGKILL while it ran %d tasks; they are rescued when its lease of %v is over",
				pid, held, demoLease)
			return nil
		}
		if !sleep(ctx, 20*time.Millisecond) {
			return context.Cause(ctx)
		}
	}
}

func (d *demo) awaitEnd(ctx context.Context) error {
	for {
		left, err := countUnfinished(ctx, d.client.Store(), d.queue)
		if err == nil && left == 0 {
			return nil
		}
		if !sleep(ctx, 100*time.Millisecond) {
			return errors.Join(context.Cause(ctx), err)
		}
	}
}

// sleep waits, and reports whether the context is still alive afterwards.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

func (app *App) tryNext(gone bool) {
	app.note("")
	app.note("try next:")
	if gone {
		app.note("  tusk demo --keep       the same, and the database stays for you to look into")
	} else {
		app.note("  tusk tasks list --db %s", hideDSN(app.flags.db))
		app.note("  tusk errors --db %s", hideDSN(app.flags.db))
		app.note("  tusk stats --db %s", hideDSN(app.flags.db))
		app.note("  tusk dev --db %s    the same on pages", hideDSN(app.flags.db))
	}
	app.note("  tusk dev               a worker on a database of your own; it says what to try")
	app.note("  tusk bench --help      measure this machine")
}

// Kinds of the demo's tasks.
const (
	demoSHA256   = "sha256"
	demoFlaky    = "flaky"
	demoSlow     = "slow"
	demoLater    = "later"
	demoHopeless = "hopeless"
	demoTick     = "tick"
)

// demoArgs are the args of all kinds of the demo.
type demoArgs struct {
	Name  string `json:"-"`               // the kind
	Path  string `json:"path,omitempty"`  // sha256: path of a file
	Block int    `json:"block,omitempty"` // sha256: a made-up block, if there are few files
	Times int    `json:"times,omitempty"` // flaky: how many attempts fail
}

// Kind implements tusk.Args.
func (a demoArgs) Kind() string { return a.Name }

// demoTasks mixes tasks of the other kinds with those for the files.
func demoTasks(files []demoArgs) []tusk.NewTask {
	var tasks []tusk.NewTask
	add := func(a demoArgs, o tusk.Options) { tasks = append(tasks, tusk.NewTask{Args: a, Options: &o}) }
	for i, file := range files {
		add(file, tusk.Options{MaxAttempts: 3})
		switch {
		case i%16 == 8 && i < 16*12:
			add(demoArgs{Name: demoSlow}, tusk.Options{})
		case i%16 == 4 && i < 16*12:
			add(demoArgs{Name: demoFlaky, Times: 1 + i/16%3}, tusk.Options{Backoff: tusk.LinearBackoff(500 * time.Millisecond)})
		case i%16 == 12 && i < 16*20:
			add(demoArgs{Name: demoLater}, tusk.Options{Delay: time.Duration(2000+i*15) * time.Millisecond})
		case i%16 == 0 && i < 16*6:
			add(demoArgs{Name: demoHopeless}, tusk.Options{MaxAttempts: 2, Backoff: tusk.ConstantBackoff(time.Second)})
		}
	}
	return tasks
}

// demoMux has the handlers. Each is only a few lines, because the demo is about tasks.
func demoMux() *tusk.Mux {
	m := tusk.NewMux()
	tusk.HandleKind(m, demoSHA256, func(ctx context.Context, t *tusk.Task[demoArgs]) error {
		sum, size, err := t.Args.sha256(ctx)
		if err != nil {
			return err
		}
		return t.RecordOutput(map[string]any{"sha256": sum, "bytes": size})
	})
	tusk.HandleKind(m, demoFlaky, func(_ context.Context, t *tusk.Task[demoArgs]) error {
		if t.Attempt <= t.Args.Times {
			return fmt.Errorf("no luck at attempt %d", t.Attempt)
		}
		return nil
	})
	tusk.HandleKind(m, demoSlow, func(ctx context.Context, t *tusk.Task[demoArgs]) error {
		for percent := 0.0; percent < 100; percent += 5 {
			t.SetProgress(percent, "working")
			if !sleep(ctx, 100*time.Millisecond) {
				return context.Cause(ctx)
			}
		}
		return nil
	})
	tusk.HandleKind(m, demoHopeless, func(_ context.Context, t *tusk.Task[demoArgs]) error {
		if t.Attempt > 1 {
			return tusk.Discard(errors.New("this one gives up on purpose"))
		}
		return errors.New("this one fails on purpose")
	})
	well := func(context.Context, *tusk.Task[json.RawMessage]) error { return nil }
	tusk.HandleKind(m, demoLater, well)
	tusk.HandleKind(m, demoTick, well)
	return m
}
