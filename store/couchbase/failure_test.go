package couchbase

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/couchbase/gocbcore/v10/memd"

	"github.com/tuskqueue/tusk/internal/cbfake"
	"github.com/tuskqueue/tusk/store"
)

// If the node with a task is away, that is no fault of the task's outcome: whoever writes the outcome must not give it
// up.
func TestAnOutcomeIsNotToBlameForAServerThatIsAway(t *testing.T) {
	for name, how := range map[string]cbfake.Spoil{"busy": cbfake.Busy, "gone": cbfake.LoseRequest,
		"a durable write under way": cbfake.SyncWrite} {
		for _, within := range []time.Duration{time.Second, time.Hour} {
			t.Run(name+" for "+within.String(), func(t *testing.T) {
				t.Parallel()
				r := newRig(t, 1)
				r.add(r.task("x", nil))
				r.claim()
				ctx, cancel := context.WithTimeout(r.ctx(), within)
				defer cancel()
				r.f.Set(cbfake.Faults{Request: func(_ memd.CmdCode, k string) cbfake.Spoil {
					if k == r.ids["x"].String() {
						return how
					}
					return cbfake.Sound
				}})
				_, err := r.a.Finish(ctx, []store.Outcome{r.outcome("x", store.Completed)})
				if !store.IsForAll(err) && !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("the outcome would be blamed for: %v", err)
				}
			})
		}
	}
}

// A task that no document can hold is refused with what to do, and is not tried again as if the server were away.
func TestATaskThatIsTooLarge(t *testing.T) {
	r := newRig(t, 1)
	one := r.task("x", nil)
	one.Args = []byte(`"` + strings.Repeat("x", 20<<20) + `"`)
	_, err := r.a.Enqueue(r.ctx(), []store.NewTask{one})
	if !errors.Is(err, store.ErrUnstorable) || !strings.Contains(err.Error(), "20 MiB") {
		t.Errorf("enqueue: %.300v", err)
	}
}

// While the node with one task does not answer, the outcomes of others are accepted and nobody is asked for them again.
func TestOutcomesBesideOneThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1)
	x, y := r.task("x", nil), r.task("y", nil)
	r.add(x, y)
	r.add(r.task("child", needs(y.ID)))
	r.claim()
	r.f.Set(cbfake.Faults{Request: func(_ memd.CmdCode, k string) cbfake.Spoil {
		if k == x.ID.String() {
			return cbfake.LoseRequest
		}
		return cbfake.Sound
	}})
	lost, err := r.a.Finish(r.ctx(), []store.Outcome{r.outcome("x", store.Completed), r.outcome("y", store.Completed)})
	held := new(store.HeldError)
	if !errors.As(err, &held) || !slices.Equal(held.Tasks, []store.ID{x.ID}) || len(lost) > 0 {
		t.Errorf("it is lost %v, %v", lost, err)
	}
	r.f.Set(cbfake.Faults{})
	if child := r.get(r.ids["child"]); child.State != store.Available {
		t.Errorf("the child is %v", child.State)
	}
	r.must("finish", r.finish(r.ctx(), r.outcome("x", store.Completed)))
}

// While the node with one due task does not answer, the others are admitted and can be claimed at once.
func TestAdmissionsBesideOneThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1)
	soon := func(n *store.NewTask) { n.Delay = time.Millisecond }
	x := r.task("x", soon)
	r.add(x, r.task("y", soon))
	time.Sleep(20 * time.Millisecond)
	r.f.Set(cbfake.Faults{Request: func(_ memd.CmdCode, k string) cbfake.Spoil {
		if k == x.ID.String() {
			return cbfake.LoseRequest
		}
		return cbfake.Sound
	}})
	if _, err := r.b.Admit(r.ctx(), r.term, 10); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("admit: %v", err)
	}
	r.f.Set(cbfake.Faults{})
	if r.claim(); len(r.held) != 1 {
		t.Errorf("claimed %v", r.held)
	}
}
