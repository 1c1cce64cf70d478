package run

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/tuskqueue/tusk/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errPlanned = errors.New("planned")

// ends records the ends of attempts, by the first byte of their task ids.
type ends struct {
	mu sync.Mutex
	of map[byte]Result
}

// through runs the attempts of one claim through n slots, and returns their ends.
func through(
	n, tasks int, timeout time.Duration, handle func(ctx context.Context, a *Attempt) error, meanwhile func(s *Slots),
	alone ...func(a *Attempt) bool,
) map[byte]Result {
	e := &ends{of: map[byte]Result{}}
	s := NewSlots(tasks)
	s.Handle = handle
	s.Grace = time.Minute
	for _, alone := range alone {
		s.Alone = alone
	}
	s.Limits = func(*Attempt) Limits {
		if timeout == 0 {
			return Limits{}
		}
		return Limits{Time: timeout, Cause: ErrTimeout}
	}
	s.Done = func(a *Attempt, r Result) {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.of[a.Task.ID[0]] = r
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	s.Start(ctx, n)
	var taken []store.Task
	for i := range tasks {
		taken = append(taken, store.Task{ID: store.ID{byte(i)}, Lease: store.Token{1}})
	}
	s.Take(taken, time.Now())
	if meanwhile != nil {
		meanwhile(s)
	}
	s.Close()
	s.Wait()
	return e.of
}

func TestAPanicAndAGoexitEndTheAttemptAndNotTheSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		got := through(1, 4, 0, func(_ context.Context, a *Attempt) error {
			switch a.Task.ID[0] {
			case 0:
				panic("planned")
			case 1:
				runtime.Goexit()
			case 2:
				return errPlanned
			}
			return nil
		}, nil)
		if err := got[0].Err; err == nil || err.Error() != "panic: planned" ||
			!strings.Contains(got[0].Trace, "run_test.go") {
			t.Errorf("a panic ended with %v and the trace %.200s", err, got[0].Trace)
		}
		if err := got[1].Err; err == nil || !strings.Contains(err.Error(), "Goexit") {
			t.Errorf("a Goexit ended with %v", err)
		}
		if got[2].Err != errPlanned || got[3].Err != nil || len(got) != 4 {
			t.Errorf("the others ended with %v", got)
		}
	})
}

func TestNoMoreRunThanThereAreSlotsAndGoexitCostsNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		running, most := 0, 0
		began := time.Now()
		through(3, 12, 0, func(context.Context, *Attempt) error {
			mu.Lock()
			running++
			most = max(most, running)
			mu.Unlock()
			time.Sleep(time.Second)
			mu.Lock()
			running--
			mu.Unlock()
			runtime.Goexit()
			return nil
		}, func(s *Slots) {
			synctest.Wait()
			if s.Held() != 12 || s.Running() != 3 {
				t.Errorf("holds %d and runs %d, want 12 and 3", s.Held(), s.Running())
			}
		})
		if took := time.Since(began); most != 3 || took != 4*time.Second {
			t.Errorf("at most %d ran at a time, for %v in all; want 3 and 4 s", most, took)
		}
	})
}

func TestAnAttemptThatTakesTooLongIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		got := through(2, 3, time.Second, func(ctx context.Context, a *Attempt) error {
			switch a.Task.ID[0] {
			case 0:
				<-ctx.Done()
				return ctx.Err()
			case 1:
				<-ctx.Done()
				return errPlanned // the handler's own error counts
			}
			return nil
		}, nil)
		if r := got[0]; !errors.Is(r.Err, ErrTimeout) || r.Ran != time.Second {
			t.Errorf("ended with %v after %v", r.Err, r.Ran)
		}
		if got[1].Err != errPlanned || got[2].Err != nil {
			t.Errorf("the others ended with %v and %v", got[1].Err, got[2].Err)
		}
	})
}

func TestAStopReachesThoseThatRunAndThoseThatWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cause := errors.New("called off")
		began := 0
		got := through(1, 2, 0, func(ctx context.Context, a *Attempt) error {
			began++
			<-ctx.Done()
			return context.Cause(ctx)
		}, func(s *Slots) {
			synctest.Wait()
			for _, a := range s.All() {
				a.Stop(cause)
				a.Stop(errPlanned) // the first cause stays
			}
		})
		if got[0].Err != cause || got[1].Err != cause || began != 1 {
			t.Errorf("%d began; ends: %v and %v", began, got[0].Err, got[1].Err)
		}
	})
}

