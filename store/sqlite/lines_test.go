package sqlite

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// TestWhatTheWriterRemembersOfLinesIsWhatALookReads makes everything happen, at random, that changes which tasks wait
// for a turn or have one. After each step it compares a leader's look with the look of somebody else, who reads.
func TestWhatTheWriterRemembersOfLinesIsWhatALookReads(t *testing.T) {
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			l := newLife(t, seed)
			for i := range 600 {
				l.s.regained.Store(0) // it may read whenever it has forgotten
				what := l.step()
				l.compare(fmt.Sprintf("step %d, %s", i, what))
			}
			if l.known < 300 {
				t.Errorf("the writer knew who waits in %d looks only", l.known)
			}
		})
	}
}

// life is a store in which things happen.
type life struct {
	*testing.T
	s, other *Store
	r        *rand.Rand
	term     int64
	worker   store.ID
	ids      []store.ID
	running  []store.Task
	known    int
}

func newLife(t *testing.T, seed uint64) *life {
	s := openTest(t)
	l := &life{T: t, s: s, other: another(t, s), r: rand.New(rand.NewPCG(seed, 1)), term: leading(t, s),
		worker: store.ID{77}}
	_, err := s.Extend(t.Context(), store.Beat{Worker: store.Worker{ID: l.worker, Queues: []string{"q", "p"}},
		TTL: time.Hour})
	l.must(err)
	return l
}

func (l *life) must(err error) {
	l.Helper()
	if err != nil {
		l.Fatal(err)
	}
}

func (l *life) compare(what string) {
	l.Helper()
	if l.s.knows.Load() && l.s.some.Load() {
		l.known++
	}
	groups, heads := 1+l.r.IntN(30), 1+l.r.IntN(4)
	got, err := l.s.Turns(l.Context(), l.term, groups, heads)
	l.must(err)
	want, err := l.s.Turns(l.Context(), 0, groups, heads)
	l.must(err)
	if len(got)+len(want) > 0 && !reflect.DeepEqual(got, want) {
		l.Fatalf("%s: a look with %d groups, %d heads:\n%v\nwant\n%v", what, groups, heads, got, want)
	}
}

func (l *life) step() string {
	steps := map[string]func(){
		"enqueue": l.enqueue, "grant": l.grant, "claim": l.claim, "finish": l.finish, "edit": l.edit,
		"admit": func() { _, err := l.s.Admit(l.Context(), l.term, 100); l.must(err) },
		"prune": func() {
			_, err := l.s.Prune(l.Context(), l.term, store.Retention{Completed: time.Nanosecond}, 100)
			l.must(err)
		},
	}
	order := []string{"enqueue", "enqueue", "grant", "grant", "claim", "claim", "finish", "finish", "edit", "admit",
		"prune"}
	what := order[l.r.IntN(len(order))]
	if l.r.IntN(20) == 0 {
		what += " of another process"
		mine := l.s
		l.s = l.other
		steps[order[0]]()
		l.s = mine
		return what
	}
	steps[what]()
	return what
}

func (l *life) enqueue() {
	tasks := make([]store.NewTask, 1+l.r.IntN(6))
	for i := range tasks {
		n := &tasks[i]
		*n = store.NewTask{ID: store.ID{byte(len(l.ids) >> 8), byte(len(l.ids)), 5}, Kind: "k",
			Queue: string("qp"[l.r.IntN(2)]), Tenant: string("abc"[l.r.IntN(3)]), Turn: l.r.IntN(8) > 0,
			Priority: int16(l.r.IntN(3) - 1)}
		if l.r.IntN(4) == 0 {
			n.Partition = "x"
		}
		switch l.r.IntN(8) {
		case 0:
			n.Key = string("uvw"[l.r.IntN(3)])
			n.OnConflict = []store.OnConflict{store.Skip, store.Replace, store.Rerun}[l.r.IntN(3)]
		case 1:
			n.Delay = time.Duration(l.r.IntN(3)) * time.Millisecond
		case 2:
			if len(l.ids) > 0 {
				n.Needs = []store.Need{{Task: l.any()}}
			}
		}
		l.ids = append(l.ids, n.ID)
	}
	_, err := l.s.Enqueue(l.Context(), tasks)
	l.must(err)
}

func (l *life) any() store.ID { return l.ids[l.r.IntN(len(l.ids))] }

func (l *life) grant() {
	groups, err := l.s.Turns(l.Context(), l.term, 10, 3)
	l.must(err)
	var ids []store.ID
	for _, g := range groups {
		ids = append(ids, g.Waiting[:min(len(g.Waiting), l.r.IntN(4))]...)
	}
	if l.r.IntN(5) == 0 && len(l.ids) > 0 {
		ids = append(ids, l.any())
	}
	_, err = l.s.Grant(l.Context(), l.term, ids)
	l.must(err)
}

func (l *life) claim() {
	tasks, err := l.s.Claim(l.Context(), store.ClaimRequest{Worker: l.worker, Queues: []string{"q", "p"},
		Limit: 1 + l.r.IntN(8), Token: store.NewToken()})
	l.must(err)
	l.running = append(l.running, tasks...)
}

func (l *life) finish() {
	n := min(len(l.running), 1+l.r.IntN(8))
	outcomes := make([]store.Outcome, n)
	for i := range outcomes {
		o := &outcomes[i]
		*o = store.Outcome{Task: &l.running[i], State: store.Completed, Attempt: l.running[i].Attempt}
		switch l.r.IntN(6) {
		case 0:
			o.State, o.Error, o.KeepTurn = store.Retryable, "no", l.r.IntN(2) == 0
		case 1:
			o.State, o.Delay, o.KeepTurn = store.Scheduled, time.Millisecond, l.r.IntN(2) == 0
		case 2:
			o.State = store.Available
		case 3:
			o.Forget = true
		case 4:
			o.State, o.Error = store.Discarded, "no"
		}
	}
	_, err := l.s.Finish(l.Context(), outcomes)
	l.must(err)
	l.running = l.running[n:]
}

func (l *life) edit() {
	if len(l.ids) == 0 {
		return
	}
	c := store.Change{Op: []store.Op{store.Cancel, store.Retry, store.Delete, store.Reprioritize, store.Move,
		store.Reschedule}[l.r.IntN(6)], Priority: int16(l.r.IntN(3) - 1), Queue: string("qp"[l.r.IntN(2)])}
	_, err := l.s.Edit(l.Context(), store.Edit{IDs: []store.ID{l.any(), l.any()}, Change: c})
	l.must(err)
}
