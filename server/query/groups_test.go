package query

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/memory"
)

// failed ends tasks with errors, each with its own fingerprint.
func failed(t *testing.T, s store.Store, from, until int) {
	t.Helper()
	ctx, worker := t.Context(), tusk.NewID()
	about := store.Worker{ID: worker, Queues: []string{"q"}}
	if _, err := s.Extend(ctx, store.Beat{Worker: about, TTL: time.Hour}); err != nil {
		t.Fatal(err)
	}
	tasks := make([]store.NewTask, until-from)
	for i := range tasks {
		tasks[i] = store.NewTask{ID: tusk.NewID(), Kind: "k", Queue: "q", Args: []byte("{}")}
	}
	if _, err := s.Enqueue(ctx, tasks); err != nil {
		t.Fatal(err)
	}
	claimed, err := s.Claim(ctx, store.ClaimRequest{Worker: worker, Queues: []string{"q"}, Limit: len(tasks),
		Token: store.NewToken()})
	if err != nil || len(claimed) != len(tasks) {
		t.Fatal(len(claimed), err)
	}
	outcomes := make([]store.Outcome, len(claimed))
	for i := range claimed {
		outcomes[i] = store.Outcome{Task: &claimed[i], State: store.Discarded, Attempt: 1, Error: "no",
			Fingerprint: fmt.Sprintf("%016x", from+i)}
	}
	if lost, err := s.Finish(ctx, outcomes); err != nil || len(lost) > 0 {
		t.Fatal(lost, err)
	}
}

// A list that is cut says so, and so does a search for a fingerprint in it.
func TestMoreGroupsThanAreListedAreSaid(t *testing.T) {
	s := memory.New()
	client := clientOn(t, s)
	failed(t, s, 0, 3)
	for limit, want := range map[int]bool{2: true, 3: false, 4: false} {
		groups, more, err := LatestGroups(t.Context(), client, store.ErrorFilter{Limit: limit})
		if err != nil || len(groups) != min(limit, 3) || more != want {
			t.Errorf("%d: %d groups, more: %v, %v", limit, len(groups), more, err)
		}
	}
	cut := func(want bool) {
		t.Helper()
		_, err := Groups(t.Context(), client, "none")
		if !errors.Is(err, tusk.ErrNotFound) || strings.Contains(err.Error(), "older ones are not looked at") != want {
			t.Error(err)
		}
	}
	cut(false)
	for n := 3; n <= MostGroups; n += 1000 {
		failed(t, s, n, n+1000)
	}
	cut(true)
}
