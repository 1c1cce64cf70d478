package tusk_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/store"
)

// lendOne waits for one task.
func lendOne(t *testing.T, p *tusk.Puller) tusk.Lent {
	t.Helper()
	for range 100 {
		lent, err := p.Claim(t.Context(), tusk.Pull{Queues: []string{tusk.DefaultQueue}, Wait: 10 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		if len(lent) > 0 {
			return lent[0]
		}
	}
	t.Fatal("there is no task")
	return tusk.Lent{}
}

func finish(t *testing.T, p *tusk.Puller, v tusk.Verdict) {
	t.Helper()
	if refused, err := p.Finish(t.Context(), []tusk.Verdict{v}); err != nil || refused[0] != nil {
		t.Fatal(refused, err)
	}
}

// join lends a task that comes after n others, each of which has completed with the given output.
func join(t *testing.T, s *shop, p *tusk.Puller, n int, output string) tusk.Lent {
	t.Helper()
	w := tusk.NewWorkflow()
	var parts []*tusk.Node
	for i := range n {
		parts = append(parts, w.Task(fmt.Sprint("part", i), count{i}, nil))
	}
	w.Task("join", count{}, nil).After(parts...)
	if _, err := s.client.EnqueueWorkflow(t.Context(), w); err != nil {
		t.Fatal(err)
	}
	for range n {
		l := lendOne(t, p)
		finish(t, p, tusk.Verdict{Receipt: l.Receipt, Output: json.RawMessage(output)})
	}
	l := lendOne(t, p)
	if l.Node != "join" || l.Workflow.IsZero() {
		t.Fatalf("%+v", l)
	}
	return l
}

func TestALentTaskHasItsInputs(t *testing.T) {
	inBubble(t, "in their order, page by page", func(t *testing.T, s *shop) {
		p, end := s.pull()
		defer end()
		const parts = 20
		output := `"` + strings.Repeat("x", tusk.MaxOutputBytes-2) + `"`
		l := join(t, s, p, parts, output)
		var names []string
		pages := 0
		for after := (tusk.ID{}); ; pages++ {
			page, more, err := p.Inputs(t.Context(), l.Receipt, after)
			if err != nil || len(page) == 0 {
				t.Fatal(page, err)
			}
			size := 0
			for _, in := range page {
				names = append(names, in.Name)
				if size += len(in.Output); string(in.Output) != output || in.State != tusk.StateCompleted || in.Kind != "count" {
					t.Errorf("%s: %v, %d bytes", in.Name, in.State, len(in.Output))
				}
			}
			if size > 9<<20 {
				t.Errorf("a page has %d bytes", size)
			}
			if after = page[len(page)-1].ID; !more {
				break
			}
		}
		if len(names) != parts || names[0] != "part0" || names[parts-1] != fmt.Sprint("part", parts-1) || pages == 0 {
			t.Errorf("%v on %d further pages", names, pages)
		}
		if _, _, err := p.Inputs(t.Context(), l.Receipt, l.ID); !errors.Is(err, tusk.ErrInvalid) {
			t.Error(err)
		}
	})
	inBubble(t, "only its own, and only while it is lent", func(t *testing.T, s *shop) {
		p, end := s.pull()
		defer end()
		other := s.enqueue(count{}, nil)
		finish(t, p, tusk.Verdict{Receipt: lendOne(t, p).Receipt, Output: json.RawMessage(`"secret"`)})
		l := join(t, s, p, 1, "7")
		page, _, err := p.Inputs(t.Context(), l.Receipt, tusk.ID{})
		if err != nil || len(page) != 1 {
			t.Fatal(page, err)
		}
		if in, err := p.Input(t.Context(), l.Receipt, page[0].ID); err != nil || string(in.Output) != "7" {
			t.Error(in, err)
		}
		for _, id := range []tusk.ID{other, l.ID} {
			if in, err := p.Input(t.Context(), l.Receipt, id); !errors.Is(err, tusk.ErrNotFound) {
				t.Error(in, err)
			}
		}
		finish(t, p, tusk.Verdict{Receipt: l.Receipt})
		for _, r := range []tusk.Receipt{l.Receipt, {ID: l.ID}, {ID: other}, {ID: tusk.NewID()}} {
			if page, _, err := p.Inputs(t.Context(), r, tusk.ID{}); !errors.Is(err, tusk.ErrLeaseLost) {
				t.Error(page, err)
			}
			if in, err := p.Input(t.Context(), r, page[0].ID); !errors.Is(err, tusk.ErrLeaseLost) {
				t.Error(in, err)
			}
		}
	})
	inBubble(t, "without the text of large outputs", func(t *testing.T, s *shop) {
		s.large(nil)
		p, end := s.pull()
		defer end()
		output := `"` + strings.Repeat("x", 2*tusk.MaxOutputBytes) + `"`
		w := tusk.NewWorkflow()
		part := w.Task("part", count{}, nil)
		w.Task("join", count{}, nil).After(part)
		if _, err := s.client.EnqueueWorkflow(t.Context(), w); err != nil {
			t.Fatal(err)
		}
		finish(t, p, tusk.Verdict{Receipt: lendOne(t, p).Receipt, Stream: strings.NewReader(output)})
		page, more, err := p.Inputs(t.Context(), lendOne(t, p).Receipt, tusk.ID{})
		if err != nil || len(page) != 1 || more || page[0].Output != nil || !page[0].Content.Large() {
			t.Fatal(page, more, err)
		}
		if text, err := page[0].Content.Bytes(t.Context()); err != nil || string(text) != output {
			t.Errorf("%d bytes, %v", len(text), err)
		}
	})
}

// reading counts the bytes of outputs that are read.
type reading struct {
	store.Store
	bytes int
}

func (r *reading) Unwrap() store.Store { return r.Store }

func (r *reading) List(ctx context.Context, f store.Filter) ([]store.Task, error) {
	tasks, err := r.Store.List(ctx, f)
	for _, t := range tasks {
		if t.Detail != nil {
			r.bytes += len(t.Detail.Output)
		}
	}
	return tasks, err
}

func TestTheFirstInputsOfALargeJoinAreReadWithoutTheOthers(t *testing.T) {
	inBubble(t, "up to some bytes", func(t *testing.T, s *shop) {
		r := &reading{Store: s.store}
		s.client = clientOf(t, r)
		p, end := s.pull()
		defer end()
		l := join(t, s, p, 20, `"`+strings.Repeat("x", tusk.MaxOutputBytes-2)+`"`)
		for bytes, want := range map[int]int{1: 1, 2 * tusk.MaxOutputBytes: 2, 100 * tusk.MaxOutputBytes: 20} {
			r.bytes = 0
			page, more, err := p.FirstInputs(t.Context(), l.Receipt, bytes)
			if err != nil || len(page) != want || more != (want < 20) {
				t.Errorf("%d bytes: %d inputs, more: %v, %v", bytes, len(page), more, err)
			}
			if r.bytes > want*tusk.MaxOutputBytes+1<<20 {
				t.Errorf("%d bytes were read for %d inputs", r.bytes, want)
			}
		}
		if _, _, err := p.FirstInputs(t.Context(), tusk.Receipt{ID: l.ID}, 1); !errors.Is(err, tusk.ErrLeaseLost) {
			t.Errorf("another lease: %v", err)
		}
	})
}
