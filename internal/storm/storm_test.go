//go:build unix

package storm

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/store"
)

// How a storm is told what to do, by the environment.
const (
	envTime    = "STORM"         // how long the faults go on, such as 20m; default: some seconds
	envSeed    = "STORM_SEED"    // a number that an earlier storm printed
	envFaults  = "STORM_FAULTS"  // the codes of those that may strike, separated by commas; default: all
	envResults = "STORM_RESULTS" // a file to append a line of results to
	envOld     = "STORM_OLD"     // a storm binary of an earlier version, from which every other worker is started
	envKeep    = "STORM_KEEP"    // a folder in which histories and logs stay
)

const leastRate = 100 // tasks per second before the first fault: below that a storm says nothing

// storm is one run on one ground.
type storm struct {
	t      *testing.T
	seed   uint64
	ground *ground
	client *tusk.Client // straight to the server
	close  func() error // of its store
	wrong  string       // a program whose clock can be wrong; empty: there is none
	fleet  *fleet
	log    *history
	random *dice
	lasts  time.Duration

	mu         sync.Mutex
	counts     map[string]int
	faults     []fault
	struck     map[string]int // by code
	pending    []func()       // what ends faults that go on
	violations []string
	started    int // workers
	rate       float64
}

// dice are random numbers for several goroutines.
type dice struct {
	mu sync.Mutex
	r  *rand.Rand
}

// IntN returns a number below n.
func (d *dice) IntN(n int) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.r.IntN(n)
}

// Shuffle puts things into another order.
func (d *dice) Shuffle(n int, swap func(i, j int)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.r.Shuffle(n, swap)
}

// TestStorm lets real processes work while everything around them fails, and
// checks the history of all that they did. The same seed makes the same faults in
// the same order and the same tasks; what the processes do in between is theirs.
func TestStorm(t *testing.T) {
	for _, name := range []string{"sqlite", "postgres", "pgbouncer", "mysql"} {
		t.Run(name, func(t *testing.T) {
			if testing.Short() {
				t.Skip("a storm takes a while")
			}
			newStorm(t, name).run()
		})
	}
}

func newStorm(t *testing.T, name string) *storm {
	t.Helper()
	s := &storm{t: t, faults: faults, lasts: 12 * time.Second, seed: rand.Uint64N(1 << 32), counts: map[string]int{}, struck: map[string]int{}}
	if text := os.Getenv(envTime); text != "" {
		d, err := time.ParseDuration(text)
		if err != nil {
			t.Fatalf("%s: %v", envTime, err)
		}
		s.lasts = d
	}
	if text := os.Getenv(envSeed); text != "" {
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatalf("%s: %v", envSeed, err)
		}
		s.seed = n
	}
	s.random = &dice{r: rand.New(rand.NewPCG(s.seed, 1))}
	dir := t.TempDir()
	if keep := os.Getenv(envKeep); keep != "" {
		dir = filepath.Join(keep, fmt.Sprintf("%s-%d", name, s.seed))
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	long := os.Getenv(envTime) != ""
	if f := findFault("F17"); long && mayStrike("F17") && f.rages(name) {
		s.wrong = buildWithWrongClock(t)
	}
	s.ground = newGround(t, name, dir, long)
	var err error
	if s.log, err = openHistory(filepath.Join(dir, "0000-storm.history")); err != nil {
		t.Fatal(err)
	}
	if err := s.connect(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.close() })
	s.fleet = &fleet{t: t, dir: dir, seed: s.seed, open: s.ground.open}
	t.Cleanup(s.fleet.killAll)
	t.Logf("%s, seed %d: %s=%d repeats its faults", s.ground.version, s.seed, envSeed, s.seed)
	return s
}

// connect opens the storm's own store.
func (s *storm) connect(ctx context.Context) error {
	engine, closeStore, err := engines[s.ground.engine].open(ctx, s.ground.dsn)
	if err != nil {
		return err
	}
	s.close = closeStore
	s.client, err = tusk.NewClient(&witness{engine, s.log}, &tusk.ClientConfig{Logger: quiet})
	return err
}

