package couchbase

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"

	"github.com/couchbase/gocb/v2"
)

// A document that is damaged holds up no other. A task of which the rest can be read is claimed, and ends by what its
// Damage says. One that cannot be read is as good as gone. A page is made anew, as if a crash had taken it, and a
// cursor is set anew: the sweep finds the tasks. A directory is made anew of what can be read and of what the index
// knows, and a key of its tasks; their copies are set aside (see aside). A worker is dead: the index knows what it
// holds. Nobody leads where it cannot be read who does. Whatever else goes over many documents goes on past it. The log
// names each.

var errDamaged = errors.New("damaged")

// decode reads a document's JSON. An error is errDamaged; what could be read is in v all the same.
func decode(id string, raw []byte, v any) error {
	if err := json.Unmarshal(raw, v); err != nil {
		return fmt.Errorf("document %s is %w: %w", id, errDamaged, err)
	}
	return nil
}

// decode reads a document. It reports whether there is anything to go by.
func (s *Store) decode(ctx context.Context, d *doc) (is bool, err error) {
	if err = decode(d.ID, d.raw, d.body); err == nil {
		return true, nil
	}
	switch b := d.body.(type) {
	case *leader: // nobody leads; no term was ever beyond the time
		*b = leader{Term: cmp.Or(b.Term, s.now(ctx))}
		return true, s.passing(err)
	case *worker: // it is dead
		*b = *newWorker()
		b.Beat, b.damaged = s.now(ctx), true
		return true, s.passing(err)
	}
	t, ofTask := d.body.(*task)
	if !ofTask {
		return false, err
	}
	if _, known := states[t.State]; !known || !partial(err) {
		return false, s.passing(err)
	}
	if t.Damage == "" {
		t.Damage = err.Error()
	}
	_ = s.passing(err)
	return true, nil
}

// partial reports whether the reading of JSON went on after an error.
func partial(err error) bool {
	return errors.As(err, new(*json.UnmarshalTypeError)) || errors.As(err, new(base64.CorruptInputError))
}

// passing has the caller go on past a document that is damaged. The log names it, once.
func (s *Store) passing(err error) error {
	if !errors.Is(err, errDamaged) {
		return err
	}
	if _, said := s.damaged.LoadOrStore(err.Error(), true); !said {
		slog.Default().Error("couchbase: a document is damaged and passed over", "error", err)
	}
	return nil
}

// cursorOf reads the cursor of a lane; nil: there is none. One that is damaged is set to where it may have been.
func (s *Store) cursorOf(ctx context.Context, l lane) (*mark, error) {
	for try := 0; ; try++ {
		is, cas, damage := fetch[cursor](ctx, s, s.lines, l.cursor())
		switch {
		case is == nil:
			return nil, damage
		case damage == nil:
			return &mark{*is, cas}, nil
		}
		to := cursor{Page: max(is.Page, s.minds.of(l).tail, 1)}
		done, err := s.lines.Replace(l.cursor(), to, &gocb.ReplaceOptions{Context: ctx, Cas: cas,
			RetryStrategy: failFast})
		switch {
		case err == nil:
			return &mark{to, done.Cas()}, s.passing(damage)
		case refusal(err) != nil:
			return nil, err
		}
		if err := pause(ctx, try+1); err != nil { // somebody else has, or it is locked
			return nil, err
		}
	}
}
