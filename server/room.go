package server

import (
	"cmp"
	"context"
	"math"
	"net/http"
	"slices"
	"sync"
	"time"
)

// room has places in which requests are worked on, or bytes of memory that they take. Who finds none
// free waits in line. What is given back goes to the identity that has the least, and among those to
// the one that has used the least lately: so nobody waits for more than one request of another,
// however many that one sends. Identities that have used more than their share lately do not
// get all places among them: the rest is free when another one comes.
type room struct {
	each, all int // places of one identity, and of all
	line      int // how many requests of one identity may wait
	kept      int // places that those who use more than their share leave free

	mu     sync.Mutex
	taken  int
	served uint64 // requests let in so far, and guests that came
	guests map[string]*guest
}

// guest is an identity that has a place, waits, or was here a moment ago.
type guest struct {
	taken   int
	resting int    // places that it has given back, and that others may have at once
	served  uint64 // when it was last let in, or came
	waiting []*stay
	lined   int // places that those in line ask for
	wanted  int // places asked for elsewhere
	seen    time.Time
	used    usage         // places
	asked   usage         // places, and what the requests in line and elsewhere ask for
	usual   time.Duration // for how long a request has its places, on average
}

// A request in line counts for what it would take: wholly if its guest's requests have their places for longStay
// on average, and in proportion if for less. If each counted wholly, a stall of the database would have an ordinary
// guest's requests wait in line, which would make it greedy, for which they would wait, for good.
const (
	longStay  = 100 * time.Millisecond
	firstStay = longStay / 10 // what is presumed of a guest that has just come
)

// learn takes note of how long some of all places were had. A stall of all of them changes the average by an eighth
// of longStay at most, which is what a longer stay counts for.
func (g *guest) learn(took time.Duration, places, all int) {
	g.usual += time.Duration(float64(min(took, longStay)-g.usual) * float64(places) / float64(8*all))
}

// usage is how many places somebody had, or asked for, on average. What lies back counts less.
type usage struct {
	mean float64
	at   time.Time
}

// lately is after how long what was used counts for half.
const lately = time.Second

// until counts the time that has passed with so many places.
func (u *usage) until(now time.Time, places float64) {
	past := math.Exp2(-float64(now.Sub(u.at)) / float64(lately))
	u.mean, u.at = past*u.mean+(1-past)*places, now
}

// until counts the time that has passed since what a guest has, or asks for, last changed.
func (g *guest) until(now time.Time) {
	inLine := float64(g.lined) * float64(g.usual) / float64(longStay)
	g.used.until(now, float64(g.taken))
	g.asked.until(now, float64(g.taken+g.wanted)+inLine)
}

// stay is what a request has of a room, or waits for.
type stay struct {
	room *room
	who  string
	size int           // places
	in   chan struct{} // closed when it has them
	from time.Time     // when it got them
}

// presence is for how long an identity has a share of the places after its last request.
const presence = time.Second

// refusal is how long a request waits before it is refused: who repeats it at once would
// otherwise take a processor with it.
const refusal = time.Second

func newRoom(each, all, line int) *room {
	return &room{each: each, all: all, line: line, guests: map[string]*guest{}}
}

// keeping is a room that keeps places from those who use more than their share.
func (r *room) keeping(places int) *room {
	r.kept = places
	return r
}

// enter waits for size places, or as many as one may have, until ctx ends.
func (r *room) enter(ctx context.Context, who string, size int) (*stay, error) {
	s, ok := r.queue(who, size)
	if !ok {
		return nil, refuse(ctx, "%d of your requests wait for others of yours: send fewer at once", r.line)
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

// queue puts a request in line, or lets it in if there is room.
func (r *room) queue(who string, size int) (s *stay, ok bool) {
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
		return nil, false
	}
	return s, true
}

// present is the guest that an identity is, or becomes.
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

// want counts places that an identity uses or waits for elsewhere as asked for here, until it calls it again with less.
func (r *room) want(who string, places int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.present(who).wanted += places
}

// giveUp takes a request out of the line, unless it was let in.
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

// leave gives back all places; again, none.
func (s *stay) leave() { s.keep(0) }

// worked is for how long it has had its places.
func (s *stay) worked() time.Duration { return time.Since(s.from) }

// rest gives back all places. The greedy may have them again after a while: until then the processors
// and the disk have time for others, who may have them at once.
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

// keep gives back all but so many places.
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

// serve lets in those who wait, as far as there is room. A large request is not passed by
// smaller ones: it would wait for ever. Only what is kept from it may go to others.
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

// greedy are the guests that have lately asked for more than an equal share of the places, and how
// much they have now, or rest from. Nobody is while there is no other to protect from them.
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

// allowed is how many places a guest may have at once. Where places are kept from the greedy, others
// need no share: they soon ask for too much, if they take all.
func (r *room) allowed(g *guest, greedy map[*guest]bool, share int) int {
	if r.kept > 0 && !greedy[g] {
		return r.each
	}
	return share
}

// waits reports whether a guest has a request in line that its share has room for. One
// request always may, however small the share.
func (g *guest) waits(each int) bool {
	return len(g.waiting) > 0 && (g.taken == 0 || g.taken+g.waiting[0].size <= each)
}

// before compares guests whose usage was counted up to now.
func (g *guest) before(other *guest) bool {
	return cmp.Or(cmp.Compare(g.taken, other.taken), cmp.Compare(g.used.mean, other.used.mean),
		cmp.Compare(g.served, other.served)) < 0
}

// share is how many places an identity may have: all are shared among those present.
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

// refuse is busy, after a pause.
func refuse(ctx context.Context, text string, args ...any) *Problem {
	select {
	case <-ctx.Done():
	case <-time.After(refusal):
	}
	return busy(text, args...)
}
