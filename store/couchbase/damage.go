package couchbase

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"

	"github.com/couchbase/gocb/v2"
)

// A document that is damaged holds up no other. A task of which the rest can be read is claimed, and ends by what its
// Damage says. One that cannot be read is as good as gone. A page is made anew, as if a crash had taken it, and the
// sweep finds its tasks. A worker is dead: the index knows what it holds. Whatever else goes over many documents goes
// on past it. The log names each.

var errDamaged = errors.New("damaged")

// decode reads a document's JSON. An error is errDamaged; what could be read is in v all the same.
func decode(id string, raw []byte, v any) error {
	if err := json.Unmarshal(raw, v); err != nil {
		return fmt.Errorf("document %s is %w: %w", id, errDamaged, err)
	}
	return nil
}

// decode reads a document. It reports whether there is anything to go by.
func (s *Store) decode(d *doc) (is bool, err error) {
	err = decode(d.ID, d.raw, d.body)
	t, ofTask := d.body.(*task)
	if err == nil || !ofTask {
		return err == nil, err
	}
	if _, known := states[t.State]; !known || !partial(err) {
		return false, s.passing(err)
	}
	if t.Damage == "" {
		t.Damage = err.Error()
	}
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

// bury replaces the document of a worker that cannot be read by that of a dead one.
func (s *Store) bury(ctx context.Context, id string, cas gocb.Cas, damage error) error {
	w := worker{Beat: s.now(ctx), Leases: map[string][]string{}, Stops: map[string]string{}}
	_, err := s.meta.Replace(workerKey(id), w, &gocb.ReplaceOptions{Context: ctx, Cas: cas, DurabilityLevel: s.durability})
	if err == nil {
		err = s.passing(damage)
	}
	return refusal(err)
}