func (s *storm) run() {
	s.settings()
	for range 3 {
		s.fleet.start(s.worker())
	}
	for range 2 {
		s.fleet.start(s.role("producer"))
	}
	s.measure()
	s.rage()
	s.drain()
	s.check()
	s.report()
}

// settings are the limits and the schedule that the storm has.
func (s *storm) settings() {
	ctx := s.t.Context()
	for queue, limits := range map[string]tusk.Limits{queueSerial: {PerPartition: 1, BlockOnRetry: true}, queueLimited: {Concurrency: mostLimited}} {
		if err := s.client.SetLimits(ctx, queue, limits); err != nil {
			s.t.Fatal(err)
		}
	}
	err := s.client.PutSchedule(ctx, tusk.Schedule{Name: "clock", Spec: "@every 1s", Args: kindOf{kind: doTick},
		Options: &tusk.Options{Queue: queueOpen}, Missed: tusk.MissedAll, Cap: 5000, Overlap: tusk.OverlapAllow})
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *storm) role(name string) role {
	if name == "worker" {
		return s.worker()
	}
	return role{name: name, part: &part{Engine: s.ground.engine, DSN: s.ground.via, Backlog: 600}}
}

func (s *storm) worker() role {
	r := role{name: "worker", part: &part{Engine: s.ground.engine, DSN: s.ground.via}}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.started++; s.started%2 == 0 {
		r.program = os.Getenv(envOld)
	}
	return r
}

// any picks a process of a role.
func (s *storm) any(name string) *process {
	s.replace()
	s.fleet.mu.Lock()
	defer s.fleet.mu.Unlock()
	var all []*process
	for _, p := range s.fleet.living {
		if p.role.name == name {
			all = append(all, p)
		}
	}
	if len(all) == 0 {
		s.t.Fatalf("no %s is left", name)
	}
	return all[s.random.IntN(len(all))]
}

// replace puts workers into the place of those that a task has killed.
func (s *storm) replace() (n int) {
	s.fleet.mu.Lock()
	all := slices.Clone(s.fleet.living)
	s.fleet.mu.Unlock()
	for _, p := range all {
		if p.killedByTask() {
			s.fleet.gone(p)
			s.count("end of a worker by its task")
			s.fleet.start(s.worker())
			n++
		}
	}
	return n
}

// leader returns the worker that wrote last that it leads.
func (s *storm) leader() *process {
	var last int64
	best := s.any("worker")
	s.fleet.mu.Lock()
	defer s.fleet.mu.Unlock()
	for _, p := range s.fleet.living {
		if at := lastLed(p.history()); p.role.name == "worker" && at > last {
			last, best = at, p
		}
	}
	return best
}

// measure waits until the storm has enough to destroy.
func (s *storm) measure() {
	for deadline := time.Now().Add(time.Minute); ; {
		before, began := s.completed(), time.Now()
		time.Sleep(3 * time.Second)
		s.rate = float64(s.completed()-before) / time.Since(began).Seconds()
		if s.rate >= leastRate {
			return
		}
		if time.Now().Before(deadline) {
			continue
		}
		if s.rate == 0 || os.Getenv(envTime) != "" {
			s.t.Fatalf("the storm is void: %.0f tasks/s before the first fault, at least %d are needed: %s", s.rate, leastRate, s.fleet.living[0].tail())
		}
		s.t.Logf("only %.0f tasks/s before the first fault, on a machine that is busy: this storm checks, and proves little", s.rate)
		return
	}
}

func (s *storm) completed() (n int64) {
	now := time.Now()
	stats, err := s.client.Stats(s.t.Context(), store.StatsFilter{Bucket: time.Hour, From: now.Add(-48 * time.Hour), Until: now.Add(48 * time.Hour)})
	if err != nil {
		s.t.Fatal(err)
	}
	for _, one := range stats {
		n += one.Completed
	}
	return n
}

