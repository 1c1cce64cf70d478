package rules_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/rules"
)

// TestTheRules has a sentence for each rule.
func TestTheRules(t *testing.T) {
	type check struct {
		of   string
		got  any
		want any
	}
	for sentence, history := range map[string]func(b *book) []check{
		"a task that may run at once is available": func(b *book) []check {
			b.enqueue(store.NewTask{ID: id(1)})
			return []check{{"state", b.state(1), store.Available}, {"run time", b.tasks[id(1)].RunAt, b.now}}
		},
		"a task with a delay is scheduled, and admitted when its time has come": func(b *book) []check {
			b.enqueue(store.NewTask{ID: id(1), Delay: time.Minute})
			before := b.state(1)
			b.now = b.now.Add(time.Minute)
			b.do(func(batch *rules.Batch) error { _, err := batch.Admit([]store.ID{id(1)}); return err })
			return []check{{"before", before, store.Scheduled}, {"after", b.state(1), store.Available}}
		},
		"a task that runs in turns waits for its turn, and gets it once": func(b *book) []check {
			b.enqueue(store.NewTask{ID: id(1), Turn: true})
			before, line := b.state(1), b.tasks[id(1)].InLine()
			var first, second int
			b.do(func(batch *rules.Batch) (err error) { first, err = batch.Grant([]store.ID{id(1)}); return err })
			b.do(func(batch *rules.Batch) (err error) { second, err = batch.Grant([]store.ID{id(1)}); return err })
			return []check{{"before", before, store.Pending}, {"in line", line, true}, {"after", b.state(1), store.Available},
				{"granted", first, 1}, {"granted again", second, 0}}
		},
		"the second task of a key is skipped": func(b *book) []check {
			b.enqueue(store.NewTask{ID: id(1), Key: "x"})
			second := b.enqueue(store.NewTask{ID: id(2), Key: "x"})
			return []check{{"result", second, store.Enqueued{ID: id(1), Result: store.Skipped}},
				{"second", b.state(2), store.State(0)}}
		},
		"a key belongs to its tenant": func(b *book) []check {
			b.enqueue(store.NewTask{ID: id(1), Key: "x", Tenant: "a"})
			second := b.enqueue(store.NewTask{ID: id(2), Key: "x", Tenant: "b", OnConflict: store.Replace})
			return []check{{"result", second.Result, store.Added}}
		},
		"a key is free again when its task has ended": func(b *book) []check {
			b.enqueue(store.NewTask{ID: id(1), Key: "x"})
			b.claim(1)
			b.finish(1, store.Outcome{State: store.Completed})
			return []check{{"result", b.enqueue(store.NewTask{ID: id(2), Key: "x"}).Result, store.Added}}
		},
		"a change of a waiting task is noted with its time and kind, one that leaves it as it was is not": func(
			b *book) []check {
			b.enqueue(store.NewTask{ID: id(1), Key: "x", Delay: time.Hour})
			due := b.tasks[id(1)].RunAt
			noted := func(c store.Change) store.LastChange {
				b.tasks[id(1)].Changed = nil
				b.now = b.now.Add(time.Second)
				b.edit(1, c)
				if noted := b.tasks[id(1)].Changed; noted != nil {
					return *noted
				}
				return store.LastChange{}
			}
			at := func(n int, how store.How) store.LastChange {
				return store.LastChange{At: b.now.Add(time.Duration(n) * time.Second), How: how}
			}
			want := []store.LastChange{{}, {}, {}, at(4, store.WasReprioritized), at(5, store.WasMoved),
				at(6, store.WasRescheduled), at(7, store.WasRetried), {}}
			var checks []check
			for i, c := range []store.Change{{Op: store.Reprioritize}, {Op: store.Move, Queue: "q"},
				{Op: store.Reschedule, RunAt: due},
				{Op: store.Reprioritize, Priority: 1}, {Op: store.Move, Queue: "r"}, {Op: store.Reschedule, Delay: time.Minute},
				{Op: store.Retry}, {Op: store.Cancel}} {
				checks = append(checks, check{fmt.Sprintf("%v, the %d.", c.Op, i+1), noted(c), want[i]})
			}
			return checks
		},
		"what replaces a task, also one that awaits a run's end, is noted": func(b *book) []check {
			b.enqueue(store.NewTask{ID: id(1), Key: "x"})
			skipped := b.enqueue(store.NewTask{ID: id(2), Key: "x"}).Result
			before := b.tasks[id(1)].Changed
			b.enqueue(store.NewTask{ID: id(3), Key: "x", OnConflict: store.Replace})
			first := *b.tasks[id(1)].Changed
			b.claim(1)
			b.enqueue(store.NewTask{ID: id(4), Key: "x", OnConflict: store.Rerun})
			awaiting := b.tasks[id(4)].Changed
			b.enqueue(store.NewTask{ID: id(5), Key: "x", OnConflict: store.Rerun})
			replaced := store.LastChange{At: b.now, How: store.WasReplaced}
			return []check{{"skipped", skipped, store.Skipped}, {"before", before == nil, true}, {"replaced", first, replaced},
				{"awaiting", awaiting == nil, true}, {"replaced too", *b.tasks[id(4)].Changed, replaced}}
		},
		"what replaces a task that has not begun keeps its id": func(b *book) []check {
			b.enqueue(store.NewTask{ID: id(1), Key: "x", Args: []byte("1")})
			second := b.enqueue(store.NewTask{ID: id(2), Key: "x", Args: []byte("2"), OnConflict: store.Replace})
			return []check{{"result", second, store.Enqueued{ID: id(1), Result: store.Replaced}},
				{"args", string(b.tasks[id(1)].Args), "2"}}
		},
		"any number of reruns while a task runs become one more run, the newest": func(b *book) []check {
			b.enqueue(store.NewTask{ID: id(1), Key: "x", OnConflict: store.Rerun})
			b.claim(1)
			b.enqueue(store.NewTask{ID: id(2), Key: "x", OnConflict: store.Rerun, Args: []byte("2")})
			third := b.enqueue(store.NewTask{ID: id(3), Key: "x", OnConflict: store.Rerun, Args: []byte("3")})
			waits := b.state(2)
			b.finish(1, store.Outcome{State: store.Completed})
			return []check{{"result", third, store.Enqueued{ID: id(2), Result: store.Awaiting}}, {"waits", waits, store.Pending},
				{"runs", b.state(2), store.Available}, {"args", string(b.tasks[id(2)].Args), "3"},
				{"third", b.state(3), store.State(0)}}
		},
		"an update that is not newer is stale": func(b *book) []check {
			b.enqueue(store.NewTask{ID: id(1), Key: "x", OnConflict: store.Rerun, SourceTime: b.now})
			again := b.enqueue(store.NewTask{ID: id(2), Key: "x", OnConflict: store.Rerun, SourceTime: b.now})
			b.claim(1)
			b.finish(1, store.Outcome{State: store.Completed})
			over := b.enqueue(store.NewTask{ID: id(3), Key: "x", OnConflict: store.Rerun, SourceTime: b.now})
			return []check{{"result", again, store.Enqueued{ID: id(1), Result: store.Stale}},
				{"when it has ended", over, store.Enqueued{ID: id(1), Result: store.Stale}}}
		},
		"a key is used once, until the last task with it is deleted": func(b *book) []check {
			once := func(n int) store.Enqueued {
				return b.enqueue(store.NewTask{ID: id(n), Key: "x", OnConflict: store.Once})
			}
			once(1)
			waiting := once(2)
			b.claim(1)
			b.finish(1, store.Outcome{State: store.Completed})
			over := once(3)
			b.edit(1, store.Change{Op: store.Delete})
			skipped := store.Enqueued{ID: id(1), Result: store.Skipped}
			return []check{{"waiting", waiting, skipped}, {"over", over, skipped}, {"deleted", once(4).Result, store.Added}}
		},
		"a task that would be retried is superseded by the rerun that waits for it": func(b *book) []check {
			b.enqueue(store.NewTask{ID: id(1), Key: "x", OnConflict: store.Rerun})
			b.claim(1)
			b.enqueue(store.NewTask{ID: id(2), Key: "x", OnConflict: store.Rerun})
			b.finish(1, store.Outcome{State: store.Retryable, Delay: time.Minute, Error: "no"})
			return []check{{"first", b.state(1), store.Cancelled}, {"reason", b.tasks[id(1)].Reason, rules.Superseded},
				{"attempt", b.attempts[id(1)][0].Outcome, store.Cancelled}, {"second", b.state(2), store.Available}}
		},
		"a task that was asked to stop does not run again": func(b *book) []check {
			b.enqueue(store.NewTask{ID: id(1)})
			b.claim(1)
			asked := b.edit(1, store.Change{Op: store.Cancel, Reason: "enough"})
			b.finish(1, store.Outcome{State: store.Available})
			return []check{{"asked", asked.Result, store.Requested}, {"state", b.state(1), store.Cancelled},
				{"reason", b.tasks[id(1)].Reason, "enough"}}
		},
		"a task that its worker cancels as it was asked to has the reason of whoever asked": func(b *book) []check {
			b.enqueue(store.NewTask{ID: id(1)})
			b.claim(1)
			b.edit(1, store.Change{Op: store.Cancel, Reason: "enough"})
			b.finish(1, store.Outcome{State: store.Cancelled, Reason: "cancelled while it ran"})
			return []check{{"reason", b.tasks[id(1)].Reason, "enough"}}
		},
		"a completion that races a cancel completes": func(b *book) []check {
			b.enqueue(store.NewTask{ID: id(1)})
			b.claim(1)
			b.edit(1, store.Change{Op: store.Cancel})
			b.finish(1, store.Outcome{State: store.Completed})
			return []check{{"state", b.state(1), store.Completed}}
		},
		"a turn is given back when an attempt ends, and kept when the task is handed back": func(b *book) []check {
			for n := 1; n <= 3; n++ {
				b.enqueue(store.NewTask{ID: id(n), Turn: true})
				b.do(func(batch *rules.Batch) error { _, err := batch.Grant([]store.ID{id(n)}); return err })
				b.claim(n)
			}
			b.finish(1, store.Outcome{State: store.Completed})
			b.finish(2, store.Outcome{State: store.Available})
			b.finish(3, store.Outcome{State: store.Retryable, KeepTurn: true})
			return []check{{"ended", b.tasks[id(1)].HasTurn, false}, {"handed back", b.tasks[id(2)].HasTurn, true},
				{"kept", b.tasks[id(3)].HasTurn, true}}
		},
		"a child runs when the last task that it needs has completed": func(b *book) []check {
			b.enqueue(store.NewTask{ID: id(1)})
			b.enqueue(store.NewTask{ID: id(2)})
			b.enqueue(store.NewTask{ID: id(3), Needs: []store.Need{{Task: id(1)}, {Task: id(2)}}})
			b.claim(1)
			b.finish(1, store.Outcome{State: store.Completed})
			one := b.state(3)
			b.claim(2)
			b.finish(2, store.Outcome{State: store.Completed})
			return []check{{"after one", one, store.Pending}, {"after both", b.state(3), store.Available}}
		},
		"a failure cancels what needs it, and what needs that": func(b *book) []check {
			b.enqueue(store.NewTask{ID: id(1)})
			b.enqueue(store.NewTask{ID: id(2), Needs: []store.Need{{Task: id(1)}}})
			b.enqueue(store.NewTask{ID: id(3), Needs: []store.Need{{Task: id(2)}}})
			b.edit(1, store.Change{Op: store.Cancel})
			return []check{{"cancelled", b.doom(), 2}, {"second", b.state(2), store.Cancelled},
				{"third", b.state(3), store.Cancelled}}
		},
		"a need that is met stays met when its task is deleted": func(b *book) []check {
			b.enqueue(store.NewTask{ID: id(1)})
			b.enqueue(store.NewTask{ID: id(2)})
			b.enqueue(store.NewTask{ID: id(3), Needs: []store.Need{{Task: id(1)}, {Task: id(2)}}})
			b.claim(1)
			b.finish(1, store.Outcome{State: store.Completed})
			b.edit(1, store.Change{Op: store.Delete})
			return []check{{"cancelled", b.doom(), 0}, {"child", b.state(3), store.Pending}, {"open", b.tasks[id(3)].Open, 1}}
		},
		"a task that has run does not need again what is gone since": func(b *book) []check {
			b.enqueue(store.NewTask{ID: id(1)})
			b.enqueue(store.NewTask{ID: id(2)})
			b.enqueue(store.NewTask{ID: id(3), Needs: []store.Need{{Task: id(1)}, {Task: id(2)}}})
			b.enqueue(store.NewTask{ID: id(4), Needs: []store.Need{{Task: id(2)}}})
			for n := range 3 {
				b.claim(n + 1)
				b.finish(n+1, store.Outcome{State: store.Completed})
			}
			b.edit(4, store.Change{Op: store.Cancel}) // this one has not run
			b.edit(1, store.Change{Op: store.Delete})
			b.edit(2, store.Change{Op: store.Delete})
			b.edit(3, store.Change{Op: store.Retry})
			b.edit(4, store.Change{Op: store.Retry})
			return []check{{"cancelled", b.doom(), 1}, {"has run", b.state(3), store.Available},
				{"needs", len(b.needs[id(3)]), 2}, {"has not", b.state(4), store.Cancelled}}
		},
		"a failed task that is retried in time dooms nothing": func(b *book) []check {
			b.enqueue(store.NewTask{ID: id(1)})
			b.enqueue(store.NewTask{ID: id(2), Needs: []store.Need{{Task: id(1)}}})
			b.edit(1, store.Change{Op: store.Cancel})
			b.edit(1, store.Change{Op: store.Retry})
			return []check{{"cancelled", b.doom(), 0}, {"child", b.state(2), store.Pending}}
		},
		"a task that needs a task of the same call waits for it": func(b *book) []check {
			b.do(func(batch *rules.Batch) error {
				_, err := batch.Enqueue([]store.NewTask{{ID: id(1), Queue: "q"},
					{ID: id(2), Queue: "q", Needs: []store.Need{{Task: id(1)}}}})
				return err
			})
			return []check{{"child", b.state(2), store.Pending}, {"needed", b.tasks[id(1)].Needed, true}}
		},
		"a parent waits for the children that it spawns": func(b *book) []check {
			b.enqueue(store.NewTask{ID: id(1)})
			b.claim(1)
			b.finish(1, store.Outcome{State: store.Pending, Then: []store.NewTask{{ID: id(2), Queue: "q"}},
				Needs: []store.Need{{Task: id(2)}}})
			waits := b.state(1)
			b.claim(2)
			b.finish(2, store.Outcome{State: store.Completed})
			return []check{{"waits", waits, store.Pending}, {"goes on", b.state(1), store.Available}}
		},
		"an ephemeral task is gone when it has completed, unless others need it": func(b *book) []check {
			b.enqueue(store.NewTask{ID: id(1)})
			b.enqueue(store.NewTask{ID: id(2)})
			b.enqueue(store.NewTask{ID: id(3), Needs: []store.Need{{Task: id(2)}}})
			b.claim(1)
			b.claim(2)
			b.finish(1, store.Outcome{State: store.Completed, Forget: true})
			b.finish(2, store.Outcome{State: store.Completed, Forget: true})
			return []check{{"alone", b.state(1), store.State(0)}, {"needed", b.state(2), store.Completed},
				{"child", b.state(3), store.Available}}
		},
		"a key moves with its task, unless it is taken there": func(b *book) []check {
			b.enqueue(store.NewTask{ID: id(1), Key: "x"})
			b.enqueue(store.NewTask{ID: id(2), Key: "x", Queue: "r"})
			taken := b.edit(1, store.Change{Op: store.Move, Queue: "r"})
			moved := b.edit(1, store.Change{Op: store.Move, Queue: "s"})
			return []check{{"taken", taken.Result, store.KeyTaken}, {"moved", moved.Result, store.Changed},
				{"here", b.enqueue(store.NewTask{ID: id(3), Key: "x"}).Result, store.Added},
				{"there", b.enqueue(store.NewTask{ID: id(4), Key: "x", Queue: "s"}).Result, store.Skipped}}
		},
		"a finished task begins again only while its key is free": func(b *book) []check {
			b.enqueue(store.NewTask{ID: id(1), Key: "x"})
			b.edit(1, store.Change{Op: store.Cancel})
			b.enqueue(store.NewTask{ID: id(2), Key: "x"})
			taken := b.edit(1, store.Change{Op: store.Retry})
			b.edit(2, store.Change{Op: store.Cancel})
			free := b.edit(1, store.Change{Op: store.Retry})
			return []check{{"taken", taken.Result, store.KeyTaken},
				{"free", free, store.Edited{ID: id(1), Result: store.Changed, State: store.Available}}}
		},
		"an outcome counts once, and only under the lease of the attempt": func(b *book) []check {
			b.enqueue(store.NewTask{ID: id(1)})
			b.claim(1)
			mine, forged := b.tasks[id(1)].Task, b.tasks[id(1)].Task
			forged.Lease = store.Token{9}
			var lost []store.ID
			b.do(func(batch *rules.Batch) (err error) {
				lost, err = batch.Finish([]*store.Outcome{{Task: &forged, State: store.Discarded},
					{Task: &mine, State: store.Completed}, {Task: &mine, State: store.Available}})
				return err
			})
			return []check{{"lost", len(lost), 2}, {"state", b.state(1), store.Completed},
				{"attempts", len(b.attempts[id(1)]), 1}}
		},
		"a batch asks in three rounds, whatever its size": func(b *book) []check {
			var outcomes []*store.Outcome
			for n := 1; n <= 20; n++ {
				b.enqueue(store.NewTask{ID: id(n), Key: fmt.Sprint(n), OnConflict: store.Rerun})
				b.enqueue(store.NewTask{ID: id(n + 20), Needs: []store.Need{{Task: id(n)}}})
				b.claim(n)
				b.enqueue(store.NewTask{ID: id(n + 40), Key: fmt.Sprint(n), OnConflict: store.Rerun})
				t := b.tasks[id(n)].Task
				outcomes = append(outcomes, &store.Outcome{Task: &t, State: store.Completed,
					Then: []store.NewTask{{ID: id(n + 60), Queue: "q", Key: fmt.Sprint("then", n)}}})
			}
			b.rounds = 0
			b.do(func(batch *rules.Batch) error { _, err := batch.Finish(outcomes); return err })
			ends := b.rounds
			b.rounds = 0
			b.do(func(batch *rules.Batch) error {
				_, err := batch.Edit([]store.ID{id(21), id(22), id(41), id(61)}, &store.Change{Op: store.Cancel})
				return err
			})
			return []check{{"finish", ends, 3}, {"edit", b.rounds <= 3, true}, {"child", b.state(21), store.Cancelled},
				{"rerun", b.state(42), store.Available}, {"then", b.state(80), store.Available}}
		},
		"a rerun that waits can be called off": func(b *book) []check {
			b.enqueue(store.NewTask{ID: id(1), Key: "x", OnConflict: store.Rerun})
			b.claim(1)
			b.enqueue(store.NewTask{ID: id(2), Key: "x", OnConflict: store.Rerun})
			refused := b.edit(2, store.Change{Op: store.Reprioritize})
			off := b.edit(2, store.Change{Op: store.Cancel})
			b.finish(1, store.Outcome{State: store.Retryable})
			return []check{{"refused", refused.Result, store.Refused}, {"off", off.Result, store.Changed},
				{"first", b.state(1), store.Retryable}}
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			for _, c := range history(newBook()) {
				if c.got != c.want {
					t.Errorf("%s: %v, want %v", c.of, c.got, c.want)
				}
			}
		})
	}
}

