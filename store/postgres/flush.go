package postgres

import (
	"bytes"
	"cmp"
	"slices"
	"strconv"

	"github.com/tuskqueue/tusk/store"
)

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
