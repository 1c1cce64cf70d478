package cli

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/builtin"
	"github.com/tuskqueue/tusk/store"
)

// kindFlags say which kinds of task a worker runs.
type kindFlags struct {
	commands   []string // KIND=COMMAND
	exec       bool
	env        []string // passed to commands in addition to the harmless variables
	children   []string // queues into which commands may spawn children
	allowHosts []string
}

func (k *kindFlags) add(f *pflag.FlagSet) {
	f.StringArrayVar(&k.commands, "exec", nil,
		"run COMMAND for tasks of a kind, with the args as JSON on its standard input: `KIND=COMMAND`, repeatable")
	f.StringSliceVar(&k.env, "exec-env", nil,
		"let commands have this variable of the worker's environment, by its `NAME`; repeatable")
	f.StringSliceVar(&k.children, "exec-children", nil,
		"let commands of --exec spawn children, of any kind, into this `queue`; repeatable (default: no queue)")
	f.StringSliceVar(&k.allowHosts, "allow-host", nil,
		"let tasks of kind http reach this private `host`, host:port or network, too; repeatable")
}

// mux registers the handlers. Errors in flags are usage errors.
func (k *kindFlags) mux() (*tusk.Mux, error) {
	m := tusk.NewMux()
	builtin.Echo(m)
	if err := builtin.HTTP(m, k.allowHosts...); err != nil {
		return nil, usage("", "--allow-host: %v", err)
	}
	if k.exec || len(k.commands) > 0 {
		if err := hideMemory(); err != nil {
			return nil, fmt.Errorf("keep commands from reading the worker's memory: %w", err)
		}
	}
	if k.exec {
		builtin.Exec(m, k.env...)
	}
	for _, pair := range k.commands {
		kind, command, found := strings.Cut(pair, "=")
		argv, err := builtin.SplitWords(command)
		switch {
		case err != nil:
			return nil, usage("", "--exec %s: %v", quote(pair), err)
		case !found || len(argv) == 0 || argv[0] == "":
			return nil, usage(`like --exec 'resize=./resize --fast'`, "--exec %s: want KIND=COMMAND", quote(pair))
		case slices.Contains(m.Kinds(), kind):
			return nil, usage("", "--exec %s: this worker has a handler for the kind already", quote(pair))
		}
		if _, err := exec.LookPath(argv[0]); err != nil {
			return nil, usage("the command has to exist and be executable", "--exec %s: %v", quote(pair), err)
		}
		if err := tusk.ValidateName("kind", kind); err != nil {
			return nil, usage("", "--exec %s: %v", quote(pair), err)
		}
		builtin.Command(m, kind, argv, &builtin.CommandOptions{Env: k.env, ChildQueues: k.children})
	}
	return m, nil
}

func addRetentionFlags(f *pflag.FlagSet, r *tusk.Retention) {
	const day = 24 * time.Hour
	*r = tusk.Retention{Completed: day, Cancelled: day, Discarded: 7 * day, Stats: 30 * day}
	f.Var(positiveFlag(&r.Completed), "keep-completed", "how long completed tasks are kept")
	f.Var(positiveFlag(&r.Cancelled), "keep-cancelled", "how long cancelled tasks are kept")
	f.Var(positiveFlag(&r.Discarded), "keep-discarded", "how long discarded tasks are kept")
	f.Var(positiveFlag(&r.Stats), "keep-stats", "how long statistics are kept")
}

