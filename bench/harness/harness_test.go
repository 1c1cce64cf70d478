package harness

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestMain lets the test binary be a runner of the fake peer.
func TestMain(m *testing.M) {
	if os.Getenv("HARNESS_RUNNER") == "" {
		os.Exit(m.Run())
	}
	if err := Serve(context.Background(), os.Stdin, os.Stdout, func(p Plan) (Peer, error) {
		return &fake{fault: p.Variant}, nil
	}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// fake is a queue in memory, with a fault.
type fake struct {
	fault string
	mu    sync.Mutex
	tasks []Task
	ran   int
}

func (f *fake) Open(context.Context, Plan) error { return nil }

func (f *fake) Enqueue(_ context.Context, tasks []Task) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fault == "loses" {
		tasks = tasks[1:]
	}
	f.tasks = append(f.tasks, tasks...)
	return nil
}

func (f *fake) Work(ctx context.Context, handle func(n int)) error {
	if f.fault == "stops" {
		return nil
	}
	if f.fault == "dies" {
		os.Exit(3)
	}
	for ctx.Err() == nil {
		f.mu.Lock()
		taken := f.tasks
		f.tasks = nil
		f.mu.Unlock()
		for _, t := range taken {
			time.Sleep(time.Until(t.RunAt))
			handle(t.N)
			if f.fault == "repeats" {
				handle(t.N)
			}
		}
		time.Sleep(time.Millisecond)
	}
	return nil
}

func (f *fake) Left(context.Context) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.tasks), nil
}

func (f *fake) Close() error { return nil }

type noMeter struct{}

func (noMeter) Read(context.Context) (Counters, error) { return Counters{}, nil }

// runFake does a whole run in its own process.
func runFake(t *testing.T, p Plan) Sample {
	t.Helper()
	t.Setenv("HARNESS_RUNNER", "1")
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	s, err := Run(ctx, []string{os.Args[0]}, p, noMeter{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func planOf(order Order, fault string) Plan {
	return Plan{Order: order, Variant: fault, Tasks: 500, Batch: 50, Workers: 4, Producers: 2}
}

func TestARunInWhichEveryTaskRanIsSound(t *testing.T) {
	for _, order := range []Order{ProduceOnly, Backlog, Together} {
		s := runFake(t, planOf(order, ""))
		if s.Void != "" || s.Tasks != 500 || s.Stored != 500 || s.Took <= 0 {
			t.Errorf("%s: %+v", order, s)
		}
		if s.ClientMemory <= 0 {
			t.Errorf("%s: the runner's memory is not known", order)
		}
	}
}

func TestARunThatDoesNotEndWellIsVoid(t *testing.T) {
	for fault, want := range map[string]string{"loses": "gave up with", "stops": "ended before the work",
		"dies": "without a result"} {
		t.Run(fault, func(t *testing.T) {
			p := planOf(Together, fault)
			if s := runFake(t, p); !strings.Contains(s.Void, want) &&
				!(fault == "loses" && strings.Contains(s.Void, "took too long")) {
				t.Errorf("void is %q, want %q", s.Void, want)
			}
		})
	}
	if s := runFake(t, planOf(ProduceOnly, "loses")); !strings.Contains(s.Void, "lost 10 of 500") {
		t.Errorf("void is %q", s.Void)
	}
}

func TestTasksThatRanTwiceAreCounted(t *testing.T) {
	if s := runFake(t, planOf(Backlog, "repeats")); s.Void != "" || s.Calls != 1000 || s.Tasks != 500 {
		t.Errorf("%+v", s)
	}
}

func TestWaitsAreFromDueToStarted(t *testing.T) {
	p := planOf(Together, "")
	p.DueIn = 100 * time.Millisecond
	if s := runFake(t, p); s.Void != "" || s.Waits.Max <= 0 || s.Waits.P50 > s.Waits.P99 || s.Took < p.DueIn {
		t.Errorf("due together: %+v", s)
	}
	p = planOf(Together, "")
	p.Rate, p.Tasks = 2000, 200
	if s := runFake(t, p); s.Void != "" || s.Took < 95*time.Millisecond {
		t.Errorf("fixed rate: %+v", s)
	}
}

func TestHistoryIsMadeBefore(t *testing.T) {
	p := planOf(Together, "")
	p.History, p.Patience = 700, time.Minute
	if s := runFake(t, p); s.Void != "" || s.History != 700 || s.Tasks != 500 {
		t.Errorf("%+v", s)
	}
}

func TestTheFirstTenantHasHalfOfTheTasks(t *testing.T) {
	d := drive{plan: Plan{Tasks: 100, Tenants: 10}}
	tasks := map[int]int{}
	for n := range 100 {
		tasks[d.tenant(n)]++
	}
	if tasks[0] != 50 || len(tasks) != 10 {
		t.Errorf("tasks by tenant: %v", tasks)
	}
}

func TestArgsAre80Bytes(t *testing.T) {
	for _, n := range []int{0, 9, 10, 12345, 9999999} {
		text := Task{N: n}.JSON()
		back, err := Number(text)
		if len(text) != ArgsBytes || back != n || err != nil {
			t.Errorf("args of %d: %d bytes, read back as %d, %v", n, len(text), back, err)
		}
	}
	if _, err := Number([]byte("no")); err == nil {
		t.Error("no JSON was read")
	}
}

func TestTheRelayCountsRoundTripsAndConnections(t *testing.T) {
	echo, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer echo.Close()
	go func() {
		for {
			c, err := echo.Accept()
			if err != nil {
				return
			}
			go func() { pass(c, c, func() {}); c.Close() }()
		}
	}()
	r, err := NewRelay(echo.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for range 2 {
		c, err := net.Dial("tcp", r.Addr())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		for range 3 {
			answer := make([]byte, 4)
			if _, err := c.Write([]byte("ping")); err != nil {
				t.Fatal(err)
			}
			if _, err := c.Read(answer); err != nil || !bytes.Equal(answer, []byte("ping")) {
				t.Fatalf("%q, %v", answer, err)
			}
		}
	}
	if trips, connections := r.Counted(); trips != 6 || connections != 2 {
		t.Errorf("%d round trips, %d connections; want 6 and 2", trips, connections)
	}
	r.Reset()
	if trips, _ := r.Counted(); trips != 0 {
		t.Errorf("%d round trips after the reset", trips)
	}
}

func TestAnUnknownPeerIsTold(t *testing.T) {
	unknown := errors.New("unknown")
	err := Serve(t.Context(), strings.NewReader("{}\n"), &bytes.Buffer{}, func(Plan) (Peer, error) { return nil, unknown })
	if !errors.Is(err, unknown) {
		t.Errorf("error is %v", err)
	}
}

func TestProcessorTimeIsThatOfTheFamily(t *testing.T) {
	before := familyCPU(os.Getpid())
	for until := time.Now().Add(5 * time.Second); familyCPU(os.Getpid()) == before; {
		if time.Now().After(until) {
			t.Fatal("no processor time in 5 s of work")
		}
	}
}
