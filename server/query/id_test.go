package query

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/server/access"
	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/memory"
)

func clientOn(t *testing.T, s store.Store) *tusk.Client {
	t.Helper()
	client, err := tusk.NewClient(s, &tusk.ClientConfig{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func TestAPartOfAnIDFindsTheTask(t *testing.T) {
	client := clientOn(t, memory.New())
	tasks := make([]tusk.NewTask, 300)
	for i := range tasks {
		tasks[i] = tusk.NewTask{Args: tusk.RawArgs{Name: "k"},
			Options: &tusk.Options{Queue: map[bool]string{true: "mine", false: "theirs"}[i < 2]}}
	}
	made, err := client.EnqueueMany(t.Context(), tasks)
	if err != nil {
		t.Fatal(err)
	}
	find := func(text string) (tusk.ID, error) { return FindID(t.Context(), client, Everything, text) }
	first, second := made[0].ID, made[1].ID
	text := first.String()
	for _, part := range []string{text, text[24:], text[19:], "…" + text[24:], strings.ToUpper(text[24:]),
		strings.ReplaceAll(text, "-", "")[10:]} {
		if id, err := find(part); id != first || err != nil {
			t.Errorf("%q finds %v, %v", part, id, err)
		}
	}
	var several *AmbiguousError
	if _, err := find(text[:34]); !errors.As(err, &several) || len(several.Tasks) < 2 ||
		!strings.Contains(err.Error(), second.String()) && len(several.Tasks) < 10 {
		t.Errorf("a beginning that tasks of one call share: %v", err)
	}
	if _, err := find("abcdef012345"); !errors.Is(err, tusk.ErrNotFound) {
		t.Error(err)
	}
	for _, part := range []string{"", "abcde", "not-an-id", "xyzxyz", text + "00"} {
		if _, err := find(part); !errors.Is(err, tusk.ErrInvalid) ||
			!strings.Contains(err.Error(), "the first or the last 6 digits") {
			t.Errorf("%q: %v", part, err)
		}
	}
	theirs := made[5].ID.String()
	me := access.Identity{Queues: []string{"mine"}}
	if _, err := FindID(t.Context(), client, me, theirs[24:]); !errors.Is(err, tusk.ErrNotFound) {
		t.Errorf("a task beyond the bounds: %v", err)
	}
}

// A page of a search takes little longer than allowed, however large the tasks are.
func TestASearchAmongLargeTasksEndsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := clientOn(t, slow{memory.New(), 32 * time.Millisecond})
		large := `{"text":"` + strings.Repeat("x", 250<<10) + `"}`
		for range 110 {
			if _, err := client.Enqueue(t.Context(), tusk.RawArgs{Name: "k", JSON: []byte(large)}, nil); err != nil {
				t.Fatal(err)
			}
		}
		q := Tasks{Args: "nothing", From: "24h"}
		f, err := q.Filter()
		if err != nil {
			t.Fatal(err)
		}
		f.Limit = 50
		begun := time.Now()
		p, err := q.Find(t.Context(), client, Everything, f, func(args []byte) []byte {
			return args
		})
		if took := time.Since(begun); err != nil || p.More.IsZero() || took > 2*SearchTime {
			t.Errorf("%d tasks were looked through in %v, %v", p.Looked, took, err)
		}
	})
}