func newWorkCommand(app *App) *cobra.Command {
	var kinds kindFlags
	c := tusk.WorkerConfig{Concurrency: 50, Lease: 30 * time.Second, Poll: time.Second,
		ShutdownTimeout: 25 * time.Second, HungGrace: 10 * time.Second}
	var untilEmpty bool
	var l listenFlags
	cmd := &cobra.Command{
		Use:   "work",
		Short: "Run tasks",
		Long: `Run tasks until SIGINT or SIGTERM. Then the worker claims no more tasks, running tasks may go
on for --shutdown-timeout, and unfinished tasks are handed back. A second signal ends the
worker at once; its tasks are rescued when their lease is over.

Kinds: echo, http, those of --exec, and exec with --enable-exec. A command gets TUSK_TASK_ID,
_KIND, _QUEUE, _ATTEMPT and _TENANT and, if the task needed others, TUSK_INPUTS, a file with
their outputs. From the worker's environment a command gets only PATH, HOME, SHELL, USER,
LOGNAME, LANG, LANGUAGE, LC_*, TZ, TMPDIR and the variables in --exec-env: the others may hold
passwords. Its standard output becomes the task's output, its standard error the task's log.
Exit status 0 completes the task, 65 (EX_DATAERR) discards it without a retry. Any other status
is a failure, which is retried while attempts are left.

A COMMAND of --exec is split into words as by a shell, but no shell runs it. In a pipeline, it
may write the next stage to the file that TUSK_GO_TO names. It may spawn children in the queues
of --exec-children: it appends them to the file that TUSK_CHILDREN names, each as a line like
{"kind":"resize","args":{}}, and waits for them with the line {"wait":true}.`,
		Example: `  tusk work --queue mail --exec 'send=./send-mail --verbose'
  tusk work --queue default --queue slow --concurrency 8 --until-empty`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return app.work(cmd.Context(), &kinds, c, untilEmpty, &l)
		},
	}
	f := cmd.Flags()
	f.StringSliceVar(&c.Queues, "queue", []string{tusk.DefaultQueue}, "take tasks of this `queue`; repeatable")
	f.Var(numberFlag(&c.Concurrency, 1, 100000), "concurrency", "how many tasks run at once")
	f.IntVar(&c.ReadAhead, "read-ahead", 500, "how many short tasks may be claimed ahead; -1: none")
	kinds.add(f)
	f.BoolVar(&kinds.exec, "enable-exec", false, "run tasks of kind exec: any command, for everybody who can enqueue")
	f.Var(positiveFlag(&c.Lease), "lease", "how long tasks stay the worker's without a heartbeat")
	f.Var(positiveFlag(&c.Beat), "beat",
		"time between heartbeats, at most a third of --lease; default: 10s, on PostgreSQL and MySQL 2s")
	f.Var(positiveFlag(&c.Poll), "poll", "the longest pause between two looks at idle queues")
	f.Var(positiveFlag(&c.ClaimEvery), "claim-every",
		"the shortest time between two claims: tasks that arrive within it share one (default: claim at once)")
	f.Var(positiveFlag(&c.ShutdownTimeout), "shutdown-timeout",
		"how long running tasks may go on after a signal")
	f.Var(positiveFlag(&c.Timeout), "timeout", "limit for each attempt of a task without its own (default: no limit)")
	f.Var(positiveFlag(&c.StallTimeout), "stall-timeout",
		"limit for each attempt without a sign of life, of a task without its own (default: no limit)")
	f.Var(positiveFlag(&c.HungGrace), "hung-grace",
		"how long a handler may ignore a timeout or a cancel before its task is taken from it")
	f.IntVar(&c.MaxHung, "max-hung", 0,
		"stop, with an error, when this many handlers hang; -1: never; default: --concurrency, at least 10")
	f.BoolVar(&c.NeverLead, "never-lead", false, "leave schedules, rescue and pruning to other processes")
	addRetentionFlags(f, &c.Retention)
	l.add(f)
	f.BoolVar(&untilEmpty, "until-empty", false, "stop when the queues have no unfinished task")
	return cmd
}

func (app *App) work(
	ctx context.Context, kinds *kindFlags, c tusk.WorkerConfig, untilEmpty bool, l *listenFlags,
) error {
	mux, err := kinds.mux()
	if err != nil {
		return err
	}
	if err := l.check(); err != nil {
		return err
	}
	stopTelemetry, err := app.startTelemetry(ctx, l.addr != "")
	if err != nil {
		return err
	}
	defer stopTelemetry()
	client, closeStore, err := app.Standing(ctx)
	if err != nil {
		return err
	}
	defer closeStore()
	if app.tracer != nil {
		c.Tracer = app.tracer
	}
	worker, err := tusk.NewWorker(client, mux, &c)
	if err != nil {
		return err
	}
	if app.metrics != nil {
		app.metrics.Watch(client)
		app.metrics.Loops(worker.Health)
		app.metrics.Hung(worker.Hung)
	}
	defer exitAtSecondSignal()()
	app.Log.Info("work", "queues", c.Queues, "kinds", mux.Kinds(), "concurrency", c.Concurrency, "lease", c.Lease,
		"db", hideDSN(app.flags.db), "pid", os.Getpid())
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	if untilEmpty {
		go func() {
			defer stop()
			app.awaitEmpty(ctx, client, c.Queues)
		}()
	}
	parts := []func(context.Context) error{worker.Run}
	if l.addr != "" {
		listener, err := listen(ctx, l.addr)
		if err != nil {
			return err
		}
		app.Log.Info("work: metrics", "url", "http://"+listener.Addr().String()+"/metrics")
		parts = append(parts, func(ctx context.Context) error { return l.serve(ctx, listener, app, client) })
	}
	if err := together(ctx, parts...); err != nil {
		return fmt.Errorf("work: %w", err)
	}
	app.Log.Info("work: stopped")
	return nil
}

// awaitEmpty waits until the queues have no unfinished task.
func (app *App) awaitEmpty(ctx context.Context, client *tusk.Client, queues []string) {
	const look = 250 * time.Millisecond
	for ctx.Err() == nil {
		n, err := countUnfinished(ctx, client.Store(), queues...)
		switch {
		case err != nil && ctx.Err() == nil:
			app.Log.Warn("work: looking whether the queues are empty", "error", err)
		case err == nil && n == 0:
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(look):
		}
	}
}

// countUnfinished counts the unfinished tasks of the queues.
func countUnfinished(ctx context.Context, s store.Reader, queues ...string) (int64, error) {
	counts, err := s.Count(ctx)
	if err != nil {
		return 0, err
	}
	var n int64
	for _, c := range counts {
		if slices.Contains(queues, c.Queue) && !c.State.Finished() {
			n += c.Tasks
		}
	}
	return n, nil
}

// exitAtSecondSignal makes a second interrupt end the process at once, with the exit status of an interrupt.
func exitAtSecondSignal() (forget func()) {
	signals := make(chan os.Signal, 2)
	done := make(chan struct{})
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	go func() {
		for range 2 {
			select {
			case <-signals:
			case <-done:
				return
			}
		}
		os.Exit(exitInterrupted)
	}()
	return func() {
		signal.Stop(signals)
		close(done)
	}
}
