package archive

import (
	"context"
	"time"
)

// Archiving works for a slice of time, and then looks whether others need the database. If they
// do it rests for so many slices, but not where it would fall behind: not in a batch that follows
// a full one, and not for longer than mostRests after a batch was begun.
const (
	slice     = 100 * time.Millisecond
	rests     = 9
	mostRests = 5 * time.Minute
)

// pace tells whether others need the database, by how long it takes for an answer to a simple
// question while this process asks for nothing else.
type pace struct {
	least  time.Duration // that an answer has taken
	looked time.Time
	until  time.Time // no rest after it
}

// begin is called at the beginning of a batch, with whether it follows a full one.
func (p *pace) begin(behind bool) {
	p.until = time.Now().Add(mostRests)
	if behind {
		p.until = time.Time{}
	}
}

// due reports whether it is time to look.
func (p *pace) due() bool { return time.Since(p.looked) >= slice && time.Now().Before(p.until) }

// took takes in how long an answer took, and reports whether others need the database.
func (p *pace) took(d time.Duration) (busy bool) {
	busy = p.least > 0 && d > 3*p.least+500*time.Microsecond
	if p.least == 0 || d < p.least {
		p.least = d
	}
	p.least += p.least / 1000 // what was once quick need not be possible for ever
	p.looked = time.Now()
	return busy
}

// rest looks whether others need the database, and leaves it to them for a while if they do.
func (r *Runner) rest(ctx context.Context) error {
	begun := time.Now()
	if _, err := r.o.Store.Records(ctx, recordKind); err != nil {
		return err
	}
	if !r.pace.took(time.Since(begun)) {
		return nil
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(rests * slice):
		r.pace.looked = time.Now()
		return nil
	}
}
