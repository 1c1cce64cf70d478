package alert

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/internal/tick"
	"github.com/tuskqueue/tusk/server/notify"
	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/memory"
)

// No test may leave a goroutine behind.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var noon = time.Date(2026, 1, 31, 12, 0, 30, 0, time.UTC)

func queue(name string, available, running int64, oldest time.Duration) tusk.Queue {
	return tusk.Queue{Name: name, Tasks: map[tusk.State]int64{store.Available: available, store.Running: running},
		Oldest: oldest}
}

func paused(q tusk.Queue) tusk.Queue {
	q.Paused = true
	return q
}

func schedule(name string, next time.Time, paused bool) tusk.ScheduleInfo {
	return tusk.ScheduleInfo{Name: name, Schedule: tick.Schedule{Next: next, Paused: paused}}
}

func TestJudge(t *testing.T) {
	ended := func(queue string, ago time.Duration, discarded int64) store.Stat {
		return store.Stat{At: noon.Add(-ago).Truncate(time.Minute), Queue: queue, Discarded: discarded}
	}
	for _, c := range []struct {
		name string
		rule Rule
		facts
		want string // part of the text; empty if the rule does not hold
	}{
		{"an old task", Rule{Kind: Oldest, Over: time.Minute}, facts{queues: []tusk.Queue{queue("a", 3, 0, 2*time.Minute)}},
			"the oldest of 3 available tasks in queue a"},
		{"one that is not that old", Rule{Kind: Oldest, Over: time.Minute},
			facts{queues: []tusk.Queue{queue("a", 3, 0, time.Minute)}}, ""},
		{"an old one elsewhere", Rule{Kind: Oldest, Over: time.Minute, Queue: "b"},
			facts{queues: []tusk.Queue{queue("a", 3, 0, time.Hour)}}, ""},
		{"an old one of a paused queue", Rule{Kind: Oldest, Over: time.Minute},
			facts{queues: []tusk.Queue{paused(queue("a", 3, 0, time.Hour))}}, ""},
		{"old ones of many queues", Rule{Kind: Oldest, Over: time.Minute},
			facts{queues: []tusk.Queue{queue("a", 1, 0, time.Hour), queue("b", 1, 0, time.Hour),
				queue("c", 1, 0, time.Hour), queue("d", 1, 0, time.Hour), queue("e", 1, 0, time.Hour),
				queue("f", 1, 0, time.Hour)}}, "and 1 more"},

		{"nothing ends", Rule{Kind: Stalled, Over: 5 * time.Minute}, facts{queues: []tusk.Queue{queue("a", 0, 2, 0)}},
			"no attempt has ended in queue a for 5m0s: 2 running, 0 waiting"},
		{"something ends", Rule{Kind: Stalled, Over: 5 * time.Minute},
			facts{queues: []tusk.Queue{queue("a", 0, 2, 0)}, ended: "a"}, ""},
		{"something ends elsewhere", Rule{Kind: Stalled, Over: 5 * time.Minute},
			facts{queues: []tusk.Queue{queue("a", 0, 2, 0)}, ended: "b"}, "queue a"},
		{"tasks that have just come", Rule{Kind: Stalled, Over: 5 * time.Minute},
			facts{queues: []tusk.Queue{queue("a", 7, 0, time.Second)}}, ""},
		{"nothing to do", Rule{Kind: Stalled, Over: 5 * time.Minute}, facts{queues: []tusk.Queue{queue("a", 0, 0, 0)}}, ""},

		{"many discarded now", Rule{Kind: Discarded, Rate: 5}, facts{stats: []store.Stat{ended("a", 0, 6)}},
			"6 tasks of queue a were discarded"},
		{"many in the minute before, of two kinds", Rule{Kind: Discarded, Rate: 5},
			facts{stats: []store.Stat{ended("a", time.Minute, 3), ended("a", time.Minute, 3)}}, "6 tasks"},
		{"many in two minutes", Rule{Kind: Discarded, Rate: 5},
			facts{stats: []store.Stat{ended("a", 0, 3), ended("a", time.Minute, 3)}}, ""},
		{"many long ago", Rule{Kind: Discarded, Rate: 5}, facts{stats: []store.Stat{ended("a", 2*time.Minute, 9)}}, ""},
		{"many elsewhere", Rule{Kind: Discarded, Rate: 5, Queue: "b"}, facts{stats: []store.Stat{ended("a", 0, 9)}}, ""},

		{"a late schedule", Rule{Kind: Missed, Over: time.Minute},
			facts{schedules: []tusk.ScheduleInfo{schedule("s", noon.Add(-2*time.Minute), false)}},
			"schedule s should have fired 2m0s ago"},
		{"a paused one", Rule{Kind: Missed, Over: time.Minute},
			facts{schedules: []tusk.ScheduleInfo{schedule("s", noon.Add(-time.Hour), true)}}, ""},
		{"another one", Rule{Kind: Missed, Over: time.Minute, Schedule: "t"},
			facts{schedules: []tusk.ScheduleInfo{schedule("s", noon.Add(-time.Hour), false)}}, ""},
		{"one that was never planned", Rule{Kind: Missed, Over: time.Minute},
			facts{schedules: []tusk.ScheduleInfo{schedule("s", time.Time{}, false)}}, ""},

		{"nobody works", Rule{Kind: NoWorker}, facts{queues: []tusk.Queue{queue("a", 4, 0, 0)}},
			"queue a has 4 available tasks and no worker"},
		{"somebody works", Rule{Kind: NoWorker}, facts{queues: []tusk.Queue{queue("a", 4, 0, 0)}, served: "a"}, ""},
		{"nobody leads", Rule{Kind: NoLeader}, facts{}, "no process leads"},
		{"somebody leads", Rule{Kind: NoLeader}, facts{led: true}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := Facts{Now: noon, Queues: c.queues, Stats: c.stats, Schedules: c.schedules,
				Served: map[string]bool{c.served: true}, Led: c.led,
				Ended: map[time.Duration]map[string]bool{c.rule.Over: {c.ended: true}}}
			got := Judge(&c.rule, &f)
			if got.Holds != (c.want != "") || !strings.Contains(got.Text, c.want) {
				t.Errorf("%+v, want %q", got, c.want)
			}
		})
	}
}

