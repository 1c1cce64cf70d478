package postgres_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// TestRunsKeepEachTasksOwnEnd finishes parts of several leases of packs and of single tasks at
// once, with failures among them, takes single tasks out of what was completed, prunes
// it in parts, and asks all the time what became of each task and when.
func TestRunsKeepEachTasksOwnEnd(t *testing.T) {
	for seed := range uint64(2) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { runsKeepEnds(t, rand.New(rand.NewPCG(seed, 1))) })
	}
}

type end struct {
	state store.State
	ago   time.Duration
	flush int
}

func runsKeepEnds(t *testing.T, r *rand.Rand) {
	ctx := t.Context()
	s, pool := fresh(t)
	s.PackAll()
	w := startWorker(t, s)
	want := map[store.ID]end{}
	var all []store.ID
	var open []store.Task
	flushes := 0
	for range 14 {
		for range 1 + r.IntN(3) {
			n := 1 + r.IntN(300)
			tasks := newPacks(n, fmt.Sprint("q", r.IntN(2)))
			first := 256 - n
			if n <= 256 && r.IntN(2) == 0 {
				for i := range tasks {
					tasks[i].ID[15] = byte(first + i)
				}
			}
			if r.IntN(4) == 0 {
				for i := range tasks {
					tasks[i].Kind = fmt.Sprint("k", i/37%3)
				}
			}
			if _, err := s.Enqueue(ctx, tasks); err != nil {
				t.Fatal(err)
			}
			for i := range tasks {
				all = append(all, tasks[i].ID)
				want[tasks[i].ID] = end{state: store.Available}
			}
		}
		if r.IntN(3) == 0 { // somebody takes a pack apart
			id := all[r.IntN(len(all))]
			if want[id].state == store.Available {
				if _, err := s.Edit(ctx, store.Edit{IDs: []store.ID{id}, Change: store.Change{Op: store.Delete}}); err != nil {
					t.Fatal(err)
				}
				delete(want, id)
			}
		}
		for range 1 + r.IntN(3) {
			got, err := s.Claim(ctx, store.ClaimRequest{Worker: w, Token: store.NewToken(), Queues: []string{"q0", "q1"}, Limit: 1 + r.IntN(260)})
			if err != nil {
				t.Fatal(err)
			}
			for _, task := range got {
				if e, ok := want[task.ID]; !ok || e.state != store.Available {
					t.Fatalf("claimed %v which is %v", task.ID, e.state)
				}
				want[task.ID] = end{state: store.Running}
			}
			open = append(open, got...)
		}
		if _, err := pool.Exec(ctx, "update tusk.lease set claimed_at = claimed_at - interval '1 hour' where claimed_at > now() - interval '30 minutes'"); err != nil {
			t.Fatal(err)
		}
		flushes++
		share := r.IntN(5)
		var outs []store.Outcome
		var rest []store.Task
		failing := r.IntN(2) == 0
		for _, task := range open {
			if share > 0 && r.IntN(60) < 30-share*7 || share == 1 && task.ID[15] < 100 {
				rest = append(rest, task)
				continue
			}
			if r.IntN(200) == 0 {
				task.Piece = 0
			}
			o := store.Outcome{Task: &task, State: store.Completed, Attempt: task.Attempt, Ago: time.Duration(r.IntN(100000)) * time.Millisecond}
			if failing && r.IntN(10) == 0 {
				o.State, o.Error, o.Fingerprint = store.Discarded, "no", "f"
			}
			outs = append(outs, o)
			want[task.ID] = end{o.State, o.Ago, flushes}
		}
		open = rest
		r.Shuffle(len(outs), func(i, j int) { outs[i], outs[j] = outs[j], outs[i] })
		if lost, err := s.Finish(ctx, outs); err != nil || len(lost) > 0 {
			t.Fatal(len(lost), err)
		}
		if lost, err := s.Finish(ctx, outs); err != nil || len(lost) != len(outs) {
			t.Fatal("accepted twice", len(lost), len(outs), err)
		}
		for id, e := range want {
			if e.state == store.Completed && r.IntN(60) == 0 {
				if _, err := s.Edit(ctx, store.Edit{IDs: []store.ID{id}, Change: store.Change{Op: store.Delete}}); err != nil {
					t.Fatal(err)
				}
				delete(want, id)
			}
		}
		checkEnds(t, s, all, want)
	}
	if n := number(t, pool, "select count(*) from tusk.outcome where counts is not null"); n == 0 {
		t.Error("no runs")
	}
	term := lead(t, s)
	before := 0
	for _, e := range want {
		if e.state == store.Completed {
			before++
		}
	}
	for before > 0 {
		n, err := s.Prune(ctx, term, store.Retention{Completed: time.Microsecond}, 333)
		if err != nil {
			t.Fatal(err)
		}
		if n == 0 || n > 333 {
			t.Fatal("pruned", n, "left", before)
		}
		before -= n
		gone := 0
		for i, state := range states(t, s, all) {
			if e, ok := want[all[i]]; ok && state == 0 {
				if e.state != store.Completed {
					t.Fatal("pruned one that is", e.state)
				}
				gone++
				delete(want, all[i])
			}
		}
		if gone != n {
			t.Fatal("pruned", gone, "said", n)
		}
		checkEnds(t, s, all, want)
	}
	if n := number(t, pool, "select count(*) from tusk.outcome"); n != 0 {
		t.Error(n, "outcomes left")
	}
}

func checkEnds(t *testing.T, s store.Store, all []store.ID, want map[store.ID]end) {
	t.Helper()
	at := map[int]time.Time{}
	found := map[store.ID]bool{}
	for i := 0; i < len(all); i += store.MaxPage {
		list, err := s.List(t.Context(), store.Filter{IDs: all[i:min(i+store.MaxPage, len(all))], Limit: store.MaxPage})
		if err != nil {
			t.Fatal(err)
		}
		for _, task := range list {
			e, ok := want[task.ID]
			if !ok || e.state != task.State {
				t.Fatalf("%v is %v, want %v", task.ID, task.State, e.state)
			}
			found[task.ID] = true
			if e.flush > 0 {
				now := task.FinishedAt.Add(e.ago)
				if at[e.flush].IsZero() {
					at[e.flush] = now
				} else if d := now.Sub(at[e.flush]).Abs(); d > 2*time.Millisecond {
					t.Fatalf("%v ended %v off", task.ID, d)
				}
			}
		}
	}
	if len(found) != len(want) {
		t.Fatalf("%d tasks, want %d", len(found), len(want))
	}
}