func TestAStopOfThoseThatWaitLeavesTheRunningAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		got := through(1, 2, 0, func(ctx context.Context, a *Attempt) error {
			select {
			case <-ctx.Done():
				return context.Cause(ctx)
			case <-time.After(time.Second):
				return nil
			}
		}, func(s *Slots) {
			synctest.Wait()
			s.Refuse(errPlanned)
		})
		if got[0].Err != nil || got[1].Err != errPlanned {
			t.Errorf("ends: %v and %v", got[0].Err, got[1].Err)
		}
	})
}

func TestAnAttemptIsFoundByTaskAndLeaseUntilItEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		through(1, 2, 0, func(context.Context, *Attempt) error { time.Sleep(time.Second); return nil }, func(s *Slots) {
			synctest.Wait()
			if s.Find(store.ID{1}, store.Token{1}) == nil || s.Find(store.ID{1}, store.Token{2}) != nil ||
				s.Find(store.ID{9}, store.Token{1}) != nil {
				t.Error("found what it does not hold, or not what it holds")
			}
			time.Sleep(1500 * time.Millisecond)
			if s.Find(store.ID{0}, store.Token{1}) != nil || s.Held() != 1 || len(s.All()) != 1 {
				t.Errorf("an attempt that has ended is held: %d", s.Held())
			}
		})
	})
}

func TestNotesAreReturnedUntilTheyAreStored(t *testing.T) {
	a := &Attempt{Task: &store.Task{ID: store.ID{1}, Attempt: 2}}
	if a.Interim() != nil || a.Final() != nil {
		t.Error("notes of nothing")
	}
	a.Log(time.Unix(1, 0), "INFO", "one")
	a.SetProgress(store.Progress{Percent: 10})
	first := a.Interim()
	a.Log(time.Unix(2, 0), "INFO", "two")
	a.SetProgress(store.Progress{Percent: 20})
	if again := a.Interim(); len(again.Logs) != 2 || again.Progress.Percent != 20 {
		t.Errorf("before the first is stored: %+v", again)
	}
	a.Noted(first)
	if rest := a.Interim(); len(rest.Logs) != 1 || rest.Logs[0].Text != "two" || rest.Progress == nil ||
		rest.Progress.Percent != 20 {
		t.Errorf("after the first is stored: %+v", rest)
	}
	a.Noted(a.Interim())
	if a.Interim() != nil {
		t.Error("everything is stored and noted again")
	}
}

func TestNoTwoLinesOfAnAttemptAreTheSame(t *testing.T) {
	a := &Attempt{Task: &store.Task{Attempt: 1}}
	at := time.Unix(1, 0)
	for _, at := range []time.Time{at, at, at.Add(time.Microsecond), at.Add(-time.Hour), at.Add(time.Second)} {
		a.Log(at, "INFO", "again")
	}
	lines := a.Final().Logs
	for i := range len(lines) - 1 {
		if !lines[i+1].At.After(lines[i].At) {
			t.Errorf("%v follows %v", lines[i+1].At, lines[i].At)
		}
	}
	if last := lines[len(lines)-1].At; !last.Equal(at.Add(time.Second)) {
		t.Errorf("the last at %v", last)
	}
}

func TestALogIsBoundedAndSaysSo(t *testing.T) {
	a := &Attempt{Task: &store.Task{}}
	for range 3 * maxLogLines {
		a.Log(time.Time{}, "INFO", "x")
	}
	if n := len(a.said.logs); n != maxLogLines || !strings.Contains(a.said.logs[n-1].Text, "full") {
		t.Errorf("%d lines, the last %q", n, a.said.logs[n-1].Text)
	}
	b := &Attempt{Task: &store.Task{}}
	for range 10 {
		b.Log(time.Time{}, "INFO", strings.Repeat("x", maxLogBytes/2))
	}
	if n := len(b.said.logs); n != 2 || !strings.Contains(b.said.logs[n-1].Text, "full") {
		t.Errorf("%d large lines, want one and one that says so", n)
	}
}

// The transaction that finishes a task holds the row of its note.
func TestThereAreNoInterimNotesWhileATransactionFinishesTheTask(t *testing.T) {
	a := &Attempt{Task: &store.Task{}}
	a.SetProgress(store.Progress{Percent: 50})
	a.SetInTx(true)
	a.Log(time.Now(), "INFO", "a line")
	if n := a.Interim(); n != nil {
		t.Errorf("%+v", n)
	}
	if n := a.Final(); n == nil || n.Progress == nil || len(n.Logs) != 1 {
		t.Errorf("the last note: %+v", n)
	}
	a.SetInTx(false)
	if n := a.Interim(); n == nil {
		t.Error("no note although no transaction finishes it")
	}
}

