package server

import (
	"context"
	"net/http"
	"runtime"
	"sync"

	"github.com/tuskqueue/tusk/server/access"
)

// shares bounds how much of something there is at a time: in all, and for each
// identity, so that one takes nothing from the others.
type shares struct {
	each, all int

	mu    sync.Mutex
	total int
	of    map[string]int
	freed chan struct{} // closed when somebody gives back
}

func newShares(each, all int) *shares {
	return &shares{each: each, all: all, of: map[string]int{}, freed: make(chan struct{})}
}

// try takes a place if there is one.
func (s *shares) try(who string) (giveBack func(), ok bool) {
	giveBack, _ = s.attempt(who)
	return giveBack, giveBack != nil
}

// take waits for a place until ctx ends.
func (s *shares) take(ctx context.Context, who string) (giveBack func(), err error) {
	for {
		giveBack, freed := s.attempt(who)
		if giveBack != nil {
			return giveBack, nil
		}
		select {
		case <-ctx.Done():
			return nil, busy("too many requests at a time: send fewer at once")
		case <-freed:
		}
	}
}

func (s *shares) attempt(who string) (giveBack func(), freed <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.total >= s.all || s.of[who] >= s.each {
		return nil, s.freed
	}
	s.total++
	s.of[who]++
	return sync.OnceFunc(func() { s.back(who) }), nil
}

func (s *shares) back(who string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.total--
	if s.of[who]--; s.of[who] == 0 {
		delete(s.of, who)
	}
	close(s.freed)
	s.freed = make(chan struct{})
}

func busy(text string) *Problem {
	p := problem(http.StatusServiceUnavailable, "busy", "%s", text)
	p.retryAfter = 1
	return p
}

// Places there are at a time, for one identity and in all.
const (
	ownLarge, allLarge     = 2, 12     // requests that move much: large bodies, lists of tasks
	ownWaiting, allWaiting = 250, 2000 // requests that wait for tasks
)

// ownRunning is how many requests of one identity the database works on at a time; more
// wait in line. It is twice what a pool of connections has by default, so that one
// identity can keep all busy, and a second one's requests are soon at its head.
func ownRunning() int { return max(8, 2*runtime.GOMAXPROCS(0)) }

// turn waits for a place among what an identity has running.
func (s *Server) turn(ctx context.Context, who access.Identity) (giveBack func(), err error) {
	return s.running.take(ctx, who.ID)
}

// largeBody is from how many bytes on a request is large.
const largeBody = 64 << 10

// allParsing is how many large bodies are parsed at a time, which takes nothing but a
// processor: others are left for other requests.
func allParsing() int { return max(1, runtime.GOMAXPROCS(0)/2) }

// large says whether a request may take much memory or time to read or to answer.
func (c *call) large() bool {
	return c.route.Large || c.r.ContentLength > largeBody || c.r.ContentLength < 0
}
