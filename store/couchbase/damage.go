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

// errDamaged says that a document cannot be read. That does not affect others: docs/couchbase.md has what happens to
// each kind of document. All that reads many documents skips damaged ones, and logs each.
var errDamaged = errors.New("damaged")

// decode reads a document's JSON into v. If it fails, the error is errDamaged, and v has what could be read.
func decode(id string, raw []byte, v any) error {
	if err := json.Unmarshal(raw, v); err != nil {
		return fmt.Errorf("document %s is %w: %w", id, errDamaged, err)
	}
	return nil
}

// decode reads a document's JSON into its body. It reports whether the document can be used.
func (s *Store) decode(ctx context.Context, d *doc) (is bool, err error) {
	if err = decode(d.ID, d.raw, d.body); err == nil {
		return true, nil
	}
	switch b := d.body.(type) {
	case *leader:
		*b = leader{Term: cmp.Or(b.Term, s.now(ctx))} // the time is greater than any earlier term
	case *worker:
		*b = *newWorker()
		b.Beat, b.damaged = s.now(ctx), true
	case *group:
		*b = group{}
	case *task:
		if _, known := states[b.State]; !known || !partial(err) {
			return false, s.passing(err)
		}
		b.Damage = cmp.Or(b.Damage, err.Error())
	case *sheet:
		return false, s.passing(err)
	default:
		return false, err
	}
	return true, s.passing(err)
}

// partial reports whether decoding continued after an error, so that the rest was read.
func partial(err error) bool {
	return errors.As(err, new(*json.UnmarshalTypeError)) || errors.As(err, new(base64.CorruptInputError))
}

// mostLogged limits how many errors of damaged documents a handle remembers.
const mostLogged = 1000

// passing drops the error of a damaged document, so that the caller skips the document. It logs each such error once,
// as long as the handle remembers it.
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

// cursorOf reads the cursor of a lane, or nil if it does not exist. It resets a damaged cursor to the best known page.
func (s *Store) cursorOf(ctx context.Context, l lane) (at *mark, err error) {
	err = until(ctx, func(int) (bool, error) {
		is, cas, damage := fetch[cursor](ctx, s, s.lines, l.cursor())
		if is == nil {
			return true, damage
		}
		if damage != nil { // others may reset or lock it too
			err := s.move(ctx, l, mark{cas: cas}, cursor{Page: max(is.Page, s.minds.of(l).tail, 1)})
			return false, cmp.Or(s.passing(damage), refusal(err))
		}
		at = &mark{*is, cas}
		return true, nil
	})
	return at, err
}