// rage lets faults strike, one after another.
func (s *storm) rage() {
	began := time.Now()
	for time.Since(began) < s.lasts && !s.t.Failed() {
		f := s.draw()
		s.log.write(event{Op: opFault, Text: f.code + " " + f.name})
		s.mu.Lock()
		s.struck[f.code]++
		s.mu.Unlock()
		if err := f.strike(s); err != nil {
			s.t.Logf("%s %s: %v", f.code, f.name, err)
		}
		s.log.write(event{Op: opCalm, Text: f.code + " " + f.name})
		time.Sleep(time.Duration(100+s.random.IntN(600)) * time.Millisecond)
	}
	s.mu.Lock()
	pending := s.pending
	s.pending = nil
	s.mu.Unlock()
	for _, end := range pending {
		end()
	}
}

// draw picks a fault that the ground knows.
func (s *storm) draw() *fault {
	var all []*fault
	for i := range s.faults {
		if f := &s.faults[i]; f.rages(s.ground.name) && mayStrike(f.code) && s.can(f.code) {
			for range f.weight {
				all = append(all, f)
			}
		}
	}
	if len(all) == 0 {
		s.t.Fatalf("%s=%s names no fault that %s has", envFaults, os.Getenv(envFaults), s.ground.name)
	}
	return all[s.random.IntN(len(all))]
}

// mayStrike reports whether the environment lets a fault in.
func mayStrike(code string) bool {
	only := strings.Split(os.Getenv(envFaults), ",")
	return only[0] == "" || slices.Contains(only, code)
}

// can reports whether a fault that needs something special of its ground has it.
func (s *storm) can(code string) bool {
	switch code {
	case "F6":
		return s.ground.disk != nil
	case "F16":
		return s.ground.clock != nil
	case "F17":
		return s.wrong != ""
	}
	return true
}

// later ends a fault after a while, or at the end of the storm.
func (s *storm) later(d time.Duration, end func()) {
	once := sync.OnceFunc(end)
	time.AfterFunc(d, once)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pending = append(s.pending, once)
}

func (s *storm) count(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts[what]++
}

func (s *storm) violation(of, format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.violations = append(s.violations, of+": "+fmt.Sprintf(format, args...))
}

// drain lets everything end, with nothing failing any more: in bounded time.
func (s *storm) drain() {
	if p := s.ground.proxy; p != nil {
		p.deaf.Store(true) // what comes last is found without being told
		time.Sleep(time.Second)
	}
	for _, p := range slices.Clone(s.fleet.living) {
		if p.role.name == "producer" {
			s.fleet.kill(p)
		}
	}
	for began := time.Now(); ; time.Sleep(100 * time.Millisecond) { // the server may be recovering from the last fault
		err := s.client.RemoveSchedule(s.t.Context(), "clock")
		if err == nil || errors.Is(err, tusk.ErrNotFound) {
			break
		}
		if time.Since(began) > time.Minute {
			s.t.Fatal(err)
		}
	}
	began := time.Now()
	s.log.write(event{Op: opCalm, Text: "drain"})
	for last, moved := int64(-1), began; ; time.Sleep(50 * time.Millisecond) {
		left, err := unfinished(s.t.Context(), s.client)
		if err != nil {
			s.t.Fatal(err)
		}
		if s.replace() == 0 && left == 0 && s.release() == 0 {
			break
		}
		if left != last {
			last, moved = left, time.Now()
		}
		if time.Since(moved) > patience {
			s.violation("I1", "%d unfinished tasks have not moved for %v: %s", left, patience, s.stuck())
			break
		}
	}
	s.t.Logf("all ended %v after the last fault", time.Since(began).Round(time.Millisecond))
	time.Sleep(time.Second) // for the vitals of those at rest
	for _, p := range slices.Clone(s.fleet.living) {
		s.end(p)
	}
}

// patience is how long nothing may move at the end.
const patience = 15 * time.Second

