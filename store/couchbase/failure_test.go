package couchbase

import (
	"context"
	"errors"
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
