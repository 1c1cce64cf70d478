package tusk_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/store"
)

// parts are n children in the queue aside.
func parts(n int) (children []tusk.ChildTask) {
	for i := range n {
		children = append(children, tusk.ChildTask{Kind: "part", Queue: "aside", Args: json.RawMessage(fmt.Sprint(i))})
	}
	return children
}

// family returns the ids of the tasks with an id, and of its children in their order.
func (s *shop) family(id tusk.ID) (children []tusk.TaskInfo) {
	s.t.Helper()
	w, err := s.client.Workflow(s.t.Context(), id)
	if err != nil {
		s.t.Fatal(err)
	}
	for _, t := range w.Tasks {
		if t.ID != id {
			children = append(children, t)
		}
	}
	slices.SortFunc(children, func(a, b tusk.TaskInfo) int { return strings.Compare(a.ID.String(), b.ID.String()) })
	return children
}

// lendFrom waits for one task of a queue.
func lendFrom(t *testing.T, p *tusk.Puller, queue string) tusk.Lent {
	t.Helper()
	lent, err := p.Claim(t.Context(), tusk.Pull{Queues: []string{queue}, Wait: 20 * time.Second})
	if err != nil || len(lent) != 1 {
		t.Fatal(lent, err)
	}
	return lent[0]
}

func TestALentTaskWaitsForItsChildren(t *testing.T) {
	inBubble(t, "and reads how they ended", func(t *testing.T, s *shop) {
		p, end := s.pull()
		defer end()
		id := s.enqueue(count{}, &tusk.Options{Tenant: "acme", MaxAttempts: 1})
		const many = 300 // more than have consecutive ids
		finish(t, p, tusk.Verdict{Receipt: lendOne(t, p).Receipt, Err: tusk.Wait(), Children: parts(many)})
		if got := s.get(id); got.State != store.Pending || got.Attempt != 0 {
			t.Fatalf("%v, attempt %d", got.State, got.Attempt)
		}
		for i, child := range s.family(id) {
			if string(child.Args) != fmt.Sprint(i) || child.Tenant != "acme" || child.Kind != "part" || child.Workflow != id {
				t.Errorf("child %d: %+v", i, child)
			}
		}
		for range many {
			l := lendFrom(t, p, "aside")
			v := tusk.Verdict{Receipt: l.Receipt, Output: l.Args}
			if string(l.Args) == "7" {
				v.Err = tusk.Discard(errors.New("boom"))
			}
			finish(t, p, v)
		}
		l := lendOne(t, p)
		inputs, more, err := p.Inputs(t.Context(), l.Receipt, tusk.ID{})
		if err != nil || more || len(inputs) != many || l.ID != id || l.Attempt != 1 {
			t.Fatalf("%+v: %d inputs, %v", l, len(inputs), err)
		}
		for i, in := range inputs {
			want := store.Completed
			if i == 7 {
				want = store.Discarded
			}
			if in.State != want || i != 7 && string(in.Output) != fmt.Sprint(i) {
				t.Errorf("input %d: %+v", i, in)
			}
		}
		finish(t, p, tusk.Verdict{Receipt: l.Receipt})
		if got := s.get(id); got.State != store.Completed {
			t.Errorf("%v", got.State)
		}
	})
}

func TestChildrenOfALentTaskThatDoesNotWait(t *testing.T) {
	inBubble(t, "it completes", func(t *testing.T, s *shop) {
		p, end := s.pull()
		defer end()
		id := s.enqueue(count{}, nil)
		finish(t, p, tusk.Verdict{Receipt: lendOne(t, p).Receipt, Children: parts(2)})
		if got := s.family(id); len(got) != 2 || s.get(id).State != store.Completed {
			t.Errorf("%+v", got)
		}
	})
	inBubble(t, "it is a stage of a pipeline", func(t *testing.T, s *shop) {
		pipeline := tusk.NewPipeline("p").Stage("one", nil).Stage("two", nil)
		if err := s.client.DefinePipeline(t.Context(), pipeline); err != nil {
			t.Fatal(err)
		}
		p, end := s.pull()
		defer end()
		s.enqueue(pipeline.Start(1), nil)
		finish(t, p, tusk.Verdict{Receipt: lendFrom(t, p, "p.one").Receipt, Children: parts(1)})
		if kinds := append(s.kindsOf("aside"), s.kindsOf("p.two")...); !slices.Equal(kinds, []string{"part", "p.two"}) {
			t.Errorf("child and next stage: %v", kinds)
		}
	})
	for name, err := range map[string]error{"it fails": errors.New("boom"), "it is given back": tusk.ErrShutdown,
		"it snoozes": tusk.Snooze(time.Hour)} {
		inBubble(t, name, func(t *testing.T, s *shop) {
			p, end := s.pull()
			defer end()
			id := s.enqueue(count{}, nil)
			finish(t, p, tusk.Verdict{Receipt: lendOne(t, p).Receipt, Err: err, Children: parts(2)})
			if got := s.family(id); len(got) != 0 {
				t.Errorf("%+v", got)
			}
		})
	}
}

