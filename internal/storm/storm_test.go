//go:build unix

package storm

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/archive/place/placetest"
	"github.com/tuskqueue/tusk/store"
)

// Environment variables that control a storm.
const (
	envTime    = "STORM"         // how long faults strike, such as 20m; default: some seconds
	envTasks   = "STORM_TASKS"   // how many tasks must complete before faults end; default: no minimum
	envSeed    = "STORM_SEED"    // a number that an earlier storm printed
	envFaults  = "STORM_FAULTS"  // codes of the faults that may strike, separated by commas; default: all
	envResults = "STORM_RESULTS" // a file to append a line of results to
	envOld     = "STORM_OLD"     // a storm binary of an earlier version, from which every other worker is started
	envKeep    = "STORM_KEEP"    // a folder in which histories and logs are kept
)

const leastRate = 100 // tasks per second before the first fault; a slower storm proves nothing

// storm is one run on one ground.
type storm struct {
	t       *testing.T
	seed    uint64
	ground  *ground
	client  *tusk.Client // straight to the server
	close   func() error // closes its store
	wrong   string       // a program whose clock can be wrong; empty if none
	fleet   *fleet
	log     *history
	random  *dice
	objects *placetest.Server // for archived tasks and large args; nil if there is no archive
	lasts   time.Duration
	enough  int64 // tasks that must complete while faults strike
	long    bool  // started by hand: all faults may strike

	mu         sync.Mutex
	counts     map[string]int
	faults     []fault
	struck     map[string]int // by code
	pending    []func()       // functions that end ongoing faults
	violations []string
	hostile    []tusk.ID // enqueued by hostile SQL
	finite     []tusk.ID // those of them with a due time
	started    int       // number of workers
	rate       float64
}

// TestStorm runs real processes while everything around them fails, and checks the history of all that they did. The
// same seed produces the same faults in the same order, and the same tasks; what the processes do in between may
// differ.
func TestStorm(t *testing.T) {
	for _, name := range []string{"sqlite", "postgres", "pgbouncer", "mysql", "couchbase", "ledgers"} {
		t.Run(name, func(t *testing.T) {
			if testing.Short() {
				t.Skip("a storm takes a while")
			}
			newStorm(t, name).run()
		})
	}
}

// folder makes the folder for a storm's histories and logs. It is removed after the test, unless the test fails or
// the folder is to be kept.
func folder(t *testing.T, name string) string {
	t.Helper()
	dir := filepath.Join(os.Getenv(envKeep), name)
	if os.Getenv(envKeep) == "" {
		dir = filepath.Join(os.TempDir(), "tusk-storm-"+name)
		t.Cleanup(func() {
			if t.Failed() {
				t.Logf("histories and logs are in %s", dir)
			} else if err := os.RemoveAll(dir); err != nil {
				t.Error(err)
			}
		})
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

func newStorm(t *testing.T, name string) *storm {
	t.Helper()
	s := &storm{t: t, faults: faults, lasts: 12 * time.Second, seed: rand.Uint64N(1 << 32), counts: map[string]int{},
		struck: map[string]int{}}
	if text := os.Getenv(envTime); text != "" {
		d, err := time.ParseDuration(text)
		if err != nil {
			t.Fatalf("%s: %v", envTime, err)
		}
		s.lasts = d
	}
	if text := os.Getenv(envTasks); text != "" {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			t.Fatalf("%s: %v", envTasks, err)
		}
		s.enough = n
	}
	if text := os.Getenv(envSeed); text != "" {
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatalf("%s: %v", envSeed, err)
		}
		s.seed = n
	}
	s.random = &dice{r: rand.New(rand.NewPCG(s.seed, 1))}
	dir := folder(t, fmt.Sprintf("%s-%d", name, s.seed))
	s.long = os.Getenv(envTime) != ""
	if f := findFault("F17"); s.long && mayStrike("F17") && f.rages(name) {
		s.wrong = buildWithWrongClock(t)
	}
	s.ground = newGround(t, name, dir, s.long)
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
	s.client, err = tusk.NewClient(witnessed(engine, s.log), &tusk.ClientConfig{Logger: quiet})
	return err
}

func (s *storm) run() {
	s.settings()
	s.openPlace()
	for range 3 {
		s.fleet.start(s.worker())
	}
	for range 2 {
		s.fleet.start(s.role("producer"))
	}
	s.startArchiving()
	s.measure()
	watched := s.watch()
	s.rage()
	s.drain()
	watched()
	s.check()
	s.report()
}

// settings sets the storm's limits and its schedule.
func (s *storm) settings() {
	ctx := s.t.Context()
	for queue, limits := range map[string]tusk.Limits{queueSerial: {PerPartition: 1, BlockOnRetry: true},
		queueLimited: {Concurrency: mostLimited}} {
		if err := s.client.SetLimits(ctx, queue, limits); err != nil {
			s.t.Fatal(err)
		}
	}
	err := s.client.PutSchedule(ctx, tusk.Schedule{Name: "clock", Spec: "@every 1s", Args: kindOf{kind: doTick},
		Options: &tusk.Options{Queue: queueOpen}, Missed: tusk.MissedAll, Cap: mostMissed, Overlap: tusk.OverlapAllow})
	if err != nil {
		s.t.Fatal(err)
	}
}

// place returns the URL for the archive and large args, or "" if there is none.
func (s *storm) place() string {
	if s.objects == nil {
		return ""
	}
	return s.objects.URL("tusk")
}

func (s *storm) role(name string) role {
	if name == "worker" {
		return s.worker()
	}
	return role{name: name, part: &part{Engine: s.ground.engine, DSN: s.ground.via, Name: name, Backlog: 600,
		Place: s.place()}}
}

func (s *storm) worker() role {
	r := role{name: nameWorker, part: &part{Engine: s.ground.engine, DSN: s.ground.via, Name: nameWorker,
		Place: s.place()}}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.started++; s.started%2 == 0 {
		r.program = os.Getenv(envOld)
	}
	return r
}

// measure waits until tasks complete fast enough for the storm to begin.
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
			s.t.Fatalf("the storm is void: %.0f tasks/s before the first fault, at least %d are needed: %s", s.rate, leastRate,
				s.fleet.living[0].tail())
		}
		s.t.Logf("only %.0f tasks/s before the first fault, on a machine that is busy: this storm checks, and proves little",
			s.rate)
		return
	}
}

// completed returns the number of completed tasks. The server may be recovering from the last fault.
func (s *storm) completed() (n int64) {
	var stats []store.Stat
	for began := time.Now(); ; time.Sleep(100 * time.Millisecond) {
		now := time.Now()
		var err error
		stats, err = s.client.Stats(s.t.Context(), store.StatsFilter{Bucket: time.Hour, From: now.Add(-48 * time.Hour),
			Until: now.Add(48 * time.Hour)})
		if err == nil {
			break
		}
		if time.Since(began) > time.Minute {
			s.t.Fatal(err)
		}
	}
	for _, one := range stats {
		n += one.Completed
	}
	return n
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
