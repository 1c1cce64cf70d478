package server

import (
	"context"
	"io"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tuskqueue/tusk/server/access"
)

// blank is a body of a given length, whose bytes are not even written.
type blank int

func (b *blank) Read(p []byte) (n int, err error) {
	if *b == 0 {
		return 0, io.EOF
	}
	n = min(len(p), int(*b))
	*b -= blank(n)
	return n, nil
}

// workedOf returns the share of the time that an identity works while it repeats do, alone or next to another
// identity that comes now and then.
func workedOf(t *testing.T, alone bool, do func(ctx context.Context, r rooms, work func())) (share float64) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		const settle, long = 5 * time.Second, 20 * time.Second
		r := newRooms(8<<20, 2)
		ctx, cancel := context.WithTimeout(t.Context(), settle+long)
		defer cancel()
		begun := time.Now()
		var mu sync.Mutex
		var worked time.Duration
		work := func() {
			time.Sleep(10 * time.Millisecond)
			if mu.Lock(); time.Since(begun) > settle {
				worked += 10 * time.Millisecond
			}
			mu.Unlock()
		}
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				for ctx.Err() == nil {
					do(ctx, r, work)
				}
			})
		}
		for !alone && ctx.Err() == nil {
			if leave, err := r.work(ctx, "few", false); err == nil {
				leave()
			}
			time.Sleep(100 * time.Millisecond)
		}
		all.Wait()
		share = worked.Seconds() / long.Seconds()
	})
	return share
}

func TestWhoWaitsForMemoryOrHeavyWorkAsksForAPlace(t *testing.T) {
	heavy := func(ctx context.Context, r rooms, work func()) {
		memory, err := r.before(ctx, r.memory, "many", bodyCost*8<<20)
		if err != nil {
			return
		}
		defer memory.leave()
		if leave, err := r.work(ctx, "many", true); err == nil {
			work()
			leave()
		}
	}
	if share := workedOf(t, false, heavy); share > 0.3 || share < 0.2 {
		t.Errorf("heavy work of eight at a time is done %.2f of the time beside others, want a quarter", share)
	}
	if share := workedOf(t, true, heavy); share < 0.99 {
		t.Errorf("heavy work is done %.2f of the time alone", share)
	}
}

func TestUploadsRestBesideOthers(t *testing.T) {
	upload := func(ctx context.Context, r rooms, work func()) {
		c := &call{Server: &Server{rooms: r}, r: (&http.Request{}).WithContext(ctx), who: access.Identity{ID: "many"}}
		body := blank(4 * pacePiece)
		p := &paced{from: &body, call: c}
		defer p.end()
		for buffer := make([]byte, 2*pacePiece); ; work() {
			if _, err := io.ReadFull(p, buffer[:pacePiece]); err != nil {
				return
			}
		}
	}
	if share := workedOf(t, false, upload); share > 1 {
		t.Errorf("%.2f uploads are written at a time beside others", share)
	}
	if share := workedOf(t, true, upload); share < 7.9 {
		t.Errorf("%.2f of eight uploads are written at a time alone", share)
	}
}
