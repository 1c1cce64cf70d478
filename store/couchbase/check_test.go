package couchbase

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tuskqueue/tusk/internal/cbfake"
)

// Check warns of a missing index and of nodes with different clocks, and of nothing if all is well.
func TestCheckWarns(t *testing.T) {
	r := newRig(t, 3)
	r.durable("majority")
	warnings := func() string {
		t.Helper()
		all, err := r.a.Check(r.ctx())
		r.must("check", err)
		all = slices.DeleteFunc(all, func(w string) bool { return strings.Contains(w, "catch up") }) // a busy machine
		return strings.Join(all, "\n")
	}
	if got := warnings(); got != "" {
		t.Errorf("nothing is wrong, and it says %q", got)
	}
	r.f.DropIndex("tusk", "tusk_due")
	r.f.Set(cbfake.Faults{Skew: map[int]time.Duration{1: time.Hour}})
	got := warnings()
	for _, part := range []string{"tusk_due", "clocks of the nodes are at least"} {
		if !strings.Contains(got, part) {
			t.Errorf("it says %q, and not %q", got, part)
		}
	}
}

// If the clock of the only node was set back, Check says that the time stands still.
func TestCheckSaysThatTheTimeStandsStill(t *testing.T) {
	r := newRig(t, 1)
	r.f.JumpClock(-time.Hour)
	all, err := r.a.Check(r.ctx())
	r.must("check", err)
	if got := strings.Join(all, "\n"); !strings.Contains(got, "time stands still") ||
		!strings.Contains(got, "1h0m0s ahead") && !strings.Contains(got, "59m5") {
		t.Errorf("it says %q", got)
	}
}

// Examine knows the server, its clock and the leader.
func TestExamine(t *testing.T) {
	r := newRig(t, 1)
	h, err := r.a.Examine(r.ctx())
	r.must("examine", err)
	if h.Server != "Couchbase Server "+cbfake.Version || h.Leader.Term != r.term || !h.Leader.Held || h.Now.IsZero() {
		t.Errorf("it says %+v", h)
	}
}
