package postgres

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/tuskqueue/tusk/store"
)

var _ store.Archiver = (*Store)(nil)
var _ store.Neighbour = (*Store)(nil)

// dueLooks is how many flushes one page examines to find those that are due.
const dueLooks = 100_000

// dueCursor is where a page begins. Dead tasks come first, then flushes by xid.
type dueCursor struct {
	Dead bool      `json:"dead,omitempty"` // the page begins after a dead task
	At   time.Time `json:"at,omitzero"`
	ID   store.ID  `json:"id,omitzero"`
	XID  int64     `json:"xid,omitempty"` // the page begins after the flushes of this xid
}

// Due implements store.Archiver.
func (s *Store) Due(ctx context.Context, keep store.Retention, from string, limit int) (due store.Due, err error) {
	after := dueCursor{Dead: true, At: lower(time.Time{})}
	if from != "" {
		after = dueCursor{}
		if err := json.Unmarshal([]byte(from), &after); err != nil {
			return due, fmt.Errorf("due: the cursor %q is none", from)
		}
	}
	next := &dueCursor{}
	for next != nil && len(due.Tasks) == 0 && err == nil {
		if after.Dead {
			next, err = s.dueDead(ctx, keep, after, limit, &due)
		} else {
			next, err = s.dueFlushes(ctx, keep, after, limit, &due)
		}
		if next != nil {
			after = *next
		}
	}
	if err != nil {
		return store.Due{}, fmt.Errorf("due: %w", err)
	}
	if next != nil {
		text, err := json.Marshal(next)
		if err != nil {
			return store.Due{}, fmt.Errorf("due: %w", err)
		}
		due.Next = string(text)
	}
	return due, nil
}

// Others implements store.Neighbour.
func (s *Store) Others(ctx context.Context) (n int, err error) {
	err = s.query(ctx, "others", func(raw [][]byte) error {
		n = int(int64Of(raw[0]))
		return nil
	})
	return n, err
}

// dueDead reads a page of dead tasks.
func (s *Store) dueDead(
	ctx context.Context, keep store.Retention, after dueCursor, limit int, due *store.Due,
) (*dueCursor, error) {
	r := retentionsOf(keep)
	var receipt deadReceipt
	page := s.do("due_dead", r.all, r.queues, r.completed, r.cancelled, r.discarded, after.At, [16]byte(after.ID), limit)
	err := s.write(ctx, s.pinned(page.into(func(raw [][]byte) error {
		var t store.Task
		readTask(&t, raw)
		t.Queue, t.State, t.Reason, t.FinishedAt = string(raw[17]), stateOf(raw[18]), string(raw[19]), timeOf(raw[20])
		due.Tasks = append(due.Tasks, t)
		receipt.IDs, receipt.XIDs = append(receipt.IDs, t.ID), append(receipt.XIDs, int64Of(raw[21]))
		return nil
	})))
	if err != nil || len(due.Tasks) == 0 {
		return &dueCursor{}, err
	}
	if err := s.addDetails(ctx, due.Tasks, false); err != nil {
		return nil, err
	}
	due.Receipt = receipt.encode()
	if last := &due.Tasks[len(due.Tasks)-1]; len(due.Tasks) == limit {
		return &dueCursor{Dead: true, At: last.FinishedAt, ID: last.ID}, nil
	}
	return &dueCursor{}, nil
}

// The minimum number of flushes that the statement due_flushes reads. It grows while few of them are due.
const (
	fewFlushes  = 50
	mostFlushes = 1000
)

// dueFlushes reads a page of completed tasks, by the flushes in which they ended. A page has all flushes of an xid or
// none.
func (s *Store) dueFlushes(
	ctx context.Context, keep store.Retention, after dueCursor, limit int, due *store.Due,
) (*dueCursor, error) {
	r := retentionsOf(keep)
	young := r.youngest()
	if young == 0 {
		return nil, nil
	}
	var over string
	err := s.write(ctx, s.inOrder(s.flushesDue(young, &over)))
	if err != nil || over == "" {
		return nil, err
	}
	var next *dueCursor
	var page duePage
	for last, looks, more, many := after.XID, dueLooks, true, fewFlushes; more; many = min(4*many, mostFlushes) {
		rows := 0
		err := s.read(ctx, s.inOrder(s.do("due_flushes", last, young, r.all[0], r.queues, r.completed, over,
			many).into(
			func(raw [][]byte) error {
				rows++
				switch xid := int64Of(raw[0]); {
				case !more:
				case raw[11][0] != 0:
					more = false
				case xid != last && (page.tasks >= limit || looks <= 0):
					next, more = &dueCursor{XID: last}, false
				default:
					last, looks = xid, looks-1
					if raw[7] != nil {
						page.add(raw)
					}
				}
				return nil
			})))
		if err != nil {
			return nil, err
		}
		more = more && rows >= many
	}
	if page.tasks == 0 { // flushes that contain only failures have no tasks
		return next, s.releaseEmpty(ctx, page.flushes)
	}
	if due.Tasks, err = s.readFlushes(ctx, &page); err != nil {
		return nil, err
	}
	due.Receipt = page.receipt()
	return next, s.addDetails(ctx, due.Tasks, false)
}

// flushesDue returns a step that reads the snapshot of the statement flushes_due. The snapshot remains empty if no
// flush can be due.
func (s *Store) flushesDue(young int64, over *string) step {
	return s.do("flushes_due", young).into(func(raw [][]byte) error {
		*over = string(raw[0])
		return nil
	})
}

// retentions are a store.Retention in the form that functions of the database take.
type retentions struct {
	all                                     []int64
	queues, completed, cancelled, discarded []int64
}

func retentionsOf(keep store.Retention) retentions {
	r := retentions{all: []int64{kept(keep.Completed), kept(keep.Cancelled), kept(keep.Discarded)},
		queues: []int64{}, completed: []int64{}, cancelled: []int64{}, discarded: []int64{}}
	for queue, own := range keep.Queues {
		r.queues = append(r.queues, hashOf(queue))
		r.completed = append(r.completed, kept(own.Completed))
		r.cancelled = append(r.cancelled, kept(own.Cancelled))
		r.discarded = append(r.discarded, kept(own.Discarded))
	}
	return r
}

// youngest returns the shortest retention of completed tasks, or 0 if all are kept forever.
func (r *retentions) youngest() int64 { return least(r.all[:1], r.completed) }

// least returns the shortest of the retentions that are not forever, or 0 if all are.
func least(retentions ...[]int64) (least int64) {
	for _, own := range slices.Concat(retentions...) {
		if own > 0 && (least == 0 || own < least) {
			least = own
		}
	}
	return least
}
