package mysql

import (
	"context"
	"database/sql"
	"encoding/binary"
	"errors"
	"slices"
	"time"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/rules"
)

// Finish implements store.Leaser. If the batch needs a row that another transaction holds, its halves are written
// separately, down to the outcome that needs that row. If one of them fails for another reason after others were
// written, the outcomes that were not written count as held.
func (s *Store) Finish(ctx context.Context, outcomes []store.Outcome) (lost []store.ID, err error) {
	if len(outcomes) == 0 {
		return nil, nil
	}
	if f := (&finishing{outcomes: outcomes}); s.known(outcomes) {
		if done, err := s.finishing.Do(ctx, f, len(outcomes), nil, s.finishTogether); done {
			return f.lost, wrap("finish", err)
		}
	}
	lost, err = s.finish(ctx, outcomes)
	if held(err) {
		lost, err = s.finishApart(ctx, outcomes)
	}
	return lost, wrap("finish", err)
}

// heldError returns an error that lists the held tasks, or nil if there are none.
func heldError(tasks []store.ID) error {
	if len(tasks) == 0 {
		return nil
	}
	return &store.HeldError{Tasks: tasks}
}

// finishApart writes outcomes carefully: it locks no more rows than it must, and waits for none.
func (s *Store) finishApart(ctx context.Context, outcomes []store.Outcome) (lost []store.ID, err error) {
	written := map[store.ID]bool{}
	_, err = apartIfHeld(outcomes, func(part []store.Outcome) error {
		tried := fewTries
		if len(part) > 1 {
			tried = oneTry // halves are written sooner than the lock is released
		}
		var late []store.ID
		err := s.hurry(ctx, tried, func(w *work) (err error) {
			late, err = w.finish(part, true)
			return err
		})
		if err == nil {
			lost = append(lost, late...)
			for i := range part {
				written[part[i].Task.ID] = true
			}
		}
		return err
	})
	if err != nil && len(written) == 0 {
		return nil, err
	}
	var left []store.ID
	for i := range outcomes {
		if id := outcomes[i].Task.ID; !written[id] {
			left = append(left, id)
		}
	}
	return lost, errors.Join(err, heldError(left))
}

// finishing is a call of Finish.
type finishing struct {
	outcomes []store.Outcome
	lost     []store.ID
}

// known reports whether all outcomes are plain ends of remembered leases.
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

// finishTogether answers several calls at once, or none if one of their outcomes is too late.
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

// errCareful says that not all outcomes are plain ends of open leases, so that the tasks must be read first.
var errCareful = errors.New("some leases are over")

// leased identifies an attempt as its worker knows it.
type leased struct {
	id    store.ID
	token store.Token
}

// attempt says where an attempt is, and under which lease.
type attempt struct {
	ref
	token     store.Token
	worker    store.ID
	claimedAt int64
	// Its task would run again or is cancelled, so it matters whether it was told to stop, and why.
	stoppable bool
}

// resolve finds attempts in memory or in the database, without locking anything. It returns nil for those whose lease
// is over.
func (w *work) resolve(asked []leased) ([]*attempt, error) {
	found := make([]*attempt, len(asked))
	var ids, tokens []any
	for i, a := range asked {
		if l, r, known := w.store.leases.find(a.token, a.id); known {
			found[i] = &attempt{ref: r, token: a.token, worker: l.worker, claimedAt: l.claimedAt}
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
	err = w.locate(ids, func(r ref, id store.ID, state store.State, _ rules.KeyName) {
		if state == store.Available {
			tasks[id] = r
		}
	})
	for i, a := range asked {
		l, r := leases[a.token], tasks[a.id]
		if found[i] == nil && l != nil && l.has(r) {
			found[i] = &attempt{ref: r, token: a.token, worker: l.worker, claimedAt: l.claimedAt}
		}
	}
	return found, err
}

// locate finds tasks by their ids.
func (w *work) locate(ids []any, each func(r ref, id store.ID, state store.State, key rules.KeyName)) error {
	return inParts(ids, 1000, func(part []any) error {
		return w.ask(func(rows *sql.Rows) error {
			var r ref
			var state store.State
			var id, queue, tenant, key []byte
			err := rows.Scan(&r.place, &r.n, &r.lap, &id, &state, &queue, &tenant, &key)
			if err == nil {
				each(r, store.ID(id), state, rules.KeyName{Queue: string(queue), Tenant: string(tenant), Key: string(key)})
			}
			return err
		}, w.current(list("task.find", "?", len(part))), part...)
	})
}

// end is the end of an attempt as it is written.
type end struct {
	*store.Outcome
	*attempt
	ended int64
}

// plain reports whether an attempt ended as most do: it completed its task, and everything to record fits into the
// task's row.
func (e *end) plain() bool {
	return e.State == store.Completed && e.Error == "" && e.Reason == "" && e.Note == nil && e.Crashes == 0 &&
		e.Attempt == e.Task.Attempt && e.Task.Key == "" && len(e.Then) == 0
}

// finish writes outcomes and returns those that are too late. Unless it is careful, it assumes that completed tasks
// can be completed, and finds out by counting.
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
		e := &end{Outcome: &outcomes[i], attempt: found[i]}
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
	lost = append(lost, late...)
	slices.SortFunc(plain, func(a, b *end) int { return byPlace(a.ref, b.ref) })
	for _, e := range plain {
		e.ended = max(w.store.places.now()-e.ago(), e.claimedAt)
	}
	w.plain = plain
	if !w.user {
		w.buried = w.store.leases.bury()
	}
	w.account(plain)
	w.after = append(w.after, func() {
		turns := false
		for _, e := range slices.Concat(plain, others) {
			w.store.leases.end(e.token, e.Task.ID, !w.user)
			turns = turns || e.Task.Turn
		}
		if turns {
			w.store.wakes.gaveBack(time.Now())
		}
	})
	return lost, nil
}

// complete completes tasks without reading them: the procedure finds them only while they are in the lap that their
// lease names, and fails if it does not find all. It also stores the sums.
func (w *work) complete(procedure string) error {
	var done, leases []byte
	last := span{}
	for i, e := range w.plain {
		tail := len(done) - endBytes
		if i > 0 && last.place == e.place && last.last+1 == e.n && last.lap == e.lap && w.plain[i-1].token == e.token &&
			w.plain[i-1].ago() == e.ago() &&
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
	_, err := w.call(nil, procedure, done, len(w.plain), w.sums.encode(), leases)
	return err
}

// endBytes is the length of one end as tusk_complete takes it.
const endBytes = spanBytes + 8 + 8 + 16 + 1

// turnOf returns what tusk_complete needs to know about a running task's turn.
func turnOf(e *end) byte {
	if e.Task.Turn {
		return holdsTurn
	}
	return noTurn
}

// ago returns how long ago an attempt ended, in microseconds, truncated to milliseconds.
func (e *end) ago() int64 { return max(e.Ago, 0).Truncate(time.Millisecond).Microseconds() }

// account adds plain ends to the statistics and to the counts.
func (w *work) account(plain []*end) {
	for _, e := range plain {
		waited := time.Duration(e.claimedAt-e.Task.RunAt.UnixMicro()) * time.Microsecond
		rules.Count(w.sums.stat(e.Task.Queue, e.Task.Kind, e.ended), e.Outcome, e.State, waited)
		w.sums.count(e.Task.Queue, store.Running, -1)
		w.sums.finish(e.Task.Queue, e.State, e.ref)
	}
}
