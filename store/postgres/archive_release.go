package postgres

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// releasedAtOnce is how many flushes one transaction deletes.
const releasedAtOnce = 500

// Release implements store.Archiver.
func (s *Store) Release(ctx context.Context, receipt []byte) (back []store.ID, err error) {
	var held []store.ID
	switch {
	case len(receipt) == 0:
		err = errReceipt
	case receipt[0] == receiptOfDead:
		back, held, err = s.releaseDead(ctx, receipt[1:])
	case receipt[0] == receiptOfFlushes:
		back, held, err = s.releaseFlushes(ctx, receipt[1:])
	default:
		err = errReceipt
	}
	if err == nil && len(held) > 0 {
		err = &store.HeldError{Tasks: held}
	}
	if err != nil {
		return nil, fmt.Errorf("release: %w", err)
	}
	return back, nil
}

func (s *Store) releaseDead(ctx context.Context, b []byte) (back, held []store.ID, err error) {
	const size = 24
	if len(b)%size != 0 {
		return nil, nil, errReceipt
	}
	var ids []store.ID
	var xids []int64
	for ; len(b) > 0; b = b[size:] {
		ids, xids = append(ids, idOf(b)), append(xids, int64(binary.BigEndian.Uint64(b[16:])))
	}
	err = s.query(ctx, "release_dead", func(raw [][]byte) error {
		held = idsOf(raw[0])
		return nil
	}, uuidsOf(ids), xids)
	if err != nil || len(held) > 0 {
		return nil, held, err
	}
	back, err = s.existing(ctx, ids)
	return back, nil, err
}

func (s *Store) releaseFlushes(ctx context.Context, receipt []byte) (back, held []store.ID, err error) {
	page, err := readFlushReceipt(receipt)
	if err != nil {
		return nil, nil, err
	}
	for some := range slices.Chunk(page.flushes, releasedAtOnce) {
		changed, waits, err := s.releaseSome(ctx, some)
		if err == nil {
			changed, err = s.existing(ctx, changed)
		}
		if err != nil {
			return nil, nil, err
		}
		back, held = append(back, changed...), append(held, waits...)
	}
	return back, held, nil
}

// releaseEmpty deletes flushes without tasks, which an archive does not keep.
func (s *Store) releaseEmpty(ctx context.Context, flushes []*completion) error {
	for some := range slices.Chunk(flushes, releasedAtOnce) {
		if _, _, err := s.releaseSome(ctx, some); err != nil {
			return err
		}
	}
	return nil
}

// releaseSome deletes flushes. It does not delete flushes that have changed or that another transaction holds, and
// returns their tasks.
func (s *Store) releaseSome(ctx context.Context, flushes []*completion) (changed, held []store.ID, err error) {
	err = s.query(ctx, "release_flushes", func(raw [][]byte) error {
		f := flushes[int32Of(raw[0])-1]
		for _, run := range f.runs {
			for i := range run.count {
				if raw[1][0] != 0 {
					held = append(held, run.id(i))
				} else {
					changed = append(changed, run.id(i))
				}
			}
		}
		return nil
	}, releasing(flushes, math.MaxInt32/2)...)
	return changed, held, err
}

// releasing returns the parameters of the statement release_flushes, which deletes up to limit tasks.
func releasing(flushes []*completion, limit int) []any {
	n := len(flushes)
	xids, lanes, tokens, finished, tasks := make([]int64, n), make([]int64, n), make(uuids, n), make([]time.Time, n),
		make([]int64, n)
	for i, f := range flushes {
		xids[i], lanes[i], tokens[i], finished[i], tasks[i] = f.xid, f.lane, f.token, f.finished, int64(f.tasks)
	}
	return []any{xids, lanes, tokens, finished, tasks, limit}
}

// existing returns the ids of tasks that exist.
func (s *Store) existing(ctx context.Context, ids []store.ID) (found []store.ID, err error) {
	for some := range slices.Chunk(ids, store.MaxPage) {
		tasks, err := s.list(ctx, store.Filter{IDs: some, Limit: store.MaxPage})
		if err != nil {
			return nil, err
		}
		for i := range tasks {
			found = append(found, tasks[i].ID)
		}
	}
	return found, nil
}
