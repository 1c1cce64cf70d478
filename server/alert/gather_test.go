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
	slow    time.Duration // the bucket that cannot be read; 0 means all
	most    int
}

func (c *counted) Stats(_ context.Context, f store.StatsFilter) ([]store.Stat, error) {
	sums := store.NewSums(f)
	for i := range c.minutes {
		sums.Add(&c.minutes[i])
	}
	stats := sums.Stats()
	c.most = max(c.most, len(stats))
	if c.slow != 0 && c.slow != f.Bucket {
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
		600 * time.Minute: true, 601 * time.Minute: false, 30 * day: false} {
		rule := Rule{Kind: Stalled, Over: over}
		f := Facts{Now: noon, Queues: []tusk.Queue{queue("busy0", 0, 1, 0), queue("busy1", 0, 1, 0), queue("late", 0, 1, 0)}}
		if err := errors.Join(r.count(t.Context(), &f), r.spans(t.Context(), []Alert{{Rule: rule}}, &f)); err != nil {
			t.Fatal(err)
		}
		if found := Judge(&rule, &f); found.Holds != stalled {
			t.Errorf("over %v: %+v", over, found)
		}
	}
	if s.most > 12 {
		t.Errorf("%d statistics were read at once", s.most)
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
	s := &counted{Store: memory.New(), failed: errors.New("too slow"), slow: day}
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