func TestAnAttemptThatIsCancelledAsItBeginsIsGivenUpAfterItsGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var ended time.Duration
		s := NewSlots(1)
		s.Grace = time.Second
		s.Limits = func(a *Attempt) Limits {
			s.Cancel(a, errPlanned)
			return Limits{Time: time.Hour, Cause: ErrTimeout}
		}
		s.Handle = func(context.Context, *Attempt) error { time.Sleep(time.Minute); return nil }
		s.Late = func(*Attempt, Result) {}
		s.Done = func(*Attempt, Result) { ended = time.Since(began) }
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		s.Start(ctx, 1)
		s.Take([]store.Task{{ID: store.ID{1}, Lease: store.Token{1}}}, time.Now())
		time.Sleep(2 * time.Minute)
		s.Close()
		s.Wait()
		if ended != time.Second {
			t.Errorf("it ended after %v, want 1s", ended)
		}
	})
}

func TestANoteThatIsStoredTwiceTakesNoOtherLines(t *testing.T) {
	a := &Attempt{Task: &store.Task{}}
	a.Log(time.Now(), "INFO", "one")
	note := a.Interim()
	a.Noted(note)
	a.Noted(note)
	if a.Log(time.Now(), "INFO", "two"); len(a.Final().Logs) != 1 {
		t.Errorf("%+v", a.Final())
	}
}

func TestANoteThatIsStoredTwiceTakesNoLinesThatCameBetween(t *testing.T) {
	a := &Attempt{Task: &store.Task{}}
	a.Log(time.Unix(1, 0), "INFO", "one")
	first := a.Interim()
	a.Log(time.Unix(2, 0), "INFO", "two")
	both := a.Interim()
	a.Noted(first)
	a.Noted(first)
	if rest := a.Final(); rest == nil || len(rest.Logs) != 1 || rest.Logs[0].Text != "two" {
		t.Errorf("%+v", rest)
	}
	if a.Noted(both); a.Final() != nil {
		t.Errorf("what is stored by another note is noted again: %+v", a.Final())
	}
}

func TestAttemptsThatRunAloneBeginOneAfterTheOtherAndHoldUpNoOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var mu sync.Mutex
		at := map[byte]time.Duration{}
		handle := func(ctx context.Context, a *Attempt) error {
			mu.Lock()
			at[a.Task.ID[0]] = time.Since(began)
			mu.Unlock()
			time.Sleep(map[byte]time.Duration{0: time.Second, 1: time.Hour, 2: time.Second, 3: time.Second}[a.Task.ID[0]])
			return nil
		}
		through(4, 4, 2*time.Hour, handle, func(s *Slots) {}, func(a *Attempt) bool { return a.Task.ID[0] != 3 })
		if at[3] != 0 {
			t.Errorf("an attempt beside those that run alone began after %v", at[3])
		}
		var waits []time.Duration
		for id := range byte(3) {
			waits = append(waits, at[id])
		}
		slices.Sort(waits)
		if waits[0] != 0 || waits[1] < time.Second || waits[2] > alonePatience+time.Second {
			t.Errorf("attempts that run alone began after %v", waits)
		}
	})
}

func TestAnAttemptThatWaitsToRunAloneIsStoppedAtOnce(t *testing.T) {
	for how, stop := range map[string]func(s *Slots){
		"refused": func(s *Slots) { s.Refuse(errPlanned) },
		"cancelled": func(s *Slots) {
			for _, a := range s.All() {
				s.Cancel(a, errPlanned)
			}
		},
		"without its lease": func(s *Slots) {
			for _, a := range s.All() {
				a.Stop(errPlanned)
			}
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			got := through(2, 2, 0, func(context.Context, *Attempt) error { time.Sleep(time.Second); return nil },
				func(s *Slots) {
					synctest.Wait()
					stop(s)
				}, func(*Attempt) bool { return true })
			stopped := 0
			for _, r := range got {
				if errors.Is(r.Err, errPlanned) {
					stopped++
					if d := r.Ended.Sub(began); d != 0 {
						t.Errorf("%s: ended after %v", how, d)
					}
				}
			}
			if stopped != 1 {
				t.Errorf("%s: %d attempts were stopped, want the one that waited", how, stopped)
			}
		})
	}
}