type facts struct {
	queues    []tusk.Queue
	stats     []store.Stat
	schedules []tusk.ScheduleInfo
	served    string
	ended     string // a queue in which an attempt has ended
	led       bool
}

// TestAQueueOfQuietWorkersHasNoWorker checks that a queue whose workers are all quiet counts as having no worker, until
// one of them is woken.
func TestAQueueOfQuietWorkersHasNoWorker(t *testing.T) {
	s := memory.New()
	client, err := tusk.NewClient(s, nil)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(err)
	id := tusk.NewID()
	_, err = s.Extend(t.Context(), store.Beat{Worker: store.Worker{ID: id, Queues: []string{"mail"}, Kinds: []string{"k"}},
		TTL: time.Hour})
	must(err)
	_, err = client.Enqueue(t.Context(), tusk.RawArgs{Name: "k"}, &tusk.Options{Queue: "mail"})
	must(err)
	rule := Rule{Kind: NoWorker}
	found := func() string {
		t.Helper()
		facts, _, err := (&Runner{client: client}).gather(t.Context(), []Alert{{Rule: rule}}, time.Now())
		must(err)
		return Judge(&rule, &facts).Text
	}
	if text := found(); text != "" {
		t.Errorf("beside a worker: %s", text)
	}
	must(client.QuietWorker(t.Context(), id))
	if text := found(); text != "queue mail has 1 available task and no worker" {
		t.Errorf("beside a quiet worker: %q", text)
	}
	must(client.WakeWorker(t.Context(), id))
	if text := found(); text != "" {
		t.Errorf("beside a worker that was woken: %s", text)
	}
}

