package top

import (
	"strings"
	"testing"
)

func TestKeys(t *testing.T) {
	type outcome struct {
		view   view
		do     change
		quit   bool
		notice string
	}
	for _, c := range []struct {
		keys string
		want outcome
	}{
		{"q", outcome{view: queuesView, quit: true}},
		{"ctrl+c", outcome{view: queuesView, quit: true}},
		{"p ctrl+c", outcome{view: queuesView, quit: true}},
		{"? q", outcome{view: queuesView, quit: true}},
		{"? p", outcome{view: queuesView}},
		{"2", outcome{view: kindsView}},
		{"tab", outcome{view: kindsView}},
		{"shift+tab", outcome{view: runningView}},
		{"enter", outcome{view: tasksView}},
		{"enter enter", outcome{view: taskView}},
		{"enter enter enter", outcome{view: taskView}},
		{"enter enter esc", outcome{view: tasksView}},
		{"enter enter esc backspace esc", outcome{view: queuesView}},
		{"3 enter enter", outcome{view: taskView}},
		{"4 enter", outcome{view: tasksView}},
		{"p y", outcome{view: queuesView, do: change{"pause", "bills"}}},
		{"j p y", outcome{view: queuesView, do: change{"resume", "mail"}}},
		{"j / b enter p y", outcome{view: queuesView, do: change{"pause", "bills"}}},
		{"p n", outcome{view: queuesView, notice: "not done: pause queue bills"}},
		{"p q", outcome{view: queuesView, notice: "not done: pause queue bills"}},
		{"enter p y", outcome{view: tasksView, do: change{"pause", "bills"}}},
		{"enter r y", outcome{view: tasksView, do: change{"retry", "t1"}}},
		{"enter enter r y", outcome{view: taskView, do: change{"retry", "t1"}}},
		{"5 r y", outcome{view: runningView, do: change{"retry", "t1"}}},
		{"r y", outcome{view: queuesView}},
		{"4 p", outcome{view: errorsView, notice: "choose a queue first: key 1 lists them"}},
		{"/ q x enter p", outcome{view: queuesView, notice: "choose a queue first: key 1 lists them"}},
		{"/ q esc p y", outcome{view: queuesView, do: change{"pause", "bills"}}},
	} {
		s, got := busy(""), outcome{}
		for _, key := range strings.Fields(c.keys) {
			asked := s.press(key)
			s.loaded = true // as if the source had answered
			if asked.do != nil {
				got.do = *asked.do
			}
			got.quit = asked.quit
		}
		if got.view, got.notice = s.at().view, s.notice; got.do.verb != "" || c.keys == "r y" {
			got.notice = ""
		}
		if got != c.want {
			t.Errorf("%s: %+v, want %+v", c.keys, got, c.want)
		}
	}
}

func TestTheFilterHidesRows(t *testing.T) {
	s := busy("")
	for _, key := range strings.Split("/ M A I L", " ") {
		s.press(key)
	}
	if frame := s.frame(); !strings.Contains(frame, "> mail") || strings.Contains(frame, "bills") ||
		!strings.Contains(frame, "/MAIL_") {
		t.Error(frame)
	}
	s.press("backspace")
	s.press("x")
	if frame := s.frame(); !strings.Contains(frame, "no row has MAIx in it") {
		t.Error(frame)
	}
	s.press("enter")
	s.press("esc")
	if frame := s.frame(); !strings.Contains(frame, "bills") {
		t.Error(frame)
	}
}

func TestTheChosenRowStaysWhenOthersCome(t *testing.T) {
	s := busy("")
	s.press("j")
	s.data.Queues = append([]Queue{{Name: "audit"}}, s.data.Queues...)
	if frame := s.frame(); !strings.Contains(frame, "> mail") {
		t.Error(frame)
	}
}

func TestStatesOfTasksAreGoneThrough(t *testing.T) {
	s := busy("")
	s.press("enter")
	for _, want := range append(states[1:], "") {
		s.loaded = true
		if asked := s.press("s"); !asked.load || s.at().filter.State != want {
			t.Errorf("%q, want %q", s.at().filter.State, want)
		}
	}
}
