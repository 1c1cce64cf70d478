package server

import (
	"context"
	"time"

	"github.com/tuskqueue/tusk/server/access"
	"github.com/tuskqueue/tusk/server/ui"
)

// rooms are all there are. Heavy work (large bodies, lists of tasks) has few places of its
// own; other work has as many as a pool of connections has by default.
type rooms struct {
	connections *room // connections that are open

	waiting *room // requests that wait for tasks
	uploads *room // parts that come, and uploads that are put together
	memory  *room // bytes that large requests take, from the first one read to the last one sent
	heavy   *room // large bodies and lists that are worked on
	working *room // other requests that are worked on
	refused *room // refusals that are told
}

const (
	ownLine    = 200 // requests of an identity that wait in each room
	ownUploads = 16  // of an identity that are under way

	// largeBody is from how many bytes on a request is large.
	largeBody = 64 << 10
	// bodyCost is how many bytes of memory a byte of a body takes: itself, its decoded form, what
	// the store makes of it, and what the driver sends.
	bodyCost = 4
	// answerCost is how many bytes a large answer takes while it is made: about 6 MiB of args as they
	// were read, as they are shown, and as they are sent.
	answerCost = 24 << 20

	// heavyRests is how many times as long as heavy work took the greedy rest from it.
	heavyRests = 3

	// An identity is told so many refusals in each span; more of them wait.
	refusals    = 5
	refusalSpan = 100 * time.Millisecond
)

func newRooms(maxBody int64, processors int) rooms {
	heavy, working := max(1, processors/4), max(4, processors)
	largest := max(bodyCost*int(maxBody), answerCost)
	return rooms{
		connections: newRoom(ownConnections, maxConnections, 0),
		waiting:     newRoom(250, 2000, 0),
		uploads:     newRoom(ownUploads, maxConnections, 0),
		memory:      newRoom(largest, 2*largest, ownLine).keeping(largest),
		heavy:       newRoom(1, heavy, ownLine),
		working:     newRoom(working, working, ownLine).keeping(working - max(1, processors/2)),
		refused:     newRoom(refusals, 20*refusals, ownLine),
	}
}

// work waits for a place to work until leave gives it back. Heavy work waits for one of its few places
// first: so those who ask for more than their share have one part of the processors for both.
func (r rooms) work(ctx context.Context, who string, heavy bool) (leave func(), err error) {
	var first *stay
	if heavy {
		if first, err = r.before(ctx, r.heavy, who, 1); err != nil {
			return nil, err
		}
	}
	place, err := r.working.enter(ctx, who, 1)
	if err != nil {
		if heavy {
			first.leave()
		}
		return nil, err
	}
	return func() {
		if !heavy {
			place.rest(place.worked())
			return
		}
		place.rest(heavyRests * place.worked())
		first.leave()
	}, nil
}

// before waits in a room for what comes before work, which counts as asking for a place to work.
func (r rooms) before(ctx context.Context, first *room, who string, size int) (*stay, error) {
	r.working.want(who, 1)
	defer r.working.want(who, -1)
	return first.enter(ctx, who, size)
}

// turn waits for a place to work on a page.
func (s *Server) turn(ctx context.Context, who access.Identity, page ui.Route) (leave func(), err error) {
	return s.rooms.work(ctx, who.ID, page.Large)
}

// work waits for a place to work until rest gives it back. A call has one at most.
func (c *call) work() error { return c.workWithin(c.r.Context()) }

// workWithin waits for a place no longer than until ctx ends.
func (c *call) workWithin(ctx context.Context) (err error) {
	if c.leave != nil || c.route.Need == access.Open {
		return nil
	}
	c.leave, err = c.rooms.work(ctx, c.who.ID, c.heavy)
	return err
}

func (c *call) rest() {
	if c.leave != nil {
		c.leave()
		c.leave = nil
	}
}

// take waits for memory, instead of what the call has of it. It comes before a place to work: nobody
// waits for memory in one.
func (c *call) take(bytes int) error { return c.takeWithin(c.r.Context(), bytes) }

// takeWithin waits for memory no longer than until ctx ends.
func (c *call) takeWithin(ctx context.Context, bytes int) (err error) {
	c.keep(0)
	c.memory, err = c.rooms.before(ctx, c.rooms.memory, c.who.ID, bytes)
	return err
}

// keep gives memory back but for so many bytes.
func (c *call) keep(bytes int) {
	if c.memory != nil {
		c.memory.keep(bytes)
	}
}

// tell waits until an identity may be told one more refusal.
func (s *Server) tell(ctx context.Context, who string) {
	if place, err := s.rooms.refused.enter(ctx, who, 1); err == nil {
		time.AfterFunc(refusalSpan, place.leave)
	}
}
