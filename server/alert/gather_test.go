package alert

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/server/notify"
	"github.com/tuskqueue/tusk/server/notify/notifytest"
	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/memory"
)

// counted has statistics by the minute, or fails to read them. It counts how many are read at once.
type counted struct {
	store.Store
	minutes []store.Stat
	failed  error
	slow    bool // only what lies more than two minutes back cannot be read
	most    int
	reads   int
}

func (c *counted) Stats(_ context.Context, f store.StatsFilter) ([]store.Stat, error) {
	sums := store.NewSums(f)
	for i := range c.minutes {
		sums.Add(&c.minutes[i])
	}
	stats := sums.Stats()
	c.most, c.reads = max(c.most, len(stats)), c.reads+1
	if c.slow && f.Until.IsZero() {
		return stats, nil
	}
	return stats, c.failed
}

// A span of days is judged to the minute, although few statistics are read.
func TestALongSpanReadsFewStatistics(t *testing.T) {
	s := &counted{Store: memory.New()}
	for ago := range 3000 {
		at := noon.Truncate(time.Minute).Add(-time.Duration(ago) * time.Minute)
		for n := range 3 {
			s.minutes = append(s.minutes, store.Stat{At: at, Queue: fmt.Sprint("busy", n), Kind: "k", Completed: 1})
		}
		if ago > 600 {
			s.minutes = append(s.minutes, store.Stat{At: at, Queue: "late", Kind: "k", Failed: 1})
		}
	}
	r := &Runner{client: clientOf(t, s)}
	for over, stalled := range map[time.Duration]bool{30 * time.Second: true, 5 * time.Minute: true,
		600 * time.Minute: true, 601 * time.Minute: false, 720 * time.Hour: false} {
		rule := Rule{Kind: Stalled, Over: over}
		f := Facts{Now: noon, Queues: []tusk.Queue{queue("busy0", 0, 1, 0), queue("busy1", 0, 1, 0), queue("late", 0, 1, 0)}}
		if err := errors.Join(r.count(t.Context(), &f), r.spans(t.Context(), []Alert{{Rule: rule}}, &f)); err != nil {
			t.Fatal(err)
		}
		if found := Judge(&rule, &f); found.Holds != stalled {
			t.Errorf("over %v: %+v", over, found)
		}
	}
	if s.most > 60 {
		t.Errorf("%d statistics were read at once", s.most)
	}
}

// A span is read once, and a failure does not make it start over.
func TestASpanIsNotReadAgainByEachLook(t *testing.T) {
	s := &counted{Store: memory.New(), slow: true}
	r := &Runner{client: clientOf(t, s)}
	rule := Rule{Kind: Stalled, Over: 10 * time.Hour}
	look := func(now time.Time) (reads int, stalled bool, err error) {
		s.reads = 0
		f := Facts{Now: now, Queues: []tusk.Queue{queue("q", 0, 1, 0)}}
		err = errors.Join(r.count(t.Context(), &f), r.spans(t.Context(), []Alert{{Rule: rule}}, &f))
		return s.reads, Judge(&rule, &f).Holds, err
	}
	s.failed = errors.New("too slow")
	if _, _, err := look(noon); !errors.Is(err, s.failed) {
		t.Fatal(err)
	}
	s.failed = nil
	if reads, stalled, err := look(noon); !stalled || reads < 30 || err != nil {
		t.Errorf("%d reads, stalled: %v, %v", reads, stalled, err)
	}
	now := noon
	for range 30 {
		now = now.Add(20 * time.Second)
		if reads, stalled, err := look(now); !stalled || reads > 2 || err != nil {
			t.Fatalf("%v later: %d reads, stalled: %v, %v", now.Sub(noon), reads, stalled, err)
		}
	}
	s.minutes = []store.Stat{{At: now.Truncate(time.Minute), Queue: "q", Kind: "k", Completed: 1}}
	if reads, stalled, err := look(now); stalled || reads != 1 || err != nil {
		t.Errorf("after an end: %d reads, stalled: %v, %v", reads, stalled, err)
	}
	s.minutes = nil
	for range 30 {
		if now = now.Add(20 * time.Second); now.Sub(noon) == 15*time.Minute {
			s.minutes = []store.Stat{{At: noon.Add(12 * time.Minute), Queue: "q", Kind: "k", Completed: 1}}
		}
		if _, _, err := look(now); err != nil {
			t.Fatal(err)
		}
	}
	if last := r.ends.last["q"]; !last.Equal(noon.Add(12 * time.Minute).Truncate(time.Minute)) {
		t.Errorf("an end that was stored late is not known: %v", last)
	}
	if reads, stalled, err := look(now.Add(20*time.Hour + time.Minute)); !stalled || reads < 30 || err != nil {
		t.Errorf("after a gap: %d reads, stalled: %v, %v", reads, stalled, err)
	}
}

func TestWhatCannotBeReadSilencesNoOtherAlert(t *testing.T) {
	s := &counted{Store: memory.New(), failed: errors.New("too slow")}
	client := clientOf(t, s)
	if _, err := client.Enqueue(t.Context(), tusk.RawArgs{Name: "k"}, nil); err != nil {
		t.Fatal(err)
	}
	book := NewBook(s, nil, notifytest.Sender(t))
	for _, kind := range []Kind{Discarded, NoWorker} {
		rule := Rule{Name: string(kind[0]), Kind: kind, For: time.Hour,
			To: notify.Receivers(nil, []string{"https://example.com"}, nil)}
		if _, _, err := book.Put(t.Context(), rule, "ada"); err != nil {
			t.Fatal(err)
		}
	}
	r := New(book, client, slog.New(slog.DiscardHandler), 0, 0)
	if err := r.look(t.Context()); !errors.Is(err, s.failed) {
		t.Errorf("the failed read is not reported: %v", err)
	}
	alerts, err := book.List(t.Context())
	if err != nil || len(alerts) != 2 || !alerts[0].Since.IsZero() || alerts[1].Since.IsZero() {
		t.Errorf("want only that no worker is there: %+v, %v", alerts, err)
	}
}

// The span of a stalled rule cannot be read. The last minutes can, so discarded tasks are reported.
func TestASpanThatCannotBeReadSilencesOnlyItsKind(t *testing.T) {
	s := &counted{Store: memory.New(), failed: errors.New("too slow"), slow: true}
	client := clientOf(t, s)
	if _, err := client.Enqueue(t.Context(), tusk.RawArgs{Name: "k"}, nil); err != nil {
		t.Fatal(err)
	}
	worker := store.ID(tusk.NewID())
	_, err := s.Extend(t.Context(), store.Beat{TTL: time.Hour,
		Worker: store.Worker{ID: worker, Queues: []string{"default"}, Concurrency: 1}})
	if err != nil {
		t.Fatal(err)
	}
	running, err := s.Claim(t.Context(), store.ClaimRequest{Worker: worker, Token: store.NewToken(),
		Queues: []string{"default"}, Limit: 1})
	if err != nil || len(running) != 1 {
		t.Fatal(running, err)
	}
	r := &Runner{client: client}
	now := time.Now()
	_, unknown, err := r.gather(t.Context(), []Alert{{Rule: Rule{Kind: Stalled, Over: time.Hour}},
		{Rule: Rule{Kind: Discarded}}}, now)
	if !errors.Is(err, s.failed) || !unknown[Stalled] || unknown[Discarded] {
		t.Errorf("unknown are %v: %v", unknown, err)
	}
}
