package main

import (
	"testing"
	"time"

	"github.com/tuskqueue/tusk/bench/harness"
	"github.com/tuskqueue/tusk/bench/peers"
	"github.com/tuskqueue/tusk/bench/scenario"
)

func TestContendersOnlyRefuseScenariosThatThereAre(t *testing.T) {
	names := map[string]bool{}
	for _, s := range scenario.All {
		names[s.Name] = true
	}
	for _, c := range peers.All() {
		for _, name := range c.Cannot {
			if !names[name] {
				t.Errorf("%s cannot do %q, which is no scenario", c.Key(), name)
			}
		}
	}
}

func TestPlansOfEverySizeHaveTasks(t *testing.T) {
	for _, size := range []scenario.Size{scenario.Short, scenario.Full} {
		for _, s := range scenario.All {
			for _, speed := range []float64{1, 1000, 1e6} {
				p := s.Plan(size, speed)
				if p.Tasks <= 0 || p.Tasks > size.Most || p.Batch <= 0 || p.Producers <= 0 || patience(size, p) <= 0 {
					t.Errorf("%s at %v tasks/s: %+v", s.Name, speed, p)
				}
			}
		}
	}
}

func TestABusyMachineDoesNotMakeAContenderLookSlow(t *testing.T) {
	sample := func(took, cpu time.Duration) harness.Sample {
		return harness.Sample{Result: harness.Result{Tasks: 1000, Took: took}, ServerCPU: cpu}
	}
	quiet, busy := likelySpeed(sample(100*time.Millisecond, 150*time.Millisecond)),
		likelySpeed(sample(300*time.Millisecond, 150*time.Millisecond))
	if busy < quiet/3+1 || busy > 4*1000/0.3 {
		t.Errorf("%v tasks/s on a busy machine, %v on a quiet one", busy, quiet)
	}
	if idle := likelySpeed(sample(10*time.Second, 0)); idle != 400 {
		t.Errorf("a contender that waits does %v tasks/s, want four times what it did", idle)
	}
}

// What a meter costs the server was counted as the contender's.
func TestAMeterLeavesItselfOut(t *testing.T) {
	h := &house{}
	defer h.close()
	p, err := h.placeInPostgres(t.Context(), false)
	if err != nil {
		t.Fatal(err)
	}
	defer p.leave()
	least := time.Hour
	for range 5 { // the server also does other things now and then
		before, err := p.meter.Read(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		after, err := p.meter.Read(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if own := after.CPU - after.Before; own < 0 { // the processor time may have a resolution of ten milliseconds
			t.Fatalf("reading costs %v", own)
		}
		least = min(least, after.Before-before.CPU)
	}
	if least > time.Millisecond {
		t.Errorf("between two readings the server takes %v", least)
	}
}

func TestContendersOfEverydayRunsAreCalledWhatTheirTableCallsThem(t *testing.T) {
	names := map[string]bool{}
	for _, c := range peers.Everyday() {
		names[c.Key()] = true
	}
	if !names["River, its defaults"] {
		t.Errorf("there are %v", names)
	}
}
