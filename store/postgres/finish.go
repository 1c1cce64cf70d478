package postgres

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/tuskqueue/tusk/internal/bell"
	"github.com/tuskqueue/tusk/store"
)

// Finish implements store.Leaser. Outcomes that bring more than the end of their
// attempt are written separately.
func (s *Store) Finish(ctx context.Context, outcomes []store.Outcome) (lost []store.ID, err error) {
	if err := s.mayWork(ctx); err != nil {
		return nil, fmt.Errorf("finish: %w", err)
	}
	rest, lost := eachOnce(outcomes)
	var held []store.ID
	for _, part := range partsOf(rest) {
		l, h, err := s.flush(ctx, part)
		if err != nil {
			return nil, fmt.Errorf("finish: %w", err)
		}
		lost, held = append(lost, l...), append(held, h...)
	}
	if len(held) > 0 {
		return lost, fmt.Errorf("finish: %w", heldError(held))
	}
	return lost, nil
}

func heldError(held []store.ID) error {
	if len(held) == 0 {
		return nil
	}
	return &store.HeldError{Tasks: held}
}

// partsOf splits outcomes into parts that are each written together. Usually there is one part.
func partsOf(outcomes []*store.Outcome) [][]*store.Outcome {
	if !slices.ContainsFunc(outcomes, hasExtras) {
		return [][]*store.Outcome{outcomes}
	}
	var plain, more []*store.Outcome
	for _, o := range outcomes {
		if hasExtras(o) {
			more = append(more, o)
		} else {
			plain = append(plain, o)
		}
	}
	return [][]*store.Outcome{plain, more}
}

// flush writes outcomes by one call of a function such as finish_plain, finish_lease, finish or finish_more.
// If the function finds tasks that are lost or held, it writes nothing, and flush calls it again without
// them. If it waits too long for a lock, flush writes the halves one after the other, so that other outcomes
// do not wait for the lock that one of them needs.
func (s *Store) flush(ctx context.Context, rest []*store.Outcome) (lost, held []store.ID, err error) {
	for len(rest) > 0 {
		f := flushOf(rest)
		if done, err := s.finishFailed(ctx, f); done || err != nil && !isBusy(err) {
			return lost, held, err
		}
		name, args := f.call()
		var x *extras
		list := finalNotes(rest)
		switch {
		case !hasExtras(rest[0]):
		case len(f.odds) == 0 && len(list) == 0 && !slices.ContainsFunc(rest, bringsMore):
			if name == "finish" {
				queues, keys, ids := f.keys()
				args = append(f.runs(), queues, keys, ids)
			}
			name, args = name+"_turns", append(args, idsOfAll(rest))
		default:
			x = extrasOf(rest)
			if err := s.nameLanes(ctx, ownSession{s}, x.survey, true); err != nil {
				return nil, nil, err
			}
			name, args = "finish_more", append(f.args(), x.args()...)
		}
		if len(list) > 0 {
			n, err := notesOf(list)
			if err != nil {
				return nil, nil, err
			}
			if x == nil {
				name, args = "finish", f.args()
			}
			name, args = name+"_noted", append(args, n.ids, n.progress, n.outputs, n.logs)
		}
		gone, apart := map[attempt]bool{}, false
		err := s.query(ctx, name, func(raw [][]byte) error {
			switch id := store.ID(idOf(raw[1])); {
			case raw[1] == nil && raw[2] != nil: // another transaction holds a key
				n, err := strconv.Atoi(string(raw[3]))
				if err != nil || n > len(f.keyedEnds) {
					apart = true // the key belongs to a task to enqueue
					return err
				}
				o := f.keyedEnds[n-1]
				held, gone[attempt{o.Task.ID, o.Task.Lease}] = append(held, o.Task.ID), true
			case raw[3] != nil:
				s.ring(string(raw[3]))
			case raw[2] == nil:
				apart = true // a task is cancelled instead of going on, so its tasks must be dropped
			case raw[2][0] != 0:
				held, gone[attempt{id, idOf(raw[0])}] = append(held, id), true
			default:
				lost, gone[attempt{id, idOf(raw[0])}] = append(lost, id), true
			}
			return nil
		}, args...)
		switch {
		case isBusy(err) && ctx.Err() == nil || apart:
			l, h, err := s.flushApart(ctx, rest)
			return append(lost, l...), append(held, h...), err
		case err != nil:
			return nil, nil, err
		case len(gone) == 0:
			s.ringDue(f.odds)
			if x != nil {
				s.ringFor(x.survey)
				s.settle(ctx, x.doubts)
			}
			return lost, held, nil
		}
		rest = slices.DeleteFunc(rest, func(o *store.Outcome) bool { return gone[attempt{o.Task.ID, o.Task.Lease}] })
	}
	return lost, held, nil
}

