package ledgers_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/ledgers"
	"github.com/tuskqueue/tusk/store/storetest/wires"
)

// Logins get no answer for some seconds, and connections to the server break. Those that are open still work, so no
// ledger is away. The probes of its ledgers wait for one login, not one after the other.
func TestAServerThatLogsInSlowlyIsNotAway(t *testing.T) {
	_, dsns := servers(t, 2)
	if err := divide(8, dsns...); err != nil {
		t.Fatal(err)
	}
	there := []int{4, 5, 6, 7}
	var slow atomic.Bool
	_, through := wires.Start(t, dsns[1], func(*wires.Wire) wires.Pass {
		late := slow.Load()
		return func(piece []byte, _ bool) ([]byte, bool) {
			for late && slow.Load() {
				time.Sleep(time.Millisecond)
			}
			return piece, true
		}
	})
	t.Cleanup(func() { slow.Store(false) })
	const open8 = "&pool_min_conns=8&pool_max_conns=8&pool_health_check_period=50ms"
	s := open(t, dsns[0]+open8, through+open8)
	eventually(t, "connections are open", func() bool { return ledgers.Conns(s, 1) == 8 })
	slow.Store(true)
	for _, no := range there {
		ledgers.Break(s, no)
	}
	began := time.Now()
	for i := 0; time.Since(began) < 4*time.Second; i++ {
		no := there[i%len(there)]
		if _, err := s.Enqueue(context.Background(), []store.NewTask{keyedInto(s, no, nil)}); err != nil {
			t.Fatalf("after %v: %v", time.Since(began), err)
		}
		if time.Since(began) > 2500*time.Millisecond && ledgers.IsProbed(s, no) {
			t.Fatalf("ledger %d is still being probed", no)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// A server refuses connections. The longer it does, the more rarely it is probed. Its return is noticed soon.
func TestAServerThatIsAwayIsProbedMoreRarely(t *testing.T) {
	_, dsns := servers(t, 2)
	if err := divide(4, dsns...); err != nil { // 2 and 3 on the second server
		t.Fatal(err)
	}
	var dying atomic.Bool
	var refused atomic.Int64
	_, through := wires.Start(t, dsns[1], func(w *wires.Wire) wires.Pass {
		if dying.Load() {
			refused.Add(1)
			w.Cut()
		}
		return wires.All(w)
	})
	s := open(t, dsns[0], through)
	add(t, s, keyedInto(s, 2, nil))
	dying.Store(true)
	ledgers.Break(s, 2)
	ledgers.Break(s, 3)
	awaitAway(t, s)
	time.Sleep(4 * time.Second)
	before := refused.Load()
	time.Sleep(3 * time.Second)
	if n := refused.Load() - before; n < 2 || n > 8 {
		t.Errorf("%d connections in 3 s, want about 4", n)
	}
	dying.Store(false)
	began := time.Now()
	eventually(t, "it is back", func() bool {
		_, err := s.Count(context.Background())
		return err == nil
	})
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("its return was noticed after %v", took)
	}
}
