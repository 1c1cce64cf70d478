package server

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestTheGreedyRestForAsLongAsTheyWorked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRoom(4, 4, 200).keeping(3)
		var many []*stay
		queue := func(n int) (held *stay) {
			for range n {
				place, _ := r.queue("many", 1)
				many = append(many, place)
			}
			return many[len(many)-n]
		}
		for _, place := range [...]*stay{queue(1), queue(1), queue(1), queue(1)} {
			defer place.leave()
		}
		time.Sleep(3 * lately)
		next := queue(2)
		many[0].rest(many[0].worked())
		if !has(next) {
			t.Error("who is alone has to rest")
		}
		few, _ := r.queue("few", 1)
		for _, place := range many[1:4] {
			place.rest(place.worked())
		}
		if !has(few) {
			t.Error("another one waits for those who rest")
		}
		next.rest(next.worked())
		for _, left := range []time.Duration{3*lately - time.Millisecond, 2 * time.Millisecond} {
			if has(many[5]) {
				t.Errorf("who worked for %v did not rest for as long", 3*lately)
			}
			few.leave()
			few, _ = r.queue("few", 1)
			time.Sleep(left)
		}
		if !has(many[5]) {
			t.Error("who has rested does not work again")
		}
	})
}

// A guest sends four requests that take no time for every one that takes 90 ms. It is still greedy.
func TestShortRequestsHideNoLongOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRooms(8<<20, 2)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		begun, waited := time.Now(), 0
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				for n := 0; ctx.Err() == nil; n++ {
					leave, err := r.work(ctx, "many", false)
					if err != nil {
						return
					}
					if time.Sleep(100 * time.Microsecond); n%5 == 0 {
						time.Sleep(90 * time.Millisecond)
					}
					leave()
				}
			})
		}
		for ctx.Err() == nil {
			asked := time.Now()
			leave, err := r.work(ctx, "few", false)
			if err != nil {
				break
			}
			if time.Since(begun) > 5*time.Second && time.Since(asked) > time.Millisecond {
				waited++
			}
			leave()
			time.Sleep(50 * time.Millisecond)
		}
		all.Wait()
		if waited > 3 {
			t.Errorf("%d requests found no place", waited)
		}
	})
}

// Ordinary guests have four concurrent requests each. A greedy one keeps eight requests in line, each of which takes
// 300 ms and rests three times as long. After the database has stalled for all of them, the ordinary guests are as
// fast as before.
func TestAStallOfAllMakesNoOrdinaryGuestGreedy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const stallAt, stall, settle = 10 * time.Second, 800 * time.Millisecond, 4 * time.Second
		r := newRooms(8<<20, 2)
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		begun := time.Now()
		var slow, quick int
		var mu sync.Mutex
		hand := func(who string, heavy bool, took, pause time.Duration) {
			for ctx.Err() == nil {
				asked := time.Now()
				leave, err := r.work(ctx, who, heavy)
				if err != nil {
					return
				}
				waited := time.Since(asked)
				end := time.Since(begun) + took
				if end > stallAt && end < stallAt+stall+took {
					end = stallAt + stall + took
				}
				time.Sleep(end - time.Since(begun))
				leave()
				if mu.Lock(); !heavy && end > stallAt+stall+settle {
					if quick++; waited > took {
						slow++
					}
				}
				mu.Unlock()
				time.Sleep(pause)
			}
		}
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() { hand("many", true, 300*time.Millisecond, 0) })
		}
		for _, who := range []string{"a", "b", "c", "d", "e"} {
			for range 4 {
				all.Go(func() { hand(who, false, 3*time.Millisecond, 100*time.Millisecond) })
			}
		}
		all.Wait()
		if slow > 0 {
			t.Errorf("%d of %d requests of ordinary guests had to wait long after the stall", slow, quick)
		}
	})
}