// ringDue tells the leader about tasks that will soon be tried again.
func (s *Store) ringDue(outcomes []*store.Outcome) {
	first := store.Soon
	for _, o := range outcomes {
		if !o.State.Finished() {
			first = min(first, o.Delay)
		}
	}
	if name := bell.DueIn(first); name != "" {
		s.ring(name)
	}
}

func idsOfAll(outcomes []*store.Outcome) uuids {
	ids := make(uuids, len(outcomes))
	for i, o := range outcomes {
		ids[i] = o.Task.ID
	}
	return ids
}

// flushApart writes each half of a batch separately, because some of the batch is held or
// brings tasks that have to be dropped. It returns a single outcome as held.
func (s *Store) flushApart(ctx context.Context, outcomes []*store.Outcome) (lost, held []store.ID, err error) {
	if len(outcomes) == 1 {
		return nil, []store.ID{outcomes[0].Task.ID}, nil
	}
	half := (len(outcomes) + 1) / 2
	for _, part := range [][]*store.Outcome{outcomes[:half:half], outcomes[half:]} {
		l, h, err := s.flush(ctx, part)
		if err != nil {
			return nil, nil, err
		}
		lost, held = append(lost, l...), append(held, h...)
	}
	return lost, held, nil
}

// attempt identifies an attempt, for which only one finish is accepted.
type attempt struct {
	id    store.ID
	lease store.Token
}

// eachOnce returns the first outcome for each task and token, sorted by lease, lane
// and id. The tasks of further outcomes are lost.
func eachOnce(outcomes []store.Outcome) (once []*store.Outcome, lost []store.ID) {
	once = make([]*store.Outcome, len(outcomes))
	for i := range outcomes {
		once[i] = &outcomes[i]
	}
	slices.SortStableFunc(once, byLease)
	kept := once[:0]
	for _, o := range once {
		if n := len(kept); n > 0 && kept[n-1].Task.ID == o.Task.ID && kept[n-1].Task.Lease == o.Task.Lease {
			lost = append(lost, o.Task.ID)
		} else {
			kept = append(kept, o)
		}
	}
	return kept, lost
}

func byLease(a, b *store.Outcome) int {
	x, y := a.Task, b.Task
	if x.Lease != y.Lease {
		return bytes.Compare(x.Lease[:], y.Lease[:])
	}
	if x.Queue != y.Queue {
		return cmp.Compare(x.Queue, y.Queue)
	}
	if x.Priority != y.Priority {
		return cmp.Compare(x.Priority, y.Priority)
	}
	return bytes.Compare(x.ID[:], y.ID[:])
}

func finalNotes(outcomes []*store.Outcome) (list []store.Note) {
	for _, o := range outcomes {
		if o.Note != nil {
			n := *o.Note
			n.ID, n.Lease = o.Task.ID, o.Task.Lease
			list = append(list, n)
		}
	}
	return list
}

// writeNotes stores notes by the named statement, to which it passes from as further parameters. It returns the
// tasks that a user's transaction holds. Their notes are not stored.
func (s *Store) writeNotes(
	ctx context.Context, name string, list []store.Note, from ...any,
) (held []store.ID, err error) {
	if len(list) == 0 {
		return nil, nil
	}
	n, err := notesOf(list)
	if err != nil {
		return nil, err
	}
	err = s.query(ctx, name, func(raw [][]byte) error {
		places := arrayOf(raw[0])
		for range places.n {
			held = append(held, n.ids[int32Of(places.next())-1])
		}
		return nil
	}, append([]any{n.ids, n.tokens, n.progress, n.outputs, n.logs}, from...)...)
	return held, err
}

// flush is a batch of outcomes in columns, as the functions finish and finish_lease take
// them. They are grouped by lease, and each group consists of runs of ids.
type flush struct {
	tokens      uuids
	lanes       []int64
	offs, sizes []int32 // the runs of each group
	ends        []int32 // the number of tasks up to the end of each group
	keyed       []int32 // the number of plain outcomes with keys in each group
	firsts      uuids
	counts      []int32
	ago         []int32 // milliseconds; nil if all are zero
	stats       []byte
	odd         []int32          // the group, from 1, of each outcome in odds
	odds        []*store.Outcome // outcomes that are not plain completions
	keyedEnds   []*store.Outcome // outcomes of tasks with keys, in the order in which keys are locked
	oddIDs      uuids
}

