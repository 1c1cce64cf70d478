package main

import (
	"testing"

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
