package couchbase

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
)

// A damaged document does not hold up others:
//
// A task whose rest can be read is claimed, and ends as its Damage says. A task that cannot be read counts as gone,
// and so do all tasks of a sheet that cannot be read. A page is rebuilt as if a crash had lost it, and a cursor is
// reset: the sweep finds the tasks. A directory is rebuilt from the names that can be read and those that the index
// knows, and a key from its tasks; copies of the damaged documents are set aside (see aside). A damaged worker counts
// as dead: the index knows what it holds. If the leader's document cannot be read, nobody leads. A group of errors
// counts from the start. Everything else that goes over many documents skips the damaged ones. Each is logged.

var errDamaged = errors.New("damaged")

// decode reads a document's JSON into v. Its error is errDamaged; v then holds what could be read.
func decode(id string, raw []byte, v any) error {
	if err := json.Unmarshal(raw, v); err != nil {
		return fmt.Errorf("document %s is %w: %w", id, errDamaged, err)
	}
	return nil
}

// decode reads a document. It reports whether the document is usable.
func (s *Store) decode(ctx context.Context, d *doc) (is bool, err error) {
	if err = decode(d.ID, d.raw, d.body); err == nil {
		return true, nil
	}
	switch b := d.body.(type) {
	case *leader: // nobody leads; no term has ever been greater than the time
		*b = leader{Term: cmp.Or(b.Term, s.now(ctx))}
		return true, s.passing(err)
	case *worker: // it counts as dead
		*b = *newWorker()
		b.Beat, b.damaged = s.now(ctx), true
		return true, s.passing(err)
	case *group: // it counts from the start
		*b = group{}
		return true, s.passing(err)
	}
	t, ofTask := d.body.(*task)
	if !ofTask {
		if isSheet(d.ref) { // all of its tasks count as gone
			err = s.passing(err)
		}
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

// partial reports whether decoding went on after an error in the JSON.
func partial(err error) bool {
	return errors.As(err, new(*json.UnmarshalTypeError)) || errors.As(err, new(base64.CorruptInputError))
}

// mostLogged is how many errors of damaged documents a handle remembers.
const mostLogged = 1000

// passing drops the error of a damaged document, so that the caller skips the document. It logs each such error once,
// until it has forgotten it.
func (s *Store) passing(err error) error {
	if !errors.Is(err, errDamaged) {
		return err
	}
	if _, said := s.damaged.LoadOrStore(err.Error(), true); !said {
		if s.logged.Add(1)%mostLogged == 0 {
			s.damaged.Clear()
		}
		slog.Default().Error("couchbase: a document is damaged and passed over", "error", err)
	}
	return nil
}

// cursorOf reads the cursor of a lane, or nil if there is none. It resets a damaged cursor to where it may have been.
func (s *Store) cursorOf(ctx context.Context, l lane) (at *mark, err error) {
	err = until(ctx, func(int) (bool, error) {
		is, cas, damage := fetch[cursor](ctx, s, s.lines, l.cursor())
		if is == nil {
			return true, damage
		}
		if damage != nil { // somebody else may reset it, or lock it
			err := s.move(ctx, l, mark{cas: cas}, cursor{Page: max(is.Page, s.minds.of(l).tail, 1)})
			return false, cmp.Or(s.passing(damage), refusal(err))
		}
		at = &mark{*is, cas}
		return true, nil
	})
	return at, err
}
