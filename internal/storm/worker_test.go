//go:build unix

package storm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/signal"
	"runtime"
	"runtime/pprof"
	"strings"
	"syscall"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/store"
)

const (
	queueOpen    = "open"    // no limits
	queueKeyed   = "keyed"   // every task has a key
	queueSerial  = "serial"  // one at a time per partition, in order
	queueLimited = "limited" // at most mostLimited at a time
	queueKept    = "kept"    // no limits, and never archived
	queueOwn     = "own"     // of single tasks that workers enqueue themselves, and lease as they store them
	mostLimited  = 3

	stormLease = 2 * time.Second
)

var stormQueues = []string{queueOpen, queueKeyed, queueSerial, queueLimited, queueKept, queueOwn}

// Kinds of the storm's handlers. The args of a task are its load.
const (
	doEcho   = "echo"   // its output is its args
	doEffect = "effect" // writes a line outside the database
	doTx     = "tx"     // writes a row and completes in one transaction
	doFlaky  = "flaky"  // fails at the first attempt
	doSlow   = "slow"   // takes a while
	doSnooze = "snooze" // asks once to be called again
	doPanic  = "panic"  // panics at the first attempt
	doGoexit = "goexit" // ends its goroutine at the first attempt
	// Fails at first with megabytes of an error text that no text column accepts.
	doGarbage = "garbage"
	doDoomed  = "doomed" // gives up at once
	doFamily  = "family" // spawns children and waits for them
	// Completes in a transaction that it leaves open for long, with notes.
	doLinger = "linger"
	doRerun  = "rerun" // follows a source; fails at every other attempt
	doTick   = "tick"  // enqueued by a schedule
	doSteps  = "steps" // has steps, between which it fails at the first attempt
	doLarge  = "large" // its args are stored beside the archive; its output is its args

	doExit     = "exit"     // ends its process, once
	doOverflow = "overflow" // the same, by overflowing its stack
	doStarve   = "starve"   // the same, by exhausting its memory
	doKiller   = "killer"   // ends every process that runs it
	doDeaf     = "deaf"     // continues after its timeout, once
)

// load is the args of a task.
type load struct {
	Version int64 `json:"v,omitempty"`
	Part    int   `json:"p,omitempty"`
}

type kindOf struct {
	load
	kind string
}

func (k kindOf) Kind() string { return k.kind }

// playWorker works until it is killed or told to stop.
func playWorker(p part) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	log, err := openHistory(p.History)
	if err != nil {
		return err
	}
	engine, closeStore, err := p.patiently(ctx)
	if err != nil {
		return err
	}
	defer closeStore()
	dbs, err := p.pools()
	if err != nil {
		return err
	}
	defer dbs.Close()
	config, closePlace, err := p.config(ctx, engine)
	if err != nil {
		return err
	}
	defer closePlace()
	client, err := tusk.NewClient(witnessed(engine, log), config)
	if err != nil {
		return err
	}
	queues, slots, ahead := stormQueues, 12, 40
	switch p.Seed % 4 {
	case 0: // a worker that claims single tasks
		queues, slots, ahead = []string{queueOpen}, 1, -1
	case 1: // a worker with leases of the usual size
		slots, ahead = 50, 500
	}
	worker, err := tusk.NewWorker(client, (&hands{p, log, dbs}).mux(),
		&tusk.WorkerConfig{Queues: queues, Concurrency: slots, ReadAhead: ahead, Lease: stormLease,
			Poll: 200 * time.Millisecond, ShutdownTimeout: time.Second, Logger: quiet, Middleware: []tusk.Middleware{log.watch},
			Retention: tusk.Retention{Completed: 300 * time.Hour, Cancelled: 300 * time.Hour}})
	if err != nil {
		return err
	}
	go log.vitals()
	log.write(event{Op: opCalm, Text: "worker up"})
	go enqueueOwn(ctx, p, client)
	err = worker.Run(ctx)
	if err == nil {
		log.write(event{Op: opCalm, Text: "worker down"})
	}
	return err
}

