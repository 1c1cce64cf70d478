package sqlite

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/rules"
)

var _ store.Archiver = (*Store)(nil)

// dueCursor says where a page begins: after a task in the index of finished tasks.
type dueCursor struct {
	Kind  int64
	State store.State
	At    int64
	Num   int64
}

// Due implements store.Archiver. It walks the index of finished tasks by kind and outcome.
func (s *Store) Due(ctx context.Context, keep store.Retention, from string, limit int) (due store.Due, err error) {
	var after dueCursor
	if from != "" {
		if err := json.Unmarshal([]byte(from), &after); err != nil {
			return due, fmt.Errorf("due: the cursor %q is none", from)
		}
	}
	limit = min(limit, store.MaxPage)
	var ids []store.ID
	err = s.read(ctx, func(ctx context.Context, c session) error {
		ids, after, err = dueFrom(ctx, c, keep, after, s.clock.now(), limit)
		return err
	})
	if err != nil || len(ids) == 0 {
		return due, wrap("due", err)
	}
	if len(ids) == limit {
		next, err := json.Marshal(after)
		if err != nil {
			return due, wrap("due", err)
		}
		due.Next = string(next)
	}
	due.Tasks, err = s.List(ctx, store.Filter{IDs: ids, Limit: limit, Detail: true})
	due.Tasks = slices.DeleteFunc(due.Tasks, func(t store.Task) bool { return !t.State.Finished() }) // retried meanwhile
	due.Receipt = rules.Receipt(due.Tasks)
	return due, err
}

// dueFrom returns the next due tasks, and the cursor after the last of them.
func dueFrom(
	ctx context.Context, c session, keep store.Retention, after dueCursor, now int64, limit int,
) (ids []store.ID, last dueCursor, err error) {
	olds, err := findOld(ctx, c, keep, now)
	slices.SortFunc(olds, func(a, b old) int { return compareOld(a.kind, a.state, b.kind, b.state) })
	last = after
	for _, o := range olds {
		of := compareOld(o.kind, o.state, after.Kind, after.State)
		if err != nil || len(ids) == limit {
			break
		}
		if of < 0 {
			continue
		}
		begin := dueCursor{Kind: o.kind, State: o.state, At: -1 << 62}
		if of == 0 {
			begin = after
		}
		err = c.each(ctx, "due.tasks", func(r row) error {
			ids = append(ids, r.id(0))
			last = dueCursor{o.kind, o.state, r.int(1), r.int(2)}
			return nil
		}, o.kind, o.state, o.until, begin.At, begin.Num, limit-len(ids))
	}
	return ids, last, err
}

func compareOld(kind int64, state store.State, otherKind int64, otherState store.State) int {
	return slices.Compare([]int64{kind, int64(state)}, []int64{otherKind, int64(otherState)})
}

// Release implements store.Archiver.
func (s *Store) Release(ctx context.Context, receipt []byte) (back []store.ID, err error) {
	ends, err := rules.ReadReceipt(receipt)
	for some := range slices.Chunk(ends, chunk) {
		if err != nil {
			break
		}
		var again []store.ID
		err = s.write(ctx, true, func(w *work) error {
			return w.decide(func(b *rules.Batch) (err error) {
				again, err = b.Release(some)
				return err
			})
		})
		back = append(back, again...)
	}
	return back, wrap("release", err)
}