// PieceBits is the number of lower bits of a task's Piece that belong to the engine: they number the packs of a claim.
// The other bits belong to the code that combines several engines.
const PieceBits = 24

// pieceOf returns the number of the pack from which a task was claimed, or 0 if the task was alone in its row.
func pieceOf(t *store.Task) int32 { return t.Piece & (1<<PieceBits - 1) }

// flushOf makes a flush of outcomes that eachOnce has sorted.
func flushOf(outcomes []*store.Outcome) *flush {
	f := &flush{oddIDs: uuids{}}
	sums := newStats()
	var groups map[*store.Outcome]int32
	var last *store.Task
	for i, o := range outcomes {
		t := o.Task
		if last == nil || t.Lease != last.Lease || t.Queue != last.Queue || t.Priority != last.Priority {
			f.tokens, f.lanes = append(f.tokens, t.Lease), append(f.lanes, laneOf(t.Queue, t.Priority))
			f.offs, f.sizes, f.ends = append(f.offs, int32(len(f.firsts))), append(f.sizes, 0), append(f.ends, int32(i))
			f.keyed, last = append(f.keyed, 0), nil
		}
		g := len(f.tokens) - 1
		if last != nil && pieceOf(t) != 0 && pieceOf(t) == pieceOf(last) && follows(&t.ID, &last.ID) {
			f.counts[len(f.counts)-1]++
		} else {
			f.firsts, f.counts = append(f.firsts, t.ID), append(f.counts, 1)
			f.sizes[g]++
		}
		f.ends[g]++
		last = t
		f.agoOf(i, o, len(outcomes))
		sums.count(o)
		if !isPlain(o) {
			if groups == nil {
				groups = map[*store.Outcome]int32{}
			}
			f.odds, groups[o] = append(f.odds, o), int32(g+1)
		} else if t.Key != "" {
			f.keyed[g]++
		}
		if t.Key != "" {
			f.keyedEnds = append(f.keyedEnds, o)
		}
	}
	if len(f.firsts) == len(outcomes) {
		f.counts = nil
	}
	slices.SortStableFunc(f.odds, byFailure)
	for _, o := range f.odds {
		f.odd, f.oddIDs = append(f.odd, groups[o]), append(f.oddIDs, o.Task.ID)
	}
	slices.SortFunc(f.keyedEnds, func(a, b *store.Outcome) int {
		return cmp.Or(cmp.Compare(hashOf(a.Task.Queue), hashOf(b.Task.Queue)),
			cmp.Compare(tenantKey(a.Task.Tenant, a.Task.Key), tenantKey(b.Task.Tenant, b.Task.Key)))
	})
	f.stats = sums.encode()
	return f
}

// byFailure compares outcomes by the order in which the groups of their errors are locked.
func byFailure(a, b *store.Outcome) int {
	if a.Error == "" || b.Error == "" {
		return cmp.Compare(min(len(a.Error), 1), min(len(b.Error), 1))
	}
	return cmp.Or(cmp.Compare(a.Task.Queue, b.Task.Queue), cmp.Compare(a.Task.Kind, b.Task.Kind),
		cmp.Compare(a.Fingerprint, b.Fingerprint))
}

// agoOf records how long ago the i-th attempt of all ended.
func (f *flush) agoOf(i int, o *store.Outcome, all int) {
	ms := int32(min(max(o.Ago, 0).Milliseconds(), 1<<31-1))
	if ms > 0 && f.ago == nil {
		f.ago = make([]int32, i, all)
	}
	if f.ago != nil {
		f.ago = append(f.ago, ms)
	}
}

// isPlain reports whether an outcome is a completion with nothing else to
// write.
func isPlain(o *store.Outcome) bool {
	return o.State == store.Completed && o.Error == "" && o.Reason == "" && o.Crashes == 0 && o.Attempt == o.Task.Attempt
}

// call returns the statement for a flush and its parameters.
func (f *flush) call() (name string, args []any) {
	if len(f.tokens) > 1 || len(f.odds) > 0 {
		return "finish", f.args()
	}
	args = []any{f.tokens[0], f.lanes[0], f.firsts, f.counts, f.ends[0], f.ago, f.stats}
	if len(f.keyedEnds) == 0 {
		return "finish_plain", args
	}
	queues, keys, ids := f.keys()
	if len(keys) == 1 {
		return "finish_keyed", append(args, queues[0], keys[0], ids[0])
	}
	return "finish_lease", []any{f.tokens[0], f.lanes[0], f.keyed[0], f.firsts, f.counts, f.ends[0],
		f.ago, f.stats, queues, keys, ids}
}