// enqueueOwn enqueues single tasks beside a worker until the storm is over. Errors do not matter here.
func enqueueOwn(ctx context.Context, p part, client *tusk.Client) {
	random := rand.New(rand.NewPCG(p.Seed, 2))
	kinds := []string{doEcho, doEcho, doEffect, doFlaky, doSlow}
	for ctx.Err() == nil && !p.isOver() {
		args := kindOf{kind: kinds[random.IntN(len(kinds))]}
		if _, err := client.Enqueue(ctx, args, &tusk.Options{Queue: queueOwn,
			Backoff: tusk.ConstantBackoff(100 * time.Millisecond)}); err != nil {
			quiet.Warn("enqueue", "error", err)
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(time.Duration(random.IntN(50)) * time.Millisecond)
	}
}

// quiet logs only warnings and errors, to the log file of the process.
var quiet = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))

// watch records when handlers begin and end.
func (h *history) watch(next tusk.HandlerFunc) tusk.HandlerFunc {
	return func(ctx context.Context, t *tusk.Task[json.RawMessage]) error {
		at := item{ID: t.ID, Token: t.Lease.String(), Kind: t.Kind}
		h.write(event{Op: opBegin, Items: []item{at}})
		defer func() { h.write(event{Op: opEnd, Items: []item{at}}) }()
		return next(ctx, t)
	}
}

// vitals records every second what a process uses.
func (h *history) vitals() {
	for ; ; time.Sleep(time.Second) {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		files, _ := os.ReadDir("/proc/self/fd")
		h.write(event{Op: opVitals, Who: fmt.Sprint(os.Getpid()), Term: int64(m.HeapAlloc), Text: crowdOfGoroutines(),
			Items: []item{{Attempt: runtime.NumGoroutine(), Crashes: len(files)}}})
	}
}

// crowdOfGoroutines returns what most goroutines of the process do, if there are more than an idle one needs.
func crowdOfGoroutines() string {
	if runtime.NumGoroutine() <= mostGoroutines {
		return ""
	}
	var b strings.Builder
	_ = pprof.Lookup("goroutine").WriteTo(&b, 1)
	return b.String()[:min(b.Len(), 3000)]
}

// hands has the handlers.
type hands struct {
	part part
	log  *history
	dbs  pools
}

func (h *hands) mux() *tusk.Mux {
	m := tusk.NewMux()
	for kind, do := range map[string]func(context.Context, *tusk.Task[load]) error{
		doEcho: h.echo, doEffect: h.effect, doTx: h.tx, doFlaky: h.flaky, doSlow: h.slow, doSnooze: h.snooze,
		doPanic: h.panic,
		doExit:  h.exit, doOverflow: h.overflow, doStarve: h.starve, doKiller: h.killer, doDeaf: h.deaf,
		doLinger: h.linger, doGoexit: h.goexit, doGarbage: h.garbage, doDoomed: h.doomed, doFamily: h.family,
		doRerun: h.rerun, doTick: h.echo, doSteps: h.steps,
	} {
		tusk.HandleKind(m, kind, do)
	}
	tusk.HandleKind(m, doLarge, h.large)
	return m
}

func (h *hands) echo(_ context.Context, t *tusk.Task[load]) error { return t.RecordOutput(t.Args) }

func (h *hands) effect(_ context.Context, t *tusk.Task[load]) error {
	h.log.write(event{Op: opEffect, Items: []item{{ID: t.ID, Token: t.Lease.String()}}})
	return nil
}

var errPlanned = errors.New("planned failure")

func (h *hands) flaky(_ context.Context, t *tusk.Task[load]) error {
	if t.Attempt == 1 {
		return errPlanned
	}
	return nil
}

// steps records when steps run and when their results are said to be stored.
func (h *hands) steps(ctx context.Context, t *tusk.Task[load]) error {
	for _, name := range []string{"one", "two", "three"} {
		at := item{ID: t.ID, Token: t.Lease.String(), Key: name}
		result, err := tusk.Step(ctx, t, name, func(context.Context) (item, error) {
			h.log.write(event{Op: opStep, Items: []item{at}})
			time.Sleep(20 * time.Millisecond)
			return at, nil
		})
		if err != nil {
			return err
		}
		h.log.write(event{Op: opStepped, Items: []item{{ID: t.ID, Token: at.Token, Key: name, Part: result.Token}}})
		if name == "two" && t.Attempt == 1 {
			return errPlanned
		}
	}
	return nil
}