// TestARuleTellsOnceAndWhenItIsOver writes a history as a line. Each letter is a look ten seconds after the previous
// one, at which the rule holds (x) or does not (.).
func TestARuleTellsOnceAndWhenItIsOver(t *testing.T) {
	for _, c := range []struct {
		name, looks, told string // F firing, R repeated, O over
		rule              Rule
	}{
		{"at once", "..xxxx..", "--F---O-", Rule{}},
		{"twice", "x.x.", "FOFO", Rule{}},
		{"after a while", "xxxxx..", "---F-O-", Rule{For: 30 * time.Second}},
		{"not for a moment", "xxx.xxx.", "--------", Rule{For: 30 * time.Second}},
		{"again and again", "xxxxxxxx.", "F--R--R-O", Rule{Repeat: 30 * time.Second}},
		{"muted until it is over", "xxx.", "----", Rule{MutedUntil: noon.Add(time.Hour)}},
		{"muted for a while", "xxxx.", "--F-O", Rule{MutedUntil: noon.Add(20 * time.Second)}},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.rule.To = []notify.Receiver{{Via: notify.Mail, Address: "ops@example.com"}}
			letters := map[string]string{EventFiring: "F", EventRepeated: "R", EventOver: "O"}
			s, told, n := State{}, "", 0
			for i, look := range c.looks {
				s = s.Next(&c.rule, Reading{Holds: look == 'x', Text: "bad"}, noon.Add(time.Duration(i)*10*time.Second),
					func() string { n++; return strconv.Itoa(n) })
				letter := "-"
				for len(s.Owed) > 0 {
					letter = letters[s.Owed[0].Message.Type]
					if s.Owed[0].Message.Data.Text != "bad" {
						t.Errorf("%+v", s.Owed[0])
					}
					s.settle(s.Owed[0], noon, nil)
				}
				told += letter
			}
			if told != c.told {
				t.Errorf("told %s, want %s", told, c.told)
			}
		})
	}
}

func TestADeadReceiverIsOwedAFewMessagesInOrderAndOthersAreNotHeldUp(t *testing.T) {
	r := Rule{To: []notify.Receiver{{Via: notify.Mail, Address: "dead@example.com"},
		{Via: notify.Mail, Address: "alive@example.com"}}}
	s, n, now := State{}, 0, noon
	for i := range 100 {
		now = now.Add(time.Minute)
		s = s.Next(&r, Reading{Holds: i%2 == 0}, now, func() string { n++; return strconv.Itoa(n) })
		due := s.due(now)
		if i == 0 && len(due) != 2 {
			t.Fatal(due)
		}
		for _, o := range due {
			var failed error
			if o.To == r.To[0].Key() {
				failed = errors.New("connection refused")
			}
			s.settle(o, now, failed)
		}
	}
	if len(s.Owed) != mostOwed || s.Dropped != 100-mostOwed || s.Error != "connection refused" {
		t.Errorf("%d owed, %d dropped, %q", len(s.Owed), s.Dropped, s.Error)
	}
	for i, o := range s.Owed {
		if want := strconv.Itoa(100 - mostOwed + i + 1); o.Message.ID != want || o.To != r.To[0].Key() {
			t.Errorf("%d: %s is owed to %s", i, o.Message.ID, o.To)
		}
	}
	// The next one is due after the pause, and the others wait for it.
	if due := s.due(now.Add(lastPause)); len(due) != 1 || due[0].Message.ID != s.Owed[0].Message.ID {
		t.Errorf("%+v", due)
	}
	for len(s.Owed) > 0 { // after a day they are given up
		s.settle(s.Owed[0], now.Add(48*time.Hour), errors.New("refused"))
	}
	if s.Dropped != 100 {
		t.Error(s.Dropped)
	}
}

func TestARuleThatCannotBeIsRefused(t *testing.T) {
	for name, r := range map[string]Rule{
		"a name":                  {Name: "No Name", Kind: Oldest},
		"a kind":                  {Name: "a", Kind: "bad"},
		"a queue":                 {Name: "a", Kind: Oldest, Queue: "A B"},
		"a queue of the leader":   {Name: "a", Kind: NoLeader, Queue: "a"},
		"a schedule of a queue":   {Name: "a", Kind: Oldest, Schedule: "a"},
		"a rate of an age":        {Name: "a", Kind: Oldest, Rate: 1},
		"an age of a rate":        {Name: "a", Kind: Discarded, Over: time.Minute},
		"a negative age":          {Name: "a", Kind: Oldest, Over: -time.Minute},
		"an age of years":         {Name: "a", Kind: Oldest, Over: 1e6 * time.Hour},
		"a negative rate":         {Name: "a", Kind: Discarded, Rate: -1},
		"a repeat of a moment":    {Name: "a", Kind: Oldest, Repeat: time.Second},
		"more receivers than are": {Name: "a", Kind: Oldest, To: make([]notify.Receiver, 11)},
	} {
		if err := r.complete(); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
	r := Rule{Name: "a", Kind: Missed}
	if err := r.complete(); err != nil || r.Over != time.Minute || !slices.Contains(Kinds(), r.Kind) {
		t.Error(r, err)
	}
}
