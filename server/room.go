package server

import (
	"context"
	"net/http"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/tuskqueue/tusk/server/access"
)

// room has places in which requests are worked on. Who finds none waits in line. A place
// that is given back goes to the identity that has the fewest, and among those to the one
// that was served longest ago: so nobody waits for more than one request of another,
// however many that one sends.
type room struct {
	each, all int // places of one identity, and of all
	line      int // how many requests of one identity may wait

	mu     sync.Mutex
	taken  int
	served uint64 // places given so far
	guests map[string]*guest
}

// guest is an identity that has a place, waits, or was here a moment ago.
type guest struct {
	taken   int
	served  uint64          // when it last got a place
	waiting []chan struct{} // closed when they have a place
	seen    time.Time
}

// present is for how long an identity has a share of the places after its last request.
const present = time.Second

// refusal is how long a request waits before it is refused: who repeats it at once would
// otherwise take a processor with it.
const refusal = time.Second

func newRoom(each, all, line int) *room {
	return &room{each: each, all: all, line: line, guests: map[string]*guest{}}
}

// enter waits for a place until ctx ends.
func (r *room) enter(ctx context.Context, who string) (leave func(), err error) {
	place, ok := r.queue(who)
	if !ok {
		return nil, refuse(ctx, "at most %d of your requests may be under way and %d wait: send fewer at once", r.each, r.line)
	}
	select {
	case <-place:
	case <-ctx.Done():
		if r.giveUp(who, place) {
			return nil, busy("your request waited too long for others of yours: send fewer at once")
		}
	}
	return sync.OnceFunc(func() { r.leave(who) }), nil
}

// queue puts a request in line, or in a place if there is one.
func (r *room) queue(who string) (place chan struct{}, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	g := r.guests[who]
	if g == nil {
		g = &guest{}
		r.guests[who] = g
	}
	g.seen = time.Now()
	place = make(chan struct{})
	g.waiting = append(g.waiting, place)
	r.serve()
	if len(g.waiting) > r.line {
		g.waiting = g.waiting[:len(g.waiting)-1]
		return nil, false
	}
	return place, true
}

// giveUp takes a request out of the line, unless it has a place.
func (r *room) giveUp(who string, place chan struct{}) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	g := r.guests[who]
	i := slices.Index(g.waiting, place)
	if i < 0 {
		return false
	}
	g.waiting = slices.Delete(g.waiting, i, i+1)
	return true
}

func (r *room) leave(who string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	g := r.guests[who]
	g.seen = time.Now()
	g.taken--
	r.taken--
	r.serve()
}

// serve gives the free places to those who wait.
func (r *room) serve() {
	each := r.share()
	for r.taken < r.all {
		var next *guest
		for _, g := range r.guests {
			if len(g.waiting) > 0 && g.taken < each && (next == nil || g.before(next)) {
				next = g
			}
		}
		if next == nil {
			return
		}
		r.taken++
		r.served++
		next.taken, next.served = next.taken+1, r.served
		close(next.waiting[0])
		next.waiting = next.waiting[1:]
	}
}

func (g *guest) before(other *guest) bool {
	if g.taken != other.taken {
		return g.taken < other.taken
	}
	return g.served < other.served
}

// share is how many places an identity may have: all are shared among those present.
func (r *room) share() int {
	now := time.Now()
	for who, g := range r.guests {
		if g.taken == 0 && len(g.waiting) == 0 && now.Sub(g.seen) > present {
			delete(r.guests, who)
		}
	}
	return min(r.each, (r.all+len(r.guests)-1)/max(len(r.guests), 1))
}

func busy(text string, args ...any) *Problem {
	p := problem(http.StatusServiceUnavailable, "busy", text, args...)
	p.retryAfter = 1
	return p
}

// refuse is busy, after a pause.
func refuse(ctx context.Context, text string, args ...any) *Problem {
	select {
	case <-ctx.Done():
	case <-time.After(refusal):
	}
	return busy(text, args...)
}

// rooms are all there are. Heavy work (large bodies, lists of tasks) has few places of its
// own; other work has as many as a pool of connections has by default.
type rooms struct {
	waiting *room // requests that wait for tasks
	moving  *room // requests with large bodies or answers, from the first byte to the last
	heavy   *room // those of them that are worked on
	working *room // other requests that are worked on
}

const ownLine = 200 // requests of an identity that wait in each room

func newRooms() rooms {
	processors := runtime.GOMAXPROCS(0)
	heavy, working := max(1, processors/4), max(4, processors)
	return rooms{waiting: newRoom(250, 2000, 0), moving: newRoom(2, 8, ownLine), heavy: newRoom(1, heavy, ownLine),
		working: newRoom(working, working, ownLine)}
}

// turn waits for a place to work.
func (s *Server) turn(ctx context.Context, who access.Identity) (leave func(), err error) {
	return s.rooms.working.enter(ctx, who.ID)
}

// work waits for a place to work until rest gives it back. A call has one at most.
func (c *call) work() (err error) {
	if c.leave != nil || c.route.Need == access.Open {
		return nil
	}
	room := c.rooms.working
	if c.large() {
		room = c.rooms.heavy
	}
	c.leave, err = room.enter(c.r.Context(), c.who.ID)
	return err
}

func (c *call) rest() {
	if c.leave != nil {
		c.leave()
		c.leave = nil
	}
}

// largeBody is from how many bytes on a request is large.
const largeBody = 64 << 10

// large reports whether a request may take much memory or time to read or to answer.
func (c *call) large() bool {
	return c.route.Large || c.r.ContentLength > largeBody || c.r.ContentLength < 0
}