func (h *hands) slow(ctx context.Context, t *tusk.Task[load]) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(time.Duration(100+t.Args.Part) * time.Millisecond):
	}
	t.SetProgress(50, "half")
	return nil
}

// snooze asks once to be called again. The second call comes more than its delay after the first.
func (h *hands) snooze(_ context.Context, t *tusk.Task[load]) error {
	if instant()-t.Args.Version < int64(300*time.Millisecond) {
		return tusk.Snooze(100 * time.Millisecond)
	}
	return nil
}

func (h *hands) panic(_ context.Context, t *tusk.Task[load]) error {
	if t.Attempt == 1 {
		panic(errPlanned)
	}
	return nil
}

func (h *hands) goexit(_ context.Context, t *tusk.Task[load]) error {
	if t.Attempt == 1 {
		runtime.Goexit()
	}
	return nil
}

func (h *hands) garbage(_ context.Context, t *tusk.Task[load]) error {
	if t.Attempt == 1 {
		return errors.New("nul \x00, no utf-8 \xff\xfe, and " + strings.Repeat("much of it ", 1<<16))
	}
	return nil
}

func (h *hands) doomed(context.Context, *tusk.Task[load]) error { return tusk.Discard(errPlanned) }

// family spawns children, and checks after they have ended that they exist.
func (h *hands) family(ctx context.Context, t *tusk.Task[load]) error {
	inputs, err := t.Inputs(ctx)
	if err != nil {
		return err
	}
	if len(inputs) == 0 {
		for range 3 {
			if _, err := t.Spawn(ctx, kindOf{kind: doEcho}, &tusk.Options{Queue: queueKept}); err != nil {
				return err
			}
		}
		return tusk.Wait()
	}
	for _, in := range inputs {
		if !in.State.Finished() {
			h.log.write(event{Op: opFault, Err: "I10", Items: []item{{ID: t.ID, Token: t.Lease.String()}},
				Text: fmt.Sprintf("parent %s runs though its child %s is %v", t.ID, in.ID, in.State)})
		}
	}
	return nil
}

// rerun records which version of its source it saw.
func (h *hands) rerun(_ context.Context, t *tusk.Task[load]) error {
	time.Sleep(100 * time.Millisecond) // for newer versions to arrive meanwhile
	if t.Args.Part%2 == 1 && t.Attempt == 1 {
		return errPlanned
	}
	h.log.write(
		event{Op: opEffect, Items: []item{{ID: t.ID, Token: t.Lease.String(), Key: t.Key, Version: t.Args.Version}}})
	return nil
}

// patiently opens the engine of a part, and tries again until its database is available.
func (p part) patiently(ctx context.Context) (store.Store, func() error, error) {
	for {
		s, closeStore, err := engines[p.Engine].open(ctx, p.DSN)
		if err == nil || ctx.Err() != nil {
			return s, closeStore, err
		}
		quiet.Warn("open", "error", err)
		time.Sleep(100 * time.Millisecond)
	}
}

// pools opens a pool for users' transactions on each server, or none if the engine takes part in no transactions of
// users.
func (p part) pools() (pools, error) {
	all := strings.Fields(p.DSN)
	for i := range all {
		var err error
		if all[i], err = named(all[i], nameUser); err != nil {
			return nil, err
		}
	}
	return engines[p.Engine].pools(strings.Join(all, " "))
}

// transacts reports whether the engine takes part in transactions of users.
func (p part) transacts() bool { return engines[p.Engine].pool != nil }

// insert returns the statement that inserts into one of the storm's own tables.
func (p part) insert(table string) string {
	if p.Engine == "postgres" || p.Engine == many {
		return "insert into " + table + " (id, token) values ($1, $2)"
	}
	return "insert into " + table + " (id, token) values (?, ?)"
}
