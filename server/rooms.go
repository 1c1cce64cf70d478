package server

import (
	"context"
	"time"

	"github.com/tuskqueue/tusk/server/access"
	"github.com/tuskqueue/tusk/server/ui"
)

// rooms are all rooms of a server. Heavy work (large bodies, lists of tasks) has a few places of its own; other work
// has as many places as a connection pool has connections by default.
type rooms struct {
	connections *room // open connections

	waiting *room // requests that wait for tasks
	uploads *room // incoming parts, and uploads that are being assembled
	memory  *room // bytes for large requests, from the first byte read to the last byte sent
	heavy   *room // large bodies and lists that are being processed
	working *room // other requests that are being processed
	refused *room // refusals that are being sent
}

const (
	ownLine    = 200 // requests of one identity that may wait in each room
	ownUploads = 16  // of one identity that may be in progress

	// largeBody is the size in bytes from which a request is large.
	largeBody = 64 << 10
	// bodyCost is how many bytes of memory each byte of a body takes: itself, its decoded form, what the store makes
	// of it, and what the driver sends.
	bodyCost = 4
	// answerCost is how many bytes a large response takes while it is made: about 6 MiB of args as read, as shown,
	// and as sent.
	answerCost = 24 << 20

	// heavyRests is how many times longer a greedy identity rests than its heavy work took.
	heavyRests = 3

	// An identity is sent this many refusals per span; further ones wait.
	refusals    = 5
	refusalSpan = 100 * time.Millisecond
)

func newRooms(maxBody int64, processors int) rooms {
	heavy, working := max(1, processors/4), max(4, processors)
	largest := max(bodyCost*int(maxBody), answerCost)
	return rooms{
		connections: newRoomFor("connections", ownConnections, maxConnections),
		waiting:     newRoomFor("requests that wait for tasks", 250, 2000),
		uploads:     newRoomFor("uploads in progress", ownUploads, maxConnections),
		memory:      newRoom(largest, 2*largest, ownLine).keeping(largest),
		heavy:       newRoom(1, heavy, ownLine),
		working:     newRoom(working, working, ownLine).keeping(working - max(1, processors/2)),
		refused:     newRoom(refusals, 20*refusals, ownLine),
	}
}

// work waits for a place to work, until leave gives it back. Heavy work first waits for one of its few places, so
// identities that request more than their share have one part of the processors for both.
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

// before waits in a room before the work begins. Meanwhile it counts as requesting a place to work.
func (r rooms) before(ctx context.Context, first *room, who string, size int) (*stay, error) {
	r.working.want(who, 1)
	defer r.working.want(who, -1)
	return first.enter(ctx, who, size)
}

// turn waits for a place to work on a page.
func (s *Server) turn(ctx context.Context, who access.Identity, page ui.Route) (leave func(), err error) {
	return s.rooms.work(ctx, who.ID, page.Large)
}

// work waits for a place to work, until rest gives it back. A call has at most one.
func (c *call) work() error { return c.workWithin(c.r.Context()) }

// workWithin waits for a place until ctx ends.
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

// take waits for memory, which replaces the memory that the call has. Memory comes before a place to work, so that
// nobody holds a place while waiting for memory.
func (c *call) take(bytes int) error { return c.takeWithin(c.r.Context(), bytes) }

// takeWithin waits for memory until ctx ends.
func (c *call) takeWithin(ctx context.Context, bytes int) (err error) {
	c.keep(0)
	c.memory, err = c.rooms.before(ctx, c.rooms.memory, c.who.ID, bytes)
	return err
}

// keep gives back all but bytes of the memory.
func (c *call) keep(bytes int) {
	if c.memory != nil {
		c.memory.keep(bytes)
	}
}

// tell waits until an identity may be sent another refusal.
func (s *Server) tell(ctx context.Context, who string) {
	if place, err := s.rooms.refused.enter(ctx, who, 1); err == nil {
		time.AfterFunc(refusalSpan, place.leave)
	}
}
