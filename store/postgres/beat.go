package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tuskqueue/tusk/store"
)

// Extend implements store.Leaser.
func (s *Store) Extend(ctx context.Context, b store.Beat) ([]store.Stop, error) {
	args, err := beatArgs(&b)
	if err != nil {
		return nil, fmt.Errorf("extend: %w", err)
	}
	if b.TTL <= 0 { // the beat ends the leases, so the notes come first
		if _, err := s.writeNotes(ctx, "write_last_notes", b.Notes, [16]byte(b.Worker.ID), b.Seq); err != nil {
			return nil, fmt.Errorf("extend: %w", err)
		}
	}
	var stops []store.Stop
	err = s.query(ctx, "beat", func(raw [][]byte) error {
		stops = append(stops, stopOf(raw))
		return nil
	}, args...)
	if err != nil {
		if errors.Is(err, store.ErrWorkerDead) {
			s.part(b.Worker.ID)
		}
		return nil, fmt.Errorf("extend: %w", err)
	}
	if b.TTL <= 0 {
		s.part(b.Worker.ID)
		return stops, nil
	}
	s.meet(&b)
	held, err := s.writeNotes(ctx, "write_notes", b.Notes)
	if err != nil { // the beat counts nonetheless
		for i := range b.Notes {
			held = append(held, b.Notes[i].ID)
		}
		return stops, fmt.Errorf("extend: notes: %w: %w", err, heldError(held))
	}
	if len(held) > 0 {
		return stops, fmt.Errorf("extend: notes: %w", heldError(held))
	}
	return stops, nil
}

// ErrNotTogether says that a call for several engines had no effect. The caller should call each engine alone.
var ErrNotTogether = errors.New("nothing was done: ask each alone")

// ExtendAll is Extend for engines on one server, in one round trip and one transaction. The beats are of one worker,
// and differ only in what it holds. They must have a TTL and no notes. ExtendAll waits for locks only briefly.
//
// It returns ErrNotTogether if the server refused one of the beats, for instance because one engine has declared the
// worker dead.
func ExtendAll(ctx context.Context, all []*Store, beats []store.Beat) ([][]store.Stop, error) {
	stops, batch := make([][]store.Stop, len(all)), pgx.Batch{}
	batch.Queue(all[0].sql["wait_briefly"])
	args, err := beatArgs(&beats[0])
	if err != nil {
		return nil, fmt.Errorf("extend: %w", err)
	}
	args = args[:len(args)-1]
	for i := range beats {
		args = append(args, uuidsOf(beats[i].Holds))
	}
	first := len(args) - len(beats) + 1
	batch.Queue(ofEach(all, "beat_of", func(i int) []string {
		return []string{"{holds}", "$" + strconv.Itoa(first+i)}
	}), args...).Query(func(rows pgx.Rows) error {
		return eachRow(rows, func(raw [][]byte) error {
			i := int32Of(raw[0])
			stops[i] = append(stops[i], stopOf(raw[1:]))
			return nil
		})
	})
	if err := all[0].sendAll(ctx, &batch); err != nil {
		return nil, fmt.Errorf("extend: %w", err)
	}
	for i, s := range all {
		s.meet(&beats[i])
	}
	return stops, nil
}

// meet records that a worker of this process is alive, and part that it has ended.
func (s *Store) meet(b *store.Beat) {
	s.attendant.locks.Keep(attended{s, b.Worker.ID})
	s.near.beat(b)
}

func (s *Store) part(worker store.ID) {
	s.attendant.locks.Leave(attended{s, worker})
	s.near.beat(&store.Beat{Worker: store.Worker{ID: worker}})
}

// ofEach joins the named statements of several ledgers on one server. In each, {i} is replaced by the ledger's place;
// more returns further replacements.
func ofEach(all []*Store, name string, more func(i int) []string) string {
	texts := make([]string, len(all))
	for i, s := range all {
		words := []string{"{i}", strconv.Itoa(i)}
		if more != nil {
			words = append(words, more(i)...)
		}
		texts[i] = "(" + strings.NewReplacer(words...).Replace(s.sql[name]) + ")"
	}
	return strings.Join(texts, "\nunion all\n")
}

// sendAll sends statements in one round trip and one transaction. It fails with ErrNotTogether if the server refused
// them.
func (s *Store) sendAll(ctx context.Context, batch *pgx.Batch) error {
	s.trips.Add(1)
	c, err := s.acquire(ctx)
	if err == nil {
		defer c.Release()
		err = c.SendBatch(ctx, batch).Close()
	}
	if err = s.noted(translate(err)); err != nil && neverStored(err) {
		err = fmt.Errorf("%w: %w", ErrNotTogether, err)
	}
	return err
}

// beatArgs returns the parameters of the statement beat.
func beatArgs(b *store.Beat) ([]any, error) {
	about, err := json.Marshal(b.Worker)
	return []any{[16]byte(b.Worker.ID), string(about), b.TTL.Microseconds(), every(b).Microseconds(), b.Seq, b.Seen,
		uuidsOf(b.Holds)}, err
}

func stopOf(raw [][]byte) store.Stop { return store.Stop{ID: idOf(raw[0]), Lease: idOf(raw[1])} }

// every returns the time between two beats of a worker, or a guess if the worker does not report it.
func every(b *store.Beat) time.Duration {
	if b.Every > 0 {
		return b.Every
	}
	return b.TTL / 3
}

// notes are store.Notes in columns, one for each attempt, because a statement cannot
// write the same row twice.
type notes struct {
	ids, tokens    uuids
	progress, logs []*string
	outputs        [][]byte
}

func notesOf(list []store.Note) (n notes, err error) {
	merged := map[attempt]*store.Note{}
	var order []attempt
	for i := range list {
		at := attempt{list[i].ID, list[i].Lease}
		m := merged[at]
		if m == nil {
			m = &store.Note{}
			merged[at] = m
			order = append(order, at)
		}
		if list[i].Progress != nil {
			m.Progress = list[i].Progress
		}
		if list[i].Output != nil {
			m.Output = list[i].Output
		}
		m.Logs = append(m.Logs, list[i].Logs...)
	}
	n.ids, n.tokens = uuids{}, uuids{}
	for _, at := range order {
		m := merged[at]
		var progress, logs *string
		if m.Progress != nil {
			if progress, err = jsonText(m.Progress); err != nil {
				return n, err
			}
		}
		if len(m.Logs) > 0 {
			if logs, err = jsonText(m.Logs); err != nil {
				return n, err
			}
		}
		n.ids, n.tokens = append(n.ids, at.id), append(n.tokens, at.lease)
		n.progress, n.outputs, n.logs = append(n.progress, progress), append(n.outputs, m.Output), append(n.logs, logs)
	}
	return n, nil
}

func jsonText(v any) (*string, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	s := string(text)
	return &s, nil
}
