package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"sync"
	"time"

	"github.com/tuskqueue/tusk"
)

// demoScreen shows the demo's progress: one block that is redrawn on a terminal, or one line a second elsewhere.
type demoScreen struct {
	app  *App
	demo *demo

	mu    sync.Mutex
	lines int // number of lines in the block on the terminal
}

// start draws until it is stopped.
func (s *demoScreen) start(ctx context.Context) (stop func()) {
	if s.app.flags.quiet {
		return func() {}
	}
	every := time.Second
	if s.redraws() {
		every = 150 * time.Millisecond
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for sleep(ctx, every) {
			s.draw(ctx)
		}
	}()
	return sync.OnceFunc(func() {
		cancel()
		<-done
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		s.draw(last)
	})
}

// redraws reports whether there is a terminal that can move its cursor.
func (s *demoScreen) redraws() bool { return s.app.watched && s.app.env["TERM"] != "dumb" }

// say prints a line that stays.
func (s *demoScreen) say(format string, args ...any) {
	if s.app.flags.quiet {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.erase()
	fmt.Fprintf(s.app.Err, "%5.1fs  %s\n", s.demo.age().Seconds(), s.app.clean(fmt.Sprintf(format, args...)))
}

func (s *demoScreen) draw(ctx context.Context) {
	view, err := s.look(ctx)
	if err != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.redraws() {
		fmt.Fprintf(s.app.Err, "%5.1fs  %s, %s\n", view.age.Seconds(), view.done(), view.states())
		return
	}
	s.erase()
	block := append([]string{view.bar(), "        " + view.states()}, view.workers...)
	fmt.Fprintln(s.app.Err, strings.Join(block, "\n"))
	s.lines = len(block)
}

// erase removes the block: it moves up by the block's lines and clears to the end.
func (s *demoScreen) erase() {
	if s.lines > 0 {
		fmt.Fprintf(s.app.Err, "\x1b[%dA\x1b[J", s.lines)
		s.lines = 0
	}
}

// demoView is the state of the demo at one moment.
type demoView struct {
	age     time.Duration
	total   int64
	left    map[tusk.State]int64
	workers []string
}

func (s *demoScreen) look(ctx context.Context) (*demoView, error) {
	d := s.demo
	counts, err := d.client.Store().Count(ctx)
	if err != nil {
		return nil, err
	}
	stats, err := d.finished(ctx)
	if err != nil {
		return nil, err
	}
	v := &demoView{age: d.age(), total: stats, left: map[tusk.State]int64{}}
	for _, c := range counts {
		if c.Queue == d.queue {
			v.left[c.State] += c.Tasks
			v.total += c.Tasks
		}
	}
	if s.redraws() {
		v.workers = d.crewLines(ctx)
	}
	return v, nil
}

func (v *demoView) finished() int64 {
	n := v.total
	for _, left := range v.left {
		n -= left
	}
	return n
}

func (v *demoView) done() string { return fmt.Sprintf("%d of %d finished", v.finished(), v.total) }

// states returns a text that is short enough for a line of any terminal, like the rest of the block.
func (v *demoView) states() string {
	return fmt.Sprintf("%d available, %d running, %d scheduled, %d to be retried",
		v.left[tusk.StateAvailable], v.left[tusk.StateRunning], v.left[tusk.StateScheduled], v.left[tusk.StateRetryable])
}

func (v *demoView) bar() string {
	const width = 40
	full := int64(0)
	if v.total > 0 {
		full = v.finished() * width / v.total
	}
	return fmt.Sprintf("%5.1fs  %s%s  %s", v.age.Seconds(), strings.Repeat("█", int(full)),
		strings.Repeat("░", int(width-full)), v.done())
}

func (d *demo) crewLines(ctx context.Context) []string {
	var lines []string
	for _, m := range d.crew.members {
		w, err := d.workerOf(ctx, m)
		switch held := d.crew.killedHolding(m); {
		case held > 0 && err == nil && w.Running > 0:
			lines = append(lines, fmt.Sprintf("        worker %d  killed, its lease of %d tasks still counts",
				m.pid(), w.Running))
		case held > 0:
			lines = append(lines, fmt.Sprintf("        worker %d  killed, its tasks rescued", m.pid()))
		case err == nil:
			lines = append(lines, fmt.Sprintf("        worker %d  runs %d", m.pid(), w.Running))
		}
	}
	return lines
}

// millis is a number of milliseconds.
type millis float64

func asMillis(d time.Duration) millis { return millis(float64(d) / float64(time.Millisecond)) }

// MarshalJSON implements json.Marshaler, with three decimals.
func (m millis) MarshalJSON() ([]byte, error) {
	return json.Marshal(math.Round(float64(m)*1000) / 1000)
}

func (m millis) String() string { return fmt.Sprintf("%.3f", float64(m)) }
func (m millis) terminal() string {
	return inWords(time.Duration(float64(m) * float64(time.Millisecond)))
}

// rate is a number of tasks per second.
type rate float64

// MarshalJSON implements json.Marshaler, with one decimal.
func (r rate) MarshalJSON() ([]byte, error) { return json.Marshal(math.Round(float64(r)*10) / 10) }

func (r rate) String() string { return fmt.Sprintf("%.1f", float64(r)) }