// TestWhichStatesAllowWhichChange is the table of store.Change.
func TestWhichStatesAllowWhichChange(t *testing.T) {
	allowed := map[store.Op][]store.State{
		store.Cancel: {store.Scheduled, store.Pending, store.Available, store.Running, store.Retryable},
		store.Retry:  {store.Scheduled, store.Retryable, store.Completed, store.Cancelled, store.Discarded},
		store.Delete: {store.Scheduled, store.Pending, store.Available, store.Retryable, store.Completed,
			store.Cancelled, store.Discarded},
		store.Reprioritize: {store.Scheduled, store.Available, store.Retryable},
		store.Move:         {store.Scheduled, store.Available, store.Retryable},
		store.Reschedule:   {store.Scheduled, store.Available, store.Retryable},
	}
	for op, states := range allowed {
		for _, state := range store.States() {
			b := newBook()
			b.tasks[id(1)] = &rules.Row{Task: store.Task{ID: id(1), Queue: "q", State: state},
				Open: map[bool]int{true: 1}[state == store.Pending]}
			want := false
			for _, s := range states {
				want = want || s == state
			}
			if got := b.edit(1, store.Change{Op: op, Queue: "r", Priority: 1}).Result; (got != store.Refused) != want {
				t.Errorf("%v of a %v task: %v", op, state, got)
			}
		}
	}
	if got := newBook().edit(1, store.Change{Op: store.Cancel}).Result; got != store.Missing {
		t.Errorf("a task that does not exist: %v", got)
	}
}