// args returns the parameters of the function finish.
func (f *flush) args() []any {
	n := len(f.odds)
	states, delays, ago := make([]int16, n), make([]int64, n), make([]int64, n)
	attempts, crashes := make([]int32, n), make([]int32, n)
	reasons, errs, traces, prints := make([]string, n), make([]string, n), make([]string, n), make([]string, n)
	for i, o := range f.odds {
		states[i], delays[i], ago[i] = int16(o.State), o.Delay.Microseconds(), max(o.Ago, 0).Microseconds()
		attempts[i], crashes[i] = int32(o.Attempt), int32(o.Crashes)
		reasons[i], errs[i], traces[i], prints[i] = clean(o.Reason), clean(o.Error), clean(o.Trace), clean(o.Fingerprint)
	}
	odd := f.odd
	if odd == nil {
		odd = []int32{}
	}
	queues, keys, keyIDs := f.keys()
	return append(f.runs(), odd, f.oddIDs, states, delays, attempts, crashes, reasons, errs, traces, prints, ago, queues,
		keys, keyIDs)
}

// runs returns the parameters from which the functions make a tusk_fn.flush.
func (f *flush) runs() []any {
	return []any{f.tokens, f.lanes, f.offs, f.sizes, f.keyed, f.firsts, f.counts, f.ends, f.ago, f.stats}
}

// tenantKey returns a task's key combined with its tenant, or "" if there is no key. The database has a function of
// the same name.
func tenantKey(tenant, key string) string {
	if key == "" {
		return ""
	}
	return strconv.Itoa(len(tenant)) + ":" + tenant + key
}

// keys returns the keys of tasks in columns. The id is nil if the outcome is not plain: then the key is not free yet.
func (f *flush) keys() (queues []int64, keys []string, ids []*[16]byte) {
	queues, keys, ids = []int64{}, []string{}, []*[16]byte{}
	for _, o := range f.keyedEnds {
		queues, ids = append(queues, hashOf(o.Task.Queue)), append(ids, nil)
		keys = append(keys, tenantKey(o.Task.Tenant, o.Task.Key))
		if isPlain(o) {
			ids[len(ids)-1] = (*[16]byte)(&o.Task.ID)
		}
	}
	return queues, keys, ids
}

// clean returns text from a handler in a form that the database can store: it
// replaces NUL, and bytes that are not UTF-8, by the replacement character.
func clean(text string) string {
	return string(bytes.ToValidUTF8(bytes.ReplaceAll([]byte(text), []byte{0}, []byte("\uFFFD")), []byte("\uFFFD")))
}

// finishTx ends attempts in an open transaction, with one statement for each.
func (s *Store) finishTx(ctx context.Context, tx session, outcomes []store.Outcome) (lost []store.ID, err error) {
	rest, lost := eachOnce(outcomes)
	accepted := rest[:0]
	for _, o := range rest {
		done, err := s.finishOne(ctx, tx, o)
		if err != nil {
			return nil, translate(err)
		}
		if done {
			accepted = append(accepted, o)
		} else {
			lost = append(lost, o.Task.ID)
		}
	}
	list := finalNotes(accepted)
	if len(list) == 0 {
		return lost, nil
	}
	n, err := notesOf(list)
	if err != nil {
		return nil, err
	}
	return lost, translate(tx.exec(ctx, s.sql["add_notes"], n.ids, n.progress, n.outputs, n.logs))
}

// finishOne ends one attempt in an open transaction. It reports false if the attempt is lost.
func (s *Store) finishOne(ctx context.Context, tx session, o *store.Outcome) (done bool, err error) {
	sums := newStats()
	sums.count(o)
	t := o.Task
	args := []any{[16]byte(t.Lease), laneOf(t.Queue, t.Priority), [16]byte(t.ID), int16(o.State), o.Delay.Microseconds(),
		o.Attempt, o.Crashes, clean(o.Reason), clean(o.Error), clean(o.Trace), clean(o.Fingerprint),
		max(o.Ago, 0).Microseconds(), sums.encode(), tenantKey(t.Tenant, t.Key), isPlain(o)}
	name := "finish_tx"
	if hasExtras(o) {
		x := extrasOf([]*store.Outcome{o})
		if err := s.nameLanes(ctx, tx, x.survey, false); err != nil {
			return false, err
		}
		name, args = "finish_tx_more", append(args, x.args()...)
	}
	s.trips.Add(1)
	err = tx.each(ctx, func(scan func(...any) error) error { return scan(&done) }, s.sql[name], args...)
	return done, err
}
