package server

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"net/http"
	"slices"
	"sync"
	"time"
)

// room has places in which requests are processed, or bytes of memory that they take. A request that finds none free
// waits in line. Freed places go to the identity that has the fewest, and among equals to the one that has recently
// used the least. So an identity waits for at most one request of another one, however many that sends. Identities
// that have recently used more than their share cannot take all places among them: the rest stays free for others.
//
// A room without a line refuses at once. Until half of its places are taken, an identity may have its full number of
// them; after that, a share.
type room struct {
	each, all int    // places of one identity, and in total
	line      int    // how many requests of one identity may wait
	kept      int    // places that greedy identities must leave free
	of        string // what places are for, in the plural; only of a room without a line

	mu     sync.Mutex
	taken  int
	served uint64 // requests let in, and guests that arrived, so far
	guests map[string]*guest
}

// guest is an identity that has a place, waits, or was here a moment ago.
type guest struct {
	taken   int
	resting int    // places that it rests from; others may have them at once
	served  uint64 // when it was last let in, or arrived
	waiting []*stay
	lined   int // places requested by its requests in line
	wanted  int // places requested elsewhere
	seen    time.Time
	used    usage         // of places
	asked   usage         // of places, and of those requested in line and elsewhere
	usual   time.Duration // how long a request keeps its places, on average
}

// A request in line counts as the use of its places: fully if the guest's requests keep their places for longStay on
// average, and proportionally if for less. If each counted fully, a stall of the database would leave an ordinary
// guest's requests in line, which would make the guest greedy, which would keep its requests waiting for good.
const (
	longStay  = 100 * time.Millisecond
	firstStay = longStay / 10 // assumed for a guest that has just arrived
)

// learn records how long some of all places were kept. A stall of all places changes the average by at most an eighth
// of longStay, which is the most that a long stay counts.
func (g *guest) learn(took time.Duration, places, all int) {
	g.usual += time.Duration(float64(min(took, longStay)-g.usual) * float64(places) / float64(8*all))
}

// usage is the average number of places that an identity had or requested. The further back, the less it counts.
type usage struct {
	mean float64
	at   time.Time
}

// lately is the age at which usage counts half.
const lately = time.Second

// until accounts for the time that has passed with a number of places.
func (u *usage) until(now time.Time, places float64) {
	past := math.Exp2(-float64(now.Sub(u.at)) / float64(lately))
	u.mean, u.at = past*u.mean+(1-past)*places, now
}

// until accounts for the time since the guest's places or requests last changed.
func (g *guest) until(now time.Time) {
	inLine := float64(g.lined) * float64(g.usual) / float64(longStay)
	g.used.until(now, float64(g.taken))
	g.asked.until(now, float64(g.taken+g.wanted)+inLine)
}

// stay is what a request has in a room, or waits for.
type stay struct {
	room *room
	who  string
	size int           // places
	in   chan struct{} // closed when it gets them
	from time.Time     // when it got them
}

// presence is how long an identity keeps its share of the places after its last request.
const presence = time.Second

// refusal is how long a request waits before it is refused. Otherwise a client that repeats it at once would keep a
// processor busy.
const refusal = time.Second

func newRoom(each, all, line int) *room {
	return &room{each: each, all: all, line: line, guests: map[string]*guest{}}
}

// newRoomFor returns a room without a line.
func newRoomFor(of string, each, all int) *room {
	r := newRoom(each, all, 0)
	r.of = of
	return r
}

// keeping makes the room keep places free from identities that use more than their share.
func (r *room) keeping(places int) *room {
	r.kept = places
	return r
}

// enter waits for size places, or as many as one identity may have, until ctx ends.
func (r *room) enter(ctx context.Context, who string, size int) (*stay, error) {
	s, full := r.queue(who, size)
	if full != "" {
		return nil, refuse(ctx, "%s", full)
	}
	select {
	case <-s.in:
	case <-ctx.Done():
		if r.giveUp(s) {
			return nil, busy("your request waited too long for others of yours: send fewer at once")
		}
	}
	return s, nil
}

// queue puts a request in line, or lets it in if there is room. Otherwise full says why not.
func (r *room) queue(who string, size int) (s *stay, full string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	g := r.present(who)
	s = &stay{room: r, who: who, size: min(size, r.each), in: make(chan struct{})}
	g.waiting = append(g.waiting, s)
	g.lined += s.size
	r.serve()
	if len(g.waiting) > r.line {
		g.waiting = g.waiting[:len(g.waiting)-1]
		g.lined -= s.size
		return nil, r.full(g)
	}
	return s, ""
}

// full says which limit keeps a guest from coming in.
func (r *room) full(g *guest) string {
	switch {
	case r.line > 0:
		return fmt.Sprintf("%d of your requests wait for others of yours: send fewer at once", r.line)
	case r.taken >= r.all:
		return fmt.Sprintf("this server has %d %s, as many as it may: try again later", r.all, r.of)
	}
	return fmt.Sprintf("you have %d %s, as many as you may now: end some of them first", g.taken, r.of)
}

