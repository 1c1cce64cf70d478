package ledgers_test

import (
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/ledgers"
)

// A server becomes known while a process listens, like a new node of a cluster. The process hears of tasks there.
func TestAListenerHearsOfServersThatCome(t *testing.T) {
	_, dsns := servers(t, 2)
	if err := divide(2, dsns...); err != nil {
		t.Fatal(err)
	}
	s, producer := open(t, dsns[0]), open(t, dsns...)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	woken := make(chan string, 100)
	go func() {
		_ = s.Listen(ctx, func(h store.Hint) {
			for _, queue := range h.Queues {
				select {
				case woken <- queue:
				default:
				}
			}
		})
	}()
	hears := func(no int, queue string) {
		eventually(t, "it hears of the queue "+queue, func() bool {
			add(t, producer, keyedInto(producer, no, func(n *store.NewTask) { n.Queue = queue }))
			select {
			case got := <-woken:
				return got == queue
			case <-time.After(100 * time.Millisecond):
				return false
			}
		})
	}
	hears(0, "here")
	if err := ledgers.Meet(ctx, s, dsns[1]); err != nil {
		t.Fatal(err)
	}
	hears(1, "there")
}

// A server without ledgers, such as a standby that is to take some over, costs a listener nothing.
func TestAListenerRestsWhereNoLedgersAre(t *testing.T) {
	_, dsns := servers(t, 2)
	if err := divide(2, dsns[0]); err != nil {
		t.Fatal(err)
	}
	s := open(t, dsns...)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() { _ = s.Listen(ctx, func(store.Hint) {}) }()
	time.Sleep(500 * time.Millisecond) // it connects
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	time.Sleep(2 * time.Second)
	runtime.ReadMemStats(&after)
	if n := after.Mallocs - before.Mallocs; n > 50_000 {
		t.Errorf("%d allocations in two seconds in which nothing happens", n)
	}
}
