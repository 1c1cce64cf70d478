package mysql_test

import (
	"context"
	"testing"
	"time"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/mysql"
	"github.com/tuskqueue/tusk/store/mysql/mysqltest"
)

// hear listens to a store until the test is over.
func hear(t *testing.T, s *mysql.Store) <-chan string {
	heard, ended := make(chan string, 1000), make(chan struct{})
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		defer close(ended)
		s.Listen(ctx, func(h store.Hint) {
			for _, queue := range h.Queues {
				heard <- queue
			}
		})
	}()
	t.Cleanup(func() { cancel(); <-ended })
	return heard
}

func expect(t *testing.T, heard <-chan string, queue string) {
	t.Helper()
	select {
	case got := <-heard:
		if got != queue {
			t.Errorf("woken for %q, want %q", got, queue)
		}
	case <-time.After(20 * time.Second):
		t.Fatalf("nobody was woken for %q", queue)
	}
}

func TestWhoListensIsWokenForWhatBecomesAvailable(t *testing.T) {
	dsn := mysqltest.Database(t)
	migrate(t, dsn)
	s, other := open(t, dsn), open(t, dsn)
	w, term := startWorker(t, s), lead(t, other)
	heard := hear(t, s)
	idle := func() { // nobody checks a queue that no claim has found empty
		t.Helper()
		for len(claim(t, s, w, 10)) > 0 {
		}
	}
	for _, by := range []*mysql.Store{s, other} {
		idle()
		enqueue(t, by, newTasks(1, "q")...)
		expect(t, heard, "q")

		idle()
		tasks := newTasks(1, "q")
		tasks[0].Turn = true
		enqueue(t, by, tasks...)
		if n, err := by.Grant(t.Context(), term, []store.ID{tasks[0].ID}); err != nil || n != 1 {
			t.Fatal(n, err)
		}
		expect(t, heard, "q")

		idle()
		tasks = newTasks(1, "q")
		tasks[0].Delay = time.Millisecond
		enqueue(t, by, tasks...)
		for done := 0; done == 0; {
			admitted, err := by.Admit(t.Context(), term, 10)
			if err != nil {
				t.Fatal(err)
			}
			done = admitted.Count
		}
		expect(t, heard, "q")
	}
}

// Two listeners and forty queues of an idle process ask at most twice a second.
func TestAnIdleListenerAsksLittle(t *testing.T) {
	s := fresh(t)
	w := startWorker(t, s)
	hear(t, s)
	hear(t, s)
	var queues []string
	for i := range 40 {
		queues = append(queues, string(rune('a'+i)))
	}
	empty := store.ClaimRequest{Worker: w, Queues: queues, Limit: 1, Token: store.NewToken()}
	if _, err := s.Claim(t.Context(), empty); err != nil {
		t.Fatal(err)
	}
	m := func() int64 {
		m, err := s.Measure(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return m.RoundTrips
	}
	began, before := time.Now(), m()
	for m()-before < 3 { // it does check
		time.Sleep(50 * time.Millisecond)
	}
	if rate := 3 / time.Since(began).Seconds(); rate > 2 {
		t.Errorf("%.0f statements a second", rate)
	}
}

// When a task gives its turn back, the next one in its line is likely to get one.
func TestIdleQueuesAreCheckedSoonAfterATurnIsGivenBack(t *testing.T) {
	s := fresh(t)
	w, term := startWorker(t, s), lead(t, s)
	seldom := s.Pause()
	tasks := newTasks(2, "q")
	enqueue(t, s, tasks[:1]...)
	finish(t, s, claim(t, s, w, 1))
	if s.Pause() != seldom {
		t.Error("a task without a turn counts")
	}
	tasks[1].Turn = true
	enqueue(t, s, tasks[1])
	if n, err := s.Grant(t.Context(), term, []store.ID{tasks[1].ID}); err != nil || n != 1 {
		t.Fatal(n, err)
	}
	finish(t, s, claim(t, s, w, 1))
	if soon := s.Pause(); soon > seldom/2 {
		t.Errorf("the next check comes after %v, before after %v", soon, seldom)
	}
	for until := time.Now().Add(5 * time.Second); s.Pause() != seldom; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(until) {
			t.Fatal("the queues are still checked as often")
		}
	}
}
