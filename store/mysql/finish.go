package mysql

import (
	"context"
	"database/sql"
	"encoding/binary"
	"errors"
	"slices"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// Finish implements store.Leaser. When the batch as a whole meets a row that somebody
// holds, halves of it go by themselves, down to the outcome that needs that row.
func (s *Store) Finish(ctx context.Context, outcomes []store.Outcome) (lost []store.ID, err error) {
	if len(outcomes) == 0 {
		return nil, nil
	}
	if f := (&finishing{outcomes: outcomes}); s.known(outcomes) {
		if done, err := s.finishing.do(ctx, f, len(outcomes), nil, s.finishTogether); done {
			return f.lost, wrap("finish", err)
		}
	}
	lost, err = s.finish(ctx, outcomes)
	if held(err) {
		var busy []store.ID
		if lost, busy, err = s.finishApart(ctx, outcomes); err == nil {
			err = heldError(busy)
		}
	}
	return lost, wrap("finish", err)
}

// heldError says that tasks are held, if there are any.
func heldError(tasks []store.ID) error {
	if len(tasks) == 0 {
		return nil
	}
	return &store.HeldError{Tasks: tasks}
}

// finishApart writes outcomes without taking any for granted, which locks no more rows
// than it has to and waits for none. It returns those that are held.
func (s *Store) finishApart(ctx context.Context, outcomes []store.Outcome) (lost, busy []store.ID, err error) {
	tried := fewTries
	if len(outcomes) > 1 {
		tried = oneTry // halves are sooner done than the lock is gone
	}
	err = s.hurry(ctx, tried, func(w *work) error {
		lost, err = w.finish(outcomes, true)
		return err
	})
	switch {
	case !held(err):
		return lost, nil, err
	case len(outcomes) == 1:
		return nil, []store.ID{outcomes[0].Task.ID}, nil
	}
	half := len(outcomes) / 2
	lost, busy, err = s.finishApart(ctx, outcomes[:half])
	more, others, failed := s.finishApart(ctx, outcomes[half:])
	return append(lost, more...), append(busy, others...), errors.Join(err, failed)
}

// finishing is a call of Finish.
type finishing struct {
	outcomes []store.Outcome
	lost     []store.ID
}

// known reports whether outcomes are plain ends of leases that are remembered.
func (s *Store) known(outcomes []store.Outcome) bool {
	for i := range outcomes {
		o := &outcomes[i]
		if e := (end{Outcome: o}); !e.plain() {
			return false
		}
		if _, _, known := s.leases.find(o.Task.Lease, o.Task.ID); !known {
			return false
		}
	}
	return true
}

// finishTogether answers several calls at once, or none if one of them has lost
// something.
func (s *Store) finishTogether(ctx context.Context, all []*finishing) (done bool, err error) {
	outcomes := all[0].outcomes
	if len(all) > 1 {
		outcomes = nil
		for _, f := range all {
			outcomes = append(outcomes, f.outcomes...)
		}
	}
	err = s.hurry(ctx, oneTry, func(w *work) error {
		lost, err := w.finish(outcomes, false)
		if err == nil && len(lost) > 0 {
			err = errCareful
		}
		return err
	})
	if errors.Is(err, errCareful) || held(err) {
		return false, nil
	}
	return true, err
}

func (s *Store) finish(ctx context.Context, outcomes []store.Outcome) (lost []store.ID, err error) {
	careful := false
	for {
		err = s.hurry(ctx, oneTry, func(w *work) error {
			lost, err = w.finish(outcomes, careful)
			return err
		})
		if !errors.Is(err, errCareful) {
			return lost, err
		}
		careful = true
	}
}

// errCareful says that not all of the outcomes are plain ends of open leases, so
// that the tasks have to be looked at first.
var errCareful = errors.New("some leases are over")

// leased names an attempt as its worker knows it.
type leased struct {
	id    store.ID
	token store.Token
}

// attempt is where an attempt is, and under which lease.
type attempt struct {
	ref
	token     store.Token
	worker    store.ID
	claimedAt int64
}

// resolve finds attempts, here or in the database, without locking anything; nil
// for those whose lease is over.
func (w *work) resolve(asked []leased) ([]*attempt, error) {
	found := make([]*attempt, len(asked))
	var ids, tokens []any
	for i, a := range asked {
		if l, r, known := w.store.leases.find(a.token, a.id); known {
			found[i] = &attempt{r, a.token, l.worker, l.claimedAt}
			continue
		}
		ids, tokens = append(ids, a.id[:]), append(tokens, a.token[:])
	}
	if len(ids) == 0 {
		return found, nil
	}
	leases, tasks := map[store.Token]*lease{}, map[store.ID]ref{}
	err := inParts(tokens, 500, func(part []any) error {
		some, err := w.readLeases(list("lease.read", "?", len(part)), part...)
		for _, l := range some {
			leases[l.token] = l
		}
		return err
	})
	if err != nil || len(leases) == 0 {
		return found, err
	}
	err = w.locate(ids, func(r ref, id store.ID, state store.State, _ name) {
		if state == store.Available {
			tasks[id] = r
		}
	})
	for i, a := range asked {
		l, r := leases[a.token], tasks[a.id]
		if found[i] == nil && l != nil && l.has(r) {
			found[i] = &attempt{r, a.token, l.worker, l.claimedAt}
		}
	}
	return found, err
}

// locate finds tasks by their ids.
func (w *work) locate(ids []any, each func(r ref, id store.ID, state store.State, key name)) error {
	which := "task.find"
	if w.user { // what it sees without a lock may be old
		which = "task.find locked"
	}
	return inParts(ids, 500, func(part []any) error {
		return w.ask(func(rows *sql.Rows) error {
			var r ref
			var state store.State
			var id, queue, tenant, key []byte
			err := rows.Scan(&r.place, &r.n, &r.lap, &id, &state, &queue, &tenant, &key)
			if err == nil {
				each(r, store.ID(id), state, name{string(queue), string(tenant), string(key)})
			}
			return err
		}, list(which, "?", len(part)), part...)
	})
}

// end is an attempt's end as it is written.
type end struct {
	*store.Outcome
	*attempt
	row    *row // the task, locked; nil for plain ones
	state  store.State
	reason string
	ended  int64
}

// plain reports whether the attempt did what most do: it completed its task, and
// there is nothing to note about it that the task's row has no room for.
func (e *end) plain() bool {
	return e.State == store.Completed && e.Error == "" && e.Reason == "" && e.Note == nil && e.Crashes == 0 &&
		e.Attempt == e.Task.Attempt && e.Task.Key == "" && len(e.Then) == 0
}

// finish writes outcomes and returns those that came too late. Unless it is
// careful it takes completed tasks for granted and finds out by counting.
func (w *work) finish(outcomes []store.Outcome, careful bool) (lost []store.ID, err error) {
	asked := make([]leased, len(outcomes))
	for i := range outcomes {
		asked[i] = leased{outcomes[i].Task.ID, outcomes[i].Task.Lease}
	}
	found, err := w.resolve(asked)
	if err != nil {
		return nil, err
	}
	var plain, others []*end
	seen := map[ref]bool{}
	for i := range outcomes {
		e := &end{Outcome: &outcomes[i], attempt: found[i], state: outcomes[i].State, reason: outcomes[i].Reason}
		switch {
		case found[i] == nil || seen[found[i].ref]:
			lost = append(lost, outcomes[i].Task.ID)
			continue
		case e.plain() && !careful:
			plain = append(plain, e)
		default:
			others = append(others, e)
		}
		seen[found[i].ref] = true
	}
	late, err := w.finishOthers(others)
	if err != nil {
		return nil, err
	}
	for _, e := range late {
		lost = append(lost, e.Task.ID)
	}
	others = slices.DeleteFunc(others, func(e *end) bool { return slices.Contains(late, e) })
	slices.SortFunc(plain, func(a, b *end) int { return byPlace(a.ref, b.ref) })
	for _, e := range plain {
		e.ended = max(w.store.places.now()-e.ago(), e.claimedAt)
	}
	w.plain = plain
	if !w.user {
		w.buried = w.store.leases.bury()
	}
	w.account(slices.Concat(plain, others))
	w.after = append(w.after, func() {
		for _, e := range slices.Concat(plain, others, late) {
			w.store.leases.end(e.token, e.Task.ID, !w.user)
		}
	})
	return lost, nil
}

// complete completes tasks without looking at them: the procedure finds them only
// while they are in the lap that their lease names, and fails if it does not find
// all. The sums go with it.
func (w *work) complete(procedure string) error {
	var done, leases []byte
	last := span{}
	for i, e := range w.plain {
		tail := len(done) - endBytes
		if i > 0 && last.place == e.place && last.last+1 == e.n && last.lap == e.lap && w.plain[i-1].token == e.token && w.plain[i-1].ago() == e.ago() &&
			w.plain[i-1].Task.Turn == e.Task.Turn {
			last.last = e.n
			done = append(append(done[:tail], encodeSpans([]span{last})...), done[tail+spanBytes:]...)
			continue
		}
		last = span{e.place, e.n, e.n, e.lap}
		done = append(done, encodeSpans([]span{last})...)
		done = binary.BigEndian.AppendUint64(done, uint64(e.claimedAt))
		done = binary.BigEndian.AppendUint64(done, uint64(e.ago()))
		done = append(append(done, e.worker[:]...), turnOf(e))
	}
	for _, l := range w.buried {
		leases = binary.BigEndian.AppendUint64(append(leases, l.token[:]...), uint64(l.claimedAt))
	}
	return w.call(nil, procedure, done, len(w.plain), w.sums.encode(), leases)
}

// endBytes is how long an end is as tusk_complete takes it.
const endBytes = spanBytes + 8 + 8 + 16 + 1

// turnOf is what tusk_complete is told of the turn that a running task has.
func turnOf(e *end) byte {
	if e.Task.Turn {
		return holdsTurn
	}
	return noTurn
}

// ago is how long ago an attempt ended, to the millisecond.
func (e *end) ago() int64 { return max(e.Ago, 0).Truncate(time.Millisecond).Microseconds() }

// endOf returns when an attempt ended.
func (w *work) endOf(e *end) int64 { return max(w.now-e.ago(), e.claimedAt) }

// account adds accepted ends to the statistics, and their tasks to the counts.
func (w *work) account(ends []*end) {
	for _, e := range ends {
		sum := w.sums.stat(e.Task.Queue, e.Task.Kind, e.ended)
		sum.Waited.Add(time.Duration(e.claimedAt-e.Task.RunAt.UnixMicro()) * time.Microsecond)
		sum.Ran.Add(e.Ran)
		switch e.state {
		case store.Completed:
			sum.Completed++
		case store.Discarded:
			sum.Discarded++
		case store.Cancelled:
			sum.Cancelled++
		}
		if e.Error != "" {
			sum.Failed++
		}
		if e.row == nil {
			w.sums.count(e.Task.Queue, store.Running, -1)
			w.sums.finish(e.Task.Queue, e.state, e.ref)
		}
	}
}