// present returns the guest for an identity, creating it if necessary.
func (r *room) present(who string) *guest {
	g := r.guests[who]
	if g == nil {
		r.served++
		g = &guest{served: r.served, usual: firstStay}
		r.guests[who] = g
	}
	g.seen = time.Now()
	g.until(g.seen)
	return g
}

// want counts places that an identity uses or waits for elsewhere as requested here. A negative number undoes that.
func (r *room) want(who string, places int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.present(who).wanted += places
}

// giveUp removes a request from the line, unless it was let in.
func (r *room) giveUp(s *stay) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	g := r.guests[s.who]
	i := slices.Index(g.waiting, s)
	if i < 0 {
		return false
	}
	g.until(time.Now())
	g.waiting = slices.Delete(g.waiting, i, i+1)
	g.lined -= s.size
	r.serve() // others may have waited behind a large one
	return true
}

// leave gives back all places. It may be called again.
func (s *stay) leave() { s.keep(0) }

// worked returns how long the request has had its places.
func (s *stay) worked() time.Duration { return time.Since(s.from) }

// rest gives back all places. A greedy guest can have them again only after a while; until then the processors and
// the disk have time for others, who may have the places at once.
func (s *stay) rest(while time.Duration) {
	r, places := s.room, s.size
	r.mu.Lock()
	g := r.guests[s.who]
	g.resting += places
	time.AfterFunc(while, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		g.resting -= places
		r.serve()
	})
	r.mu.Unlock()
	s.leave()
}

// keep gives back all but size places.
func (s *stay) keep(size int) {
	r := s.room
	r.mu.Lock()
	defer r.mu.Unlock()
	back := max(s.size-size, 0)
	g := r.guests[s.who]
	if back == 0 || g == nil {
		return
	}
	s.size -= back
	g.seen = time.Now()
	g.until(g.seen)
	g.learn(s.worked(), back, r.all)
	g.taken -= back
	r.taken -= back
	r.serve()
}

// serve lets in waiting requests as far as there is room. Smaller requests do not overtake a large one, which would
// otherwise wait forever. Only places that are kept from it may go to others.
func (r *room) serve() {
	now := time.Now()
	each := r.share(now)
	greedy, theirs := r.greedy(now)
	left := r.all - r.kept - theirs
	for full := false; ; {
		var next *guest
		for _, g := range r.guests {
			if g.waits(r.allowed(g, greedy, each)) && !(full && greedy[g]) && (next == nil || g.before(next)) {
				next = g
			}
		}
		if next == nil || r.taken+next.waiting[0].size > r.all {
			return
		}
		s := next.waiting[0]
		if greedy[next] {
			if full = s.size > left && left < r.all-r.kept; full {
				continue
			}
			left -= s.size
		}
		r.taken += s.size
		r.served++
		next.taken, next.lined, next.served = next.taken+s.size, next.lined-s.size, r.served
		next.waiting = next.waiting[1:]
		s.from = now
		close(s.in)
	}
}

// greedy returns the guests that have recently requested more than an equal share of the places, and how many places
// they have or rest from. If all guests are greedy, there are no others to protect, and none counts as greedy.
func (r *room) greedy(now time.Time) (who map[*guest]bool, taken int) {
	who = map[*guest]bool{}
	for _, g := range r.guests {
		g.until(now)
		if r.kept > 0 && g.asked.mean > float64(r.all)/float64(len(r.guests)) {
			who[g] = true
			taken += g.taken + g.resting
		}
	}
	if len(who) == len(r.guests) {
		return nil, 0
	}
	return who, taken
}

// allowed returns how many places a guest may have at once. If places are kept from greedy guests, others need no
// share: if they take all places, they soon become greedy.
func (r *room) allowed(g *guest, greedy map[*guest]bool, share int) int {
	if r.kept > 0 && !greedy[g] || r.line == 0 && 2*r.taken < r.all {
		return r.each
	}
	return share
}

// waits reports whether the guest has a request in line that fits into its share. One request always fits, however
// small the share.
func (g *guest) waits(each int) bool {
	return len(g.waiting) > 0 && (g.taken == 0 || g.taken+g.waiting[0].size <= each)
}

// before compares guests whose usage has been brought up to date.
func (g *guest) before(other *guest) bool {
	return cmp.Or(cmp.Compare(g.taken, other.taken), cmp.Compare(g.used.mean, other.used.mean),
		cmp.Compare(g.served, other.served)) < 0
}

// share returns how many places an identity may have: all places are shared among the identities that are present.
func (r *room) share(now time.Time) int {
	for who, g := range r.guests {
		if g.taken+g.resting+g.lined+g.wanted == 0 && now.Sub(g.seen) > presence {
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

// refuse waits a moment and then returns busy.
func refuse(ctx context.Context, text string, args ...any) *Problem {
	select {
	case <-ctx.Done():
	case <-time.After(refusal):
	}
	return busy(text, args...)
}
