package top

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/charmbracelet/x/ansi"
)

var noon = time.Date(2026, 11, 22, 12, 0, 30, 0, time.UTC)

// plainly formats text without colours.
func plainly() Text {
	return Text{Words: func(d time.Duration) string { return d.Round(time.Millisecond).String() },
		Clean: func(text string) string {
			return strings.Map(func(r rune) rune {
				if unicode.IsControl(r) {
					return '?'
				}
				return r
			}, text)
		}}
}

// busy is a screen with some of everything. evil is added to all text that a task can set.
func busy(evil string) *screen {
	s := newScreen("sqlite:tusk.db", plainly())
	s.now, s.loaded = noon, true
	minute := noon.Truncate(time.Minute).Add(-time.Minute)
	s.data = data{Overview: Overview{At: noon,
		Queues: []Queue{
			{"bills", false, map[string]int64{"available": 12, "running": 2, "retryable": 1, "scheduled": 4}, 2.5},
			{"mail" + evil, true, map[string]int64{"available": 1234567, "pending": 3}, 7200},
		},
		Stats: []Stat{
			{At: minute, Queue: "bills", Kind: "charge", Completed: 90, Failed: 10, Waited: Span{100, 0.1, 0.2},
				Ran: Span{100, 0.3, 0.4}},
			{At: minute.Add(time.Minute), Queue: "bills", Kind: "refund" + evil, Completed: 1, Ran: Span{1, 1, 1}},
		},
		Workers: []Worker{{ID: "w1", Host: "host" + evil, PID: 42, Queues: []string{"bills"}, Concurrency: 10, Running: 2,
			BeatAt: noon}},
	},
		Errors: []ErrorGroup{{Fingerprint: "f1", Queue: "bills", Kind: "charge", Count: 10, Waiting: 1, Last: noon,
			Sample: "card declined" + evil}},
		Tasks: []Task{{ID: "t1", Kind: "charge", Queue: "bills", State: "running", Reason: evil, Attempt: 1, MaxAttempts: 25,
			ClaimedAt: noon.Add(-time.Second), Worker: "w1"}},
		Task: &Detail{Task: Task{ID: "t1", Kind: "charge", Queue: "bills", State: "retryable", Attempt: 1, MaxAttempts: 25,
			EnqueuedAt: noon},
			Progress: &Progress{50, "half" + evil}, Changed: &Change{noon, "moved" + evil},
			Attempts: []Attempt{{1, "retryable", noon, noon, "card declined" + evil}},
			Reasons:  []Reason{{"backoff", "it failed and waits" + evil, "tusk tasks retry t1"}}},
	}
	return s
}

func everyView() []place {
	places := []place{{view: tasksView, filter: Filter{Queue: "bills"}}, {view: tasksView, worker: "w1"},
		{view: taskView, task: "t1"}}
	for _, v := range tabs {
		places = append(places, place{view: v})
	}
	return places
}

func TestEveryViewShowsItsNumbers(t *testing.T) {
	for _, c := range []struct {
		at   place
		want []string // lines, with runs of spaces as one space
	}{
		{place{view: queuesView}, []string{
			"tusk top sqlite:tusk.db 12:00:30Z",
			"available 1234k running 2 retryable 1 scheduled 4 oldest 2h0m0s workers 1",
			"[1 Queues] 2 Kinds 3 Workers 4 Errors 5 Running",
			"QUEUE STATE AVAIL RUN RETRY SCHED PEND OLDEST IN/M OUT/M FAIL/M",
			"> bills 12 2 1 4 0 2.5s 30 100 10",
			"mail paused 1234k 0 0 0 3 2h0m0s - 0 0",
			"enter tasks p pause/resume 1-5 view / filter ? help q quit"}},
		{place{view: kindsView}, []string{
			"KIND QUEUE OUT/M FAIL/M WAIT50 WAIT95 RUN50 RUN95",
			"> charge bills 100 10 100ms 200ms 300ms 400ms",
			"refund bills 0 0 0s 0s 0s 0s"}},
		{place{view: workersView}, []string{"WORKER RUN OF BEAT QUEUES RUNS", "> host:42 2 10 0s ago bills charge×1"}},
		{place{view: errorsView}, []string{
			"LAST QUEUE KIND COUNT WAITING DEAD ERROR", "> 0s ago bills charge 10 1 0 card declined"}},
		{place{view: runningView}, []string{"KIND QUEUE ATTEMPT FOR WORKER TASK", "> charge bills 1 of 25 1s host:42 t1"}},
		{place{view: tasksView, filter: Filter{Queue: "bills"}}, []string{
			"Queues › bills", "> running charge 1 of 25 t1",
			"enter look r retry p pause s state esc back / filter ? help q quit"}},
		{place{view: tasksView, worker: "w1"}, []string{"> charge bills 1 of 25 1s host:42 t1"}},
		{place{view: taskView, task: "t1"}, []string{
			"why backoff: it failed and waits", "change it with tusk tasks retry t1", "progress 50 % half",
			"changed moved 0s ago",
			"attempt 1 retryable 0s ago, after 0s card declined"}},
	} {
		s := busy("")
		s.arrivals = map[string]float64{"bills": 30}
		if s.trail = []place{c.at}; c.at.view == tasksView || c.at.view == taskView {
			s.trail = []place{{view: queuesView}, c.at}
		}
		frame := s.frame()
		var lines []string
		for line := range strings.Lines(frame) {
			lines = append(lines, strings.Join(strings.Fields(line), " "))
		}
		for _, want := range c.want {
			if !strings.Contains("\n"+strings.Join(lines, "\n")+"\n", "\n"+want) {
				t.Errorf("%v: no line %q in\n%s", c.at, want, frame)
			}
		}
	}
}