func TestChildrenThatAreRefusedLeaveTheTaskLent(t *testing.T) {
	inBubble(t, "with a clear error", func(t *testing.T, s *shop) {
		p, end := s.pull()
		defer end()
		id := s.enqueue(count{}, nil)
		r := lendOne(t, p).Receipt
		zero := time.Time{}
		for want, children := range map[string][]tusk.ChildTask{
			"children: are missing":                          nil,
			"children: are 10001, at most 10000 are allowed": parts(tusk.MaxWorkflow + 1),
			"children[1]: kind: ":                            append(parts(1), tusk.ChildTask{}),
			"children[0]: queue: ":                           {{Kind: "k", Queue: "A B"}},
			"children[0]: delay: \"soon\"":                   {{Kind: "k", Delay: "soon"}},
			"children[0]: run at: ":                          {{Kind: "k", RunAt: &zero}},
			"children[0]: args: ":                            {{Kind: "k", Args: json.RawMessage("{")}},
			"children[0]: max attempts: ":                    {{Kind: "k", MaxAttempts: -1}},
		} {
			v := tusk.Verdict{Receipt: r, Err: tusk.Wait(), Children: children}
			refused, err := p.Finish(t.Context(), []tusk.Verdict{v})
			if err != nil || !errors.Is(refused[0], tusk.ErrInvalid) || !strings.HasPrefix(refused[0].Error(), want) {
				t.Errorf("%v, %v; want %s", refused, err, want)
			}
		}
		if got := s.get(id); got.State != store.Running || len(s.family(id)) != 0 {
			t.Errorf("%v", got.State)
		}
		finish(t, p, tusk.Verdict{Receipt: r, Err: tusk.Wait(), Children: parts(1)})
	})
}

func TestARepeatedVerdictEnqueuesNoChildTwice(t *testing.T) {
	for name, wait := range map[string]error{"of a task that waits": tusk.Wait(), "of a task that completes": nil} {
		inBubble(t, name, func(t *testing.T, s *shop) {
			lossy := &noAnswer{Store: s.store}
			s.client = clientOf(t, lossy)
			p, end := s.pull()
			defer end()
			id := s.enqueue(count{}, nil)
			v := tusk.Verdict{Receipt: lendOne(t, p).Receipt, Err: wait, Children: parts(3)}
			lossy.left.Store(1)
			if _, err := p.Finish(t.Context(), []tusk.Verdict{v}); err == nil {
				t.Fatal("the answer was not lost")
			}
			other := v
			other.Children = parts(4)
			results, err := p.Finish(t.Context(), []tusk.Verdict{other, v, v})
			if err != nil || !errors.Is(results[0], tusk.ErrLeaseLost) || results[1] != nil || results[2] != nil {
				t.Errorf("repeated: %v, %v", results, err)
			}
			if got := s.family(id); len(got) != 3 {
				t.Errorf("%d children", len(got))
			}
		})
	}
	inBubble(t, "and its children are the same though the first was not stored", func(t *testing.T, s *shop) {
		late := &lateAnswer{Store: s.store}
		seen := &thens{Store: late}
		s.client = clientOf(t, seen)
		p, end := s.pull()
		defer end()
		s.enqueue(count{}, nil)
		v := tusk.Verdict{Receipt: lendOne(t, p).Receipt, Err: tusk.Wait(), Children: parts(3)}
		late.fails.Store(1)
		if _, err := p.Finish(t.Context(), []tusk.Verdict{v}); err == nil {
			t.Fatal("it was stored")
		}
		finish(t, p, v)
		if len(seen.ids) != 6 || !slices.Equal(seen.ids[:3], seen.ids[3:]) {
			t.Errorf("%v", seen.ids)
		}
	})
}

// thens records the ids of the tasks that outcomes enqueue.
type thens struct {
	store.Store
	ids []tusk.ID
}

func (r *thens) Unwrap() store.Store { return r.Store }

func (r *thens) Finish(ctx context.Context, outcomes []store.Outcome) ([]store.ID, error) {
	for _, o := range outcomes {
		for _, n := range o.Then {
			r.ids = append(r.ids, n.ID)
		}
	}
	return r.Store.Finish(ctx, outcomes)
}

func TestHooksSeeTheChildrenOfALentTask(t *testing.T) {
	for name, c := range map[string]struct {
		hook  func(n *store.NewTask) error
		state store.State
		text  string // of the error: the attempt's, or Finish's if the task stays lent
	}{
		"and may change them": {func(n *store.NewTask) error { n.Tags = []string{"seen"}; return nil }, store.Pending, ""},
		"and may fail the attempt": {func(*store.NewTask) error { return errors.New("not today") }, store.Retryable,
			"before enqueue: not today"},
		"and may not move them": {func(n *store.NewTask) error { n.Tenant = "other"; return nil }, store.Running,
			`tenant: of a child is "other", its parent's is ""`},
		"and may not give them a key": {func(n *store.NewTask) error { n.Key = "k"; return nil }, store.Running,
			"key: is not for a child"},
	} {
		inBubble(t, name, func(t *testing.T, s *shop) {
			var err error
			s.client, err = tusk.NewClient(s.store, &tusk.ClientConfig{Logger: slog.New(slog.DiscardHandler),
				BeforeEnqueue: []func(context.Context, []store.NewTask) error{
					func(_ context.Context, tasks []store.NewTask) error {
						if tasks[0].Kind != "part" {
							return nil
						}
						return c.hook(&tasks[0])
					}}})
			if err != nil {
				t.Fatal(err)
			}
			p, end := s.pull()
			defer end()
			id := s.enqueue(count{}, nil)
			refused, err := p.Finish(t.Context(), []tusk.Verdict{{Receipt: lendOne(t, p).Receipt, Err: tusk.Wait(),
				Children: parts(1)}})
			if err != nil {
				t.Fatal(err)
			}
			got, text := s.get(id), ""
			if refused[0] != nil {
				text = refused[0].Error()
			} else if attempts := got.Detail.Attempts; len(attempts) > 0 {
				text = attempts[len(attempts)-1].Error
			}
			if got.State != c.state || !strings.HasPrefix(text, c.text) || (text == "") != (c.text == "") {
				t.Errorf("%v, %q", got.State, text)
			}
			if children := s.family(id); c.text == "" && (len(children) != 1 || children[0].Tags[0] != "seen") ||
				c.text != "" && len(children) != 0 {
				t.Errorf("%+v", children)
			}
		})
	}
}
