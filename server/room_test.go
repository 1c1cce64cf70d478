package server

import (
	"context"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// has reports whether a request has its place.
func has(s *stay) bool {
	select {
	case <-s.in:
		return true
	default:
		return false
	}
}

// Many identities with a place each leave an identity its full number, until the room is half full.
func TestARoomWithoutALineSharesOnceItIsHalfFull(t *testing.T) {
	r := newRoomFor("uploads", 10, 40)
	fill := func(who string, most int) (got int, full string) {
		for got < most {
			if _, full = r.queue(who, 1); full != "" {
				return got, full
			}
			got++
		}
		return got, ""
	}
	for _, who := range []string{"a", "b", "c", "d", "e", "f", "g"} {
		fill(who, 1)
	}
	if got, full := fill("many", 11); got != 10 ||
		full != "you have 10 uploads, as many as you may now: end some of them first" {
		t.Errorf("with 7 of 40 places taken: %d, %q", got, full)
	}
	fill("a", 4)
	if got, full := fill("late", 10); got != 5 ||
		full != "you have 5 uploads, as many as you may now: end some of them first" {
		t.Errorf("with half of the places taken: %d, %q", got, full)
	}
	for _, who := range []string{"b", "c", "d", "e", "f", "g"} {
		fill(who, 10)
	}
	if _, full := r.queue("new", 1); full != "this server has 40 uploads, as many as it may: try again later" {
		t.Errorf("when it is full: %q", full)
	}
}

func TestNobodyWaitsForMoreThanOneRequestOfAnother(t *testing.T) {
	r := newRoom(4, 4, 200)
	var many []*stay
	for range 100 {
		place, _ := r.queue("many", 1)
		many = append(many, place)
	}
	few, _ := r.queue("few", 1)
	if !has(many[3]) || has(many[4]) || has(few) {
		t.Fatal("a room of four places has not let in the first four")
	}
	many[0].leave()
	if !has(few) || has(many[4]) {
		t.Error("the place that came free went to who has three already")
	}
	third, _ := r.queue("third", 1)
	many[1].leave()
	if !has(third) || has(many[4]) {
		t.Error("the next place did not go to who has none")
	}
}

func TestPlacesAreSharedAmongThosePresent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRoom(4, 4, 200)
		enter := func(who string) (*stay, bool) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			defer cancel()
			place, err := r.enter(ctx, who, 1)
			return place, err == nil
		}
		few, _ := enter("few")
		few.leave()
		enter("many")
		enter("many")
		if _, ok := enter("many"); ok {
			t.Error("one has three of four places while another is present")
		}
		time.Sleep(2 * presence)
		if _, ok := enter("many"); !ok {
			t.Error("one alone has not all places")
		}
	})
}

func TestWhoUsesMoreThanTheirShareLeavePlacesFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRoom(4, 4, 200).keeping(2)
		var held []*stay
		for _, who := range []string{"a", "b", "a", "b"} {
			place, _ := r.queue(who, 1)
			held = append(held, place)
		}
		if !has(held[3]) {
			t.Fatal("four places are not for the first four")
		}
		time.Sleep(3 * lately)
		more, _ := r.queue("a", 1)
		few, _ := r.queue("few", 1)
		again, _ := r.queue("few", 1)
		if held[0].leave(); has(more) || !has(few) {
			t.Error("a place went to who uses more than their share, not to who uses less")
		}
		if held[1].leave(); has(more) || !has(again) {
			t.Error("two who use more than their share do not leave places free")
		}
		few.leave()
		again.leave()
		if has(more) {
			t.Error("a place that is kept free was taken")
		}
		if held[2].leave(); !has(more) {
			t.Error("who uses more than their share has no place at all")
		}
		if other, _ := r.queue("new", 1); !has(other) {
			t.Error("who is new has to wait")
		}
	})
}

func TestALineThatIsFullRefusesAfterAPauseAndNamesTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRoom(1, 1, 1)
		first, err := r.enter(t.Context(), "a", 1)
		if err != nil {
			t.Fatal(err)
		}
		entered := make(chan error)
		go func() {
			_, err := r.enter(t.Context(), "a", 1)
			entered <- err
		}()
		synctest.Wait()
		begun := time.Now()
		_, err = r.enter(t.Context(), "a", 1)
		p := problemOf(err)
		if p.Status != http.StatusServiceUnavailable || p.retryAfter == 0 ||
			!strings.Contains(p.Detail, "1 of your requests wait") {
			t.Errorf("the answer is %d %q, Retry-After %d", p.Status, p.Detail, p.retryAfter)
		}
		if time.Since(begun) < refusal {
			t.Error("a refusal came at once")
		}
		first.leave()
		if err := <-entered; err != nil {
			t.Errorf("who stood in line got %v", err)
		}
	})
}

func TestWhoGivesUpLeavesTheLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRoom(1, 1, 10)
		first, _ := r.enter(t.Context(), "a", 1)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := r.enter(ctx, "a", 1); err == nil {
			t.Error("two are in a room of one place")
		}
		first.leave()
		if again, err := r.enter(t.Context(), "b", 1); err != nil {
			t.Error(err)
		} else {
			again.leave()
		}
		if r.taken != 0 {
			t.Errorf("%d places are taken in an empty room", r.taken)
		}
	})
}

func TestMemoryIsSharedByItsBytes(t *testing.T) {
	r := newRoom(32, 64, 200)
	large, _ := r.queue("many", 32)
	next, _ := r.queue("many", 8)
	few, _ := r.queue("few", 30)
	third, _ := r.queue("third", 40) // as much as one identity may have
	small, _ := r.queue("small", 1)
	if !has(large) || has(next) || !has(few) || has(third) {
		t.Fatal("the first of each were not let in as far as there is room")
	}
	if has(small) {
		t.Error("a small request passed a large one that came before: those never end")
	}
	if few.leave(); !has(third) || has(next) {
		t.Error("a large request that is alone has no room")
	}
	if large.keep(4); !has(small) || !has(next) {
		t.Error("what was given back before the end is not used")
	}
	large.leave()
	large.leave()
	third.leave()
	next.leave()
	small.leave()
	if r.taken != 0 {
		t.Errorf("%d bytes are taken of an empty room", r.taken)
	}
}

func TestAnIdentityIsToldFewRefusalsASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Server{rooms: newRooms(8<<20, runtime.GOMAXPROCS(0))}
		begun := time.Now()
		for range 5 * refusals {
			s.tell(t.Context(), "many")
		}
		if took := time.Since(begun); took != 4*refusalSpan {
			t.Errorf("%d refusals took %v, want %v", 5*refusals, took, 4*refusalSpan)
		}
		begun = time.Now()
		if s.tell(t.Context(), "few"); time.Since(begun) > 0 {
			t.Error("the refusals of one delayed another's")
		}
		time.Sleep(refusalSpan)
	})
}

// deadlines records the deadlines that are set.
type deadlines struct {
	http.ResponseWriter
	read, write []time.Time
	sent        int
}

func (d *deadlines) Write(b []byte) (int, error) { d.sent += len(b); return len(b), nil }

func (d *deadlines) SetReadDeadline(t time.Time) error {
	d.read = append(d.read, t)
	return nil
}

func (d *deadlines) SetWriteDeadline(t time.Time) error {
	d.write = append(d.write, t)
	return nil
}

func TestEachPartOfALargeBodyAndAnswerHasADeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Server{rooms: newRooms(8<<20, runtime.GOMAXPROCS(0))}
		text := strings.Repeat("x", 3*part+1)
		for _, size := range []int64{int64(len(text)), -1} {
			w := &deadlines{}
			c := &call{Server: s, w: w, r: (&http.Request{ContentLength: size}).WithContext(t.Context())}
			c.config.MaxBody = 8 << 20
			body, err := c.receive(strings.NewReader(text))
			if err != nil || string(body) != text {
				t.Fatalf("received %d of %d bytes: %v", len(body), len(text), err)
			}
			if n := len(w.read); n < 4 || w.read[0] != time.Now().Add(partTime) || !w.read[n-1].IsZero() {
				t.Errorf("the deadlines of a body are %v", w.read)
			}
			if !c.heavy || s.rooms.memory.taken < bodyCost*len(text) {
				t.Errorf("a body of %d bytes took %d bytes of memory", len(text), s.rooms.memory.taken)
			}
			if err := c.send(body); err != nil || w.sent != len(text) || len(w.write) != 5 ||
				w.write[3] != time.Now().Add(partTime) || w.write[4] != time.Now().Add(betweenParts) {
				t.Errorf("%d bytes were sent with the deadlines %v, %v", w.sent, w.write, err)
			}
			c.keep(0)
		}
		c := &call{Server: s, w: &deadlines{}, r: (&http.Request{ContentLength: -1}).WithContext(t.Context())}
		if body, err := c.receive(strings.NewReader("{}")); string(body) != "{}" || err != nil || c.heavy ||
			s.rooms.memory.taken > 0 {
			t.Errorf("a small body of unknown size is large: %q, %v", body, err)
		}
	})
}