func TestAFrameFitsTheTerminal(t *testing.T) {
	for _, size := range [][2]int{{80, 24}, {200, 60}, {40, 10}, {20, 6}, {5, 3}, {1, 1}} {
		for _, at := range everyView() {
			for _, with := range []func(*screen){func(*screen) {}, func(s *screen) { s.help = true },
				func(s *screen) { s.typing = true },
				func(s *screen) { s.trouble = strings.Repeat("漢", 300) }, func(s *screen) { s.text.Colour = true }} {
				s := busy(strings.Repeat("漢字", 100))
				s.trail, s.width, s.height = []place{at}, size[0], size[1]
				with(s)
				lines := strings.Split(s.frame(), "\n")
				if len(lines) > size[1] {
					t.Errorf("%v at %v: %d lines", at, size, len(lines))
				}
				for _, line := range lines {
					if ansi.StringWidth(line) > size[0] {
						t.Errorf("%v at %v: %d wide: %q", at, size, ansi.StringWidth(line), line)
					}
				}
			}
		}
	}
}

func TestNothingThatMovesTheCursorReachesTheTerminal(t *testing.T) {
	for _, at := range everyView() {
		s := busy("\x1b[2J\x1b]0;owned\x07\r\n\u009b31m")
		s.trail, s.trouble, s.width = []place{at}, "no\x1b[2J", 400
		for _, frame := range []string{s.frame(), func() string { s.trouble, s.notice = "", "\x1b[1m"; return s.frame() }()} {
			if i := strings.IndexFunc(strings.ReplaceAll(frame, "\n", ""), unicode.IsControl); i >= 0 {
				t.Errorf("%v: a control character in %q", at, frame)
			}
		}
	}
}

func TestColoursAreOnlyForTerminalsThatWantThem(t *testing.T) {
	s := busy("")
	if frame := s.frame(); strings.Contains(frame, "\x1b") {
		t.Errorf("colours: %q", frame)
	}
	s.text.Colour = true
	if frame := s.frame(); !strings.Contains(frame, "\x1b[7m> bills") {
		t.Errorf("no colours: %q", frame)
	}
}

func TestALongListScrollsToTheChosenRow(t *testing.T) {
	s := busy("")
	s.data.Queues = nil
	for i := range 100 {
		s.data.Queues = append(s.data.Queues, Queue{Name: fmt.Sprintf("q%02d", i)})
	}
	for _, c := range []struct{ key, chosen, shown string }{
		{"j", "> q01", "q00"}, {"end", "> q99", "q82"}, {"up", "> q98", "q99"}, {"pgup", "> q80", "q88"},
		{"g", "> q00", "q17"},
	} {
		s.press(c.key)
		if frame := s.frame(); !strings.Contains(frame, c.chosen) || !strings.Contains(frame, c.shown) {
			t.Errorf("after %s: no %q or %q in\n%s", c.key, c.chosen, c.shown, frame)
		}
	}
}

func TestOldNumbersSayHowOldTheyAre(t *testing.T) {
	s := busy("")
	p := &program{screen: s}
	p.take(loaded{err: errors.New("connection refused")})
	s.now = noon.Add(7 * time.Second)
	for _, want := range []string{"as it was 7s ago", "cannot look: connection refused", "> bills"} {
		if frame := s.frame(); !strings.Contains(frame, want) {
			t.Errorf("no %q in\n%s", want, frame)
		}
	}
}

func TestASlowOrBrokenSourceIsAskedLessOften(t *testing.T) {
	for _, c := range []struct {
		took     time.Duration
		failures int
		want     time.Duration
	}{
		{0, 0, time.Second}, {100 * time.Millisecond, 0, time.Second}, {time.Second, 0, 4 * time.Second},
		{20 * time.Second, 0, 30 * time.Second},
		{0, 1, 2 * time.Second}, {0, 4, 16 * time.Second}, {0, 1000, 30 * time.Second},
	} {
		if got := interval(c.took, c.failures); got != c.want {
			t.Errorf("%v, %d failures: %v, want %v", c.took, c.failures, got, c.want)
		}
	}
}

func TestArrivalsAreWhatIsMoreAndWhatHasEnded(t *testing.T) {
	minute := noon.Truncate(time.Minute)
	look := func(at time.Time, depth int64, stats ...Stat) Overview {
		return Overview{At: at, Queues: []Queue{{Name: "q", Tasks: map[string]int64{"available": depth}}}, Stats: stats}
	}
	done := func(at time.Time, n int64) Stat { return Stat{At: at, Queue: "q", Completed: n} }
	for name, c := range map[string]struct {
		before, now Overview
		want        float64
		known       bool
	}{
		"too soon":   {look(noon, 0), look(noon.Add(9*time.Second), 5), 0, false},
		"only more":  {look(noon, 1), look(noon.Add(30*time.Second), 11), 20, true},
		"in and out": {look(noon, 5, done(minute, 7)), look(noon.Add(20*time.Second), 5, done(minute, 17)), 30, true},
		"over a minute": {look(noon, 0, done(minute, 1)),
			look(noon.Add(time.Minute), 0, done(minute, 3), done(minute.Add(time.Minute), 4)), 6, true},
		"of minutes past":  {look(noon, 0, done(minute.Add(-time.Minute), 9)), look(noon.Add(20*time.Second), 0), 0, true},
		"called off: none": {look(noon, 9), look(noon.Add(20*time.Second), 0), 0, true},
	} {
		if got, known := arrivals(c.before, c.now)["q"]; got != c.want || known != c.known {
			t.Errorf("%s: %v %v, want %v %v", name, got, known, c.want, c.known)
		}
	}
}
