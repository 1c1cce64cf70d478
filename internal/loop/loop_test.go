package loop

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

// running runs a loop in the test's bubble of simulated time. stop stops it and waits for its end.
func running(l *Loop) (stop func()) {
	halt, ended := make(chan struct{}), make(chan struct{})
	go func() { l.Run(context.Background(), halt); close(ended) }()
	return func() { close(halt); <-ended }
}

func TestAStepIsRepeatedAfterItsPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var at []time.Duration
		stop := running(New("x", time.Minute, quiet, func(context.Context) (time.Duration, error) {
			at = append(at, time.Since(began))
			return time.Duration(len(at)) * time.Second, nil
		}))
		time.Sleep(6500 * time.Millisecond)
		stop()
		if want := []time.Duration{0, time.Second, 3 * time.Second, 6 * time.Second}; !slices.Equal(at, want) {
			t.Errorf("steps at %v, want %v", at, want)
		}
	})
}

func TestFailuresAndPanicsAreSurvivedWithGrowingPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var at []time.Time
		l := New("x", time.Minute, quiet, func(context.Context) (time.Duration, error) {
			at = append(at, time.Now())
			switch {
			case len(at) > 20:
				return time.Hour, nil
			case len(at)%2 == 0:
				panic("planned")
			}
			return 0, errors.New("planned")
		})
		l.Patience = time.Second
		stop := running(l)
		time.Sleep(time.Minute)
		if age := l.Age(); age < 30*time.Second || age > time.Minute {
			t.Errorf("age %v: the last success was step 21", age)
		}
		stop()
		if len(at) != 21 {
			t.Fatalf("%d steps, want 21", len(at))
		}
		for i, most := 1, 50*time.Millisecond; i < len(at); i, most = i+1, min(2*most, time.Second) {
			if pause := at[i].Sub(at[i-1]); pause < most/2 || pause > most {
				t.Errorf("after failure %d it paused %v, want %v to %v", i, pause, most/2, most)
			}
		}
	})
}

func TestAWakeIsNotLostAndManyCountAsOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		steps := 0
		l := New("x", time.Minute, quiet, func(context.Context) (time.Duration, error) {
			if steps++; steps == 1 {
				time.Sleep(time.Second) // the wakes arrive meanwhile
			}
			return time.Hour, nil
		})
		stop := running(l)
		time.Sleep(500 * time.Millisecond)
		for range 100 {
			l.Wake()
		}
		time.Sleep(10 * time.Second)
		stop()
		if steps != 2 {
			t.Errorf("%d steps, want the first and one for all wakes", steps)
		}
	})
}

func TestAStepThatHangsIsCutAtItsDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var at []time.Duration
		stop := running(New("x", 3*time.Second, quiet, func(ctx context.Context) (time.Duration, error) {
			at = append(at, time.Since(began))
			if len(at) == 1 {
				<-ctx.Done()
			}
			return time.Hour, ctx.Err()
		}))
		time.Sleep(time.Minute)
		stop()
		if len(at) != 2 || at[1] < 3*time.Second || at[1] > 4*time.Second {
			t.Errorf("steps at %v, want a second one right after 3 s", at)
		}
	})
}

func TestAStopLetsTheStepEndAndAnEndedContextCutsIt(t *testing.T) {
	for _, cut := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			steps, whole := 0, false
			l := New("x", time.Minute, quiet, func(ctx context.Context) (time.Duration, error) {
				steps++
				select {
				case <-ctx.Done():
				case <-time.After(10 * time.Second):
					whole = true
				}
				return 0, nil
			})
			halt, ended := make(chan struct{}), make(chan struct{})
			go func() { l.Run(ctx, halt); close(ended) }()
			time.Sleep(time.Second)
			close(halt)
			if cut {
				cancel()
			}
			<-ended
			if steps != 1 || whole == cut {
				t.Errorf("cut %v: %d steps, the first ended by itself: %v", cut, steps, whole)
			}
		})
	}
}

func TestFailuresInARowAreLoggedAtTheirBeginningNowAndThenAndAtTheirEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		began := time.Now()
		logger := slog.New(slog.NewTextHandler(&log, nil))
		l := New("chores", time.Second, logger, func(context.Context) (time.Duration, error) {
			if time.Since(began) < time.Minute {
				return 0, errors.New("planned")
			}
			return time.Hour, nil
		})
		stop, ended := make(chan struct{}), make(chan struct{})
		go func() { l.Run(t.Context(), stop); close(ended) }()
		time.Sleep(2 * time.Minute)
		close(stop)
		<-ended
		if n := strings.Count(log.String(), "planned"); n < 4 || n > 7 {
			t.Errorf("%d lines about a minute of failures, want one in about ten seconds:\n%s", n, &log)
		}
		if n := strings.Count(log.String(), "works again"); n != 1 {
			t.Errorf("%d lines say that it works again:\n%s", n, &log)
		}
	})
}