// end stops a worker with nothing left to do, which has to succeed.
func (s *storm) end(p *process) {
	p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.ended:
		if p.err != nil {
			s.violation("F3", "a worker that was told to stop ended with %v: %s", p.err, p.tail())
		}
		s.fleet.gone(p)
	case <-time.After(30 * time.Second):
		s.violation("F3", "a worker without work does not stop: %s", p.tail())
		s.fleet.kill(p)
	}
}

// release lets tasks out of quarantine: their workers were not killed by them.
func (s *storm) release() (released int) {
	for f := (tusk.Filter{States: []tusk.State{tusk.StateDiscarded}, Limit: store.MaxPage}); ; {
		page, err := s.client.List(s.t.Context(), f)
		if err != nil {
			s.t.Fatal(err)
		}
		for _, task := range page {
			if strings.HasPrefix(task.Reason, "quarantined") && task.Kind != doKiller {
				released += s.retry(task.ID)
			}
		}
		if len(page) < f.Limit {
			break
		}
		f.Before = page[len(page)-1].ID
	}
	s.mu.Lock()
	s.counts["release from quarantine"] += released
	s.mu.Unlock()
	return released
}

func (s *storm) retry(id tusk.ID) int {
	edited, err := s.client.Edit(s.t.Context(), []tusk.ID{id}, tusk.Change{Op: tusk.OpRetry})
	if err != nil {
		s.t.Fatal(err)
	}
	if edited[0].Result == store.Changed {
		return 1
	}
	return 0
}

func (s *storm) stuck() string {
	tasks, err := s.client.List(s.t.Context(), tusk.Filter{States: []tusk.State{tusk.StatePending, tusk.StateAvailable, tusk.StateRunning, tusk.StateRetryable, tusk.StateScheduled}, Limit: 3, Detail: true})
	if err != nil {
		return err.Error()
	}
	var text strings.Builder
	text.WriteString(s.ground.activity(s.t.Context()))
	for _, t := range tasks {
		fmt.Fprintf(&text, "\n%s kind %s queue %s key %q partition %q %v attempt %d crashes %d run at %v claimed %v worker %v needs %v", t.ID, t.Kind, t.Queue, t.Key, t.Partition,
			t.State, t.Attempt, t.Crashes, t.RunAt, t.ClaimedAt, t.Worker, t.Detail.Needs)
	}
	return text.String()
}

// counted is what the file of results has a column for.
var counted = []string{"kill of a worker", "kill of a producer", "kill of the server", "kill of a backend", "end of a session", "power cut", "lost answer"}

// report says what the storm was, fails the test if anything was violated, and
// appends a line to the file of results.
func (s *storm) report() {
	var counts, struck []string
	for _, what := range slices.Sorted(maps.Keys(s.counts)) {
		counts = append(counts, fmt.Sprintf("%d × %s", s.counts[what], what))
	}
	for _, code := range slices.Sorted(maps.Keys(s.struck)) {
		struck = append(struck, fmt.Sprintf("%s × %d", code, s.struck[code]))
	}
	s.t.Logf("%.0f tasks/s before the first fault; %s; faults: %s", s.rate, strings.Join(counts, ", "), strings.Join(struck, ", "))
	for i, v := range s.violations {
		if i == 25 {
			s.t.Errorf("and %d more", len(s.violations)-i)
			break
		}
		s.t.Error(v)
	}
	name := os.Getenv(envResults)
	if name == "" {
		return
	}
	f, err := os.OpenFile(name, os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		s.t.Fatal(err)
	}
	defer f.Close()
	var columns strings.Builder
	for _, what := range counted {
		fmt.Fprintf(&columns, "%d | ", s.counts[what])
	}
	version, _, _ := strings.Cut(s.ground.version, " (")
	if s.ground.bouncer != nil {
		version += " behind pgbouncer"
	}
	fmt.Fprintf(f, "| %s | %s | %s | %d | %v | %.0f | %s%d | %s |\n", time.Now().UTC().Format("2006-01-02 15:04"), tusk.Version(), version, s.seed,
		s.lasts, s.rate, columns.String(), len(s.violations), strings.Join(struck, ", "))
}
