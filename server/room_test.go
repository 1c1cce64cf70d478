package server

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// has reports whether a request has its place.
func has(place chan struct{}) bool {
	select {
	case <-place:
		return true
	default:
		return false
	}
}

func TestNobodyWaitsForMoreThanOneRequestOfAnother(t *testing.T) {
	r := newRoom(4, 4, 200)
	var many []chan struct{}
	for range 100 {
		place, _ := r.queue("many")
		many = append(many, place)
	}
	few, _ := r.queue("few")
	if !has(many[3]) || has(many[4]) || has(few) {
		t.Fatal("a room of four places has not let in the first four")
	}
	r.leave("many")
	if !has(few) || has(many[4]) {
		t.Error("the place that came free went to who has three already")
	}
	third, _ := r.queue("third")
	r.leave("many")
	if !has(third) || has(many[4]) {
		t.Error("the next place did not go to who has none")
	}
}

func TestPlacesAreSharedAmongThosePresent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRoom(4, 4, 200)
		enter := func(who string) (leave func(), ok bool) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			defer cancel()
			leave, err := r.enter(ctx, who)
			return leave, err == nil
		}
		leave, _ := enter("few")
		leave()
		enter("many")
		enter("many")
		if _, ok := enter("many"); ok {
			t.Error("one has three of four places while another is present")
		}
		time.Sleep(2 * present)
		if _, ok := enter("many"); !ok {
			t.Error("one alone has not all places")
		}
	})
}

func TestALineThatIsFullRefusesAfterAPauseAndNamesTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRoom(1, 1, 1)
		leave, err := r.enter(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		entered := make(chan error)
		go func() {
			_, err := r.enter(t.Context(), "a")
			entered <- err
		}()
		synctest.Wait()
		begun := time.Now()
		_, err = r.enter(t.Context(), "a")
		p := problemOf(err)
		if p.Status != http.StatusServiceUnavailable || p.retryAfter == 0 || !strings.Contains(p.Detail, "at most 1 ") {
			t.Errorf("the answer is %d %q, Retry-After %d", p.Status, p.Detail, p.retryAfter)
		}
		if time.Since(begun) < refusal {
			t.Error("a refusal came at once")
		}
		leave()
		if err := <-entered; err != nil {
			t.Errorf("who stood in line got %v", err)
		}
	})
}

func TestWhoGivesUpLeavesTheLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRoom(1, 1, 10)
		leave, _ := r.enter(t.Context(), "a")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := r.enter(ctx, "a"); err == nil {
			t.Error("two are in a room of one place")
		}
		leave()
		if again, err := r.enter(t.Context(), "b"); err != nil {
			t.Error(err)
		} else {
			again()
		}
		if r.taken != 0 {
			t.Errorf("%d places are taken in an empty room", r.taken)
		}
	})
}
