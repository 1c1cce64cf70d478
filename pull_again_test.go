package tusk_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/store"
)

func TestAVerdictThatWasNotStoredIsNotTakenForADeletion(t *testing.T) {
	inBubble(t, "of an ephemeral task that another attempt has completed", func(t *testing.T, s *shop) {
		late := &lateAnswer{Store: s.store}
		s.client = clientOf(t, late)
		p, end := s.pull()
		defer end()
		defer s.lead()() // so that the task is retried
		s.enqueue(count{}, &tusk.Options{Ephemeral: true})
		v := tusk.Verdict{Receipt: lend(t, p, 1)[0]}
		late.fails.Store(1)
		if _, err := p.Finish(t.Context(), []tusk.Verdict{v}); err == nil {
			t.Fatal("it was stored")
		}
		time.Sleep(time.Minute) // the lease has ended
		finish(t, p, tusk.Verdict{Receipt: lendOne(t, p).Receipt})
		results, err := p.Finish(t.Context(), []tusk.Verdict{v})
		if err != nil || !errors.Is(results[0], tusk.ErrLeaseLost) {
			t.Errorf("repeated: %v, %v", results, err)
		}
	})
}

func TestARepeatedVerdictIsNotValidatedAgain(t *testing.T) {
	inBubble(t, "though its children would be refused by now", func(t *testing.T, s *shop) {
		lossy, refuses := &noAnswer{Store: s.store}, false
		var err error
		s.client, err = tusk.NewClient(lossy, &tusk.ClientConfig{Logger: slog.New(slog.DiscardHandler),
			BeforeEnqueue: []func(context.Context, []store.NewTask) error{
				func(_ context.Context, tasks []store.NewTask) error {
					if refuses {
						tasks[0].Tenant = "other"
					}
					return nil
				}}})
		if err != nil {
			t.Fatal(err)
		}
		p, end := s.pull()
		defer end()
		id := s.enqueue(count{}, nil)
		v := tusk.Verdict{Receipt: lendOne(t, p).Receipt, Err: tusk.Wait(), Children: parts(3)}
		lossy.left.Store(1)
		if _, err := p.Finish(t.Context(), []tusk.Verdict{v}); err == nil {
			t.Fatal("the answer was not lost")
		}
		refuses = true
		other := tusk.Verdict{Receipt: v.Receipt, Err: errors.New("another")}
		results, err := p.Finish(t.Context(), []tusk.Verdict{v, other})
		if err != nil || results[0] != nil || !errors.Is(results[1], tusk.ErrLeaseLost) {
			t.Errorf("repeated: %v, %v", results, err)
		}
		if got := s.family(id); len(got) != 3 || p.Lent() != 0 {
			t.Errorf("%d children, %d lent", len(got), p.Lent())
		}
	})
}

func TestChildrenWithSecretOrLargeArgs(t *testing.T) {
	long := `{"Text":"` + strings.Repeat("x", 1000) + `"}`
	for name, ring := range map[string]*tusk.KeyRing{"in the clear": nil, "encrypted": keyRing("a", "a")} {
		inBubble(t, name, func(t *testing.T, s *shop) {
			s.large(ring)
			p, end := s.pull()
			defer end()
			id := s.enqueue(count{}, nil)
			want := []string{`{"Text":"short"}`, long}
			v := tusk.Verdict{Receipt: lendOne(t, p).Receipt, Err: tusk.Wait()}
			for _, args := range want {
				v.Children = append(v.Children, tusk.ChildTask{Kind: "letter", Queue: "aside", Args: json.RawMessage(args)})
			}
			finish(t, p, v)
			finish(t, p, v)
			for range want {
				l := lendFrom(t, p, "aside")
				content, err := p.Args(&l)
				if err != nil {
					t.Fatal(err)
				}
				text, err := content.Bytes(t.Context())
				if args := string(text); err != nil || args != want[0] && args != want[1] {
					t.Errorf("%.40s, %v", text, err)
				}
				stored := string(s.get(l.ID).Task.Args)
				if strings.Contains(stored, "xxx") || ring != nil && strings.Contains(stored, "short") {
					t.Errorf("stored as %.40s", stored)
				}
				finish(t, p, tusk.Verdict{Receipt: l.Receipt})
			}
			if l := lendOne(t, p); l.ID != id {
				t.Errorf("%v", l.ID)
			}
		})
	}
}

func TestATaskThatAnotherPullerLentWaits(t *testing.T) {
	inBubble(t, "for the children that the verdict names", func(t *testing.T, s *shop) {
		lender, end := s.pull()
		defer end()
		other, endOther := s.pull()
		defer endOther()
		id := s.enqueue(count{}, nil)
		v := tusk.Verdict{Receipt: lendOne(t, lender).Receipt, Err: tusk.Wait(), Children: parts(2)}
		finish(t, other, v)
		finish(t, other, v) // repeated
		if got := s.family(id); len(got) != 2 || s.get(id).State != store.Pending {
			t.Errorf("%d children, %v", len(got), s.get(id).State)
		}
		for range 2 {
			finish(t, other, tusk.Verdict{Receipt: lendFrom(t, lender, "aside").Receipt})
		}
		if l := lendOne(t, other); l.ID != id {
			t.Errorf("%v", l.ID)
		}
	})
}

func TestAParentIsCancelledWhileItsChildrenRun(t *testing.T) {
	inBubble(t, "and the children go on", func(t *testing.T, s *shop) {
		p, end := s.pull()
		defer end()
		id := s.enqueue(count{}, nil)
		finish(t, p, tusk.Verdict{Receipt: lendOne(t, p).Receipt, Err: tusk.Wait(), Children: parts(1)})
		child := lendFrom(t, p, "aside")
		if _, err := s.client.Cancel(t.Context(), id, "enough"); err != nil {
			t.Fatal(err)
		}
		finish(t, p, tusk.Verdict{Receipt: child.Receipt})
		if got, of := s.get(id).State, s.get(child.ID).State; got != store.Cancelled || of != store.Completed {
			t.Errorf("the parent is %v, the child %v", got, of)
		}
	})
}
