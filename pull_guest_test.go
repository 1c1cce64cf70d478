package tusk_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/store"
)

// guestBook counts how often the records of extended loans are read and written.
type guestBook struct {
	store.Store
	reads, writes atomic.Int64
	away          atomic.Bool
}

func (b *guestBook) Records(ctx context.Context, f store.RecordFilter) ([]store.Record, error) {
	if f.Kind == "guests" {
		b.reads.Add(1)
	}
	return b.Store.Records(ctx, f)
}

func (b *guestBook) PutRecord(ctx context.Context, p store.PutRecord) (int64, []store.Enqueued, error) {
	if p.Record.Kind != "guests" {
		return b.Store.PutRecord(ctx, p)
	}
	b.writes.Add(1)
	if b.away.Load() { // the answer to a write is lost
		_, _, _ = b.Store.PutRecord(ctx, p)
		return 0, nil, errCut
	}
	return b.Store.PutRecord(ctx, p)
}

func (b *guestBook) Unwrap() store.Store { return b.Store }

func lend(t *testing.T, p *tusk.Puller, n int) (receipts []tusk.Receipt) {
	t.Helper()
	for began := time.Now(); len(receipts) < n && time.Since(began) < time.Minute; {
		lent, err := p.Claim(t.Context(),
			tusk.Pull{Queues: []string{tusk.DefaultQueue}, Limit: n, Wait: 10 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		for i := range lent {
			receipts = append(receipts, lent[i].Receipt)
		}
	}
	return receipts
}

func TestLoansOfOtherPullers(t *testing.T) {
	inBubble(t, "whoever extends only its own loans reads and writes no record", func(t *testing.T, s *shop) {
		book := &guestBook{Store: s.store}
		s.client = clientOf(t, book)
		p, end := s.pull()
		defer end()
		s.enqueue(count{}, nil)
		r := lend(t, p, 1)[0]
		for range 10 {
			time.Sleep(10 * time.Second)
			if e := p.Extend(t.Context(), tusk.Extension{Receipt: r}); e[0].Err != nil {
				t.Error(e)
			}
		}
		if book.reads.Load()+book.writes.Load() != 0 {
			t.Errorf("%d reads, %d writes", book.reads.Load(), book.writes.Load())
		}
	})
	inBubble(t, "many loans are extended with at most ten writes a second and few reads", func(t *testing.T, s *shop) {
		book := &guestBook{Store: s.store}
		s.client = clientOf(t, book)
		p, end := s.pull()
		defer end()
		other, endOther := s.pull()
		defer endOther()
		const many = 200
		for range many {
			s.enqueue(count{}, nil)
		}
		var workers sync.WaitGroup
		for _, r := range lend(t, p, many) {
			workers.Go(func() {
				for range 30 {
					time.Sleep(10 * time.Second)
					if e := other.Extend(t.Context(), tusk.Extension{Receipt: r}); e[0].Err != nil {
						t.Error(e)
						return
					}
				}
			})
		}
		workers.Wait()
		if reads, writes := book.reads.Load(), book.writes.Load(); reads > 20 || writes > 3050 {
			t.Errorf("in five minutes %d reads, %d writes", reads, writes)
		}
		if p.Lent() != many {
			t.Errorf("%d are still lent", p.Lent())
		}
	})
	inBubble(t, "an extension whose write fails is repeated", func(t *testing.T, s *shop) {
		book := &guestBook{Store: s.store}
		s.client = clientOf(t, book)
		p, end := s.pull()
		defer end()
		other, endOther := s.pull()
		defer endOther()
		s.enqueue(count{}, nil)
		e := tusk.Extension{Receipt: lend(t, p, 1)[0], Lease: time.Minute}
		book.away.Store(true)
		if got := other.Extend(t.Context(), e)[0]; !errors.Is(got.Err, store.ErrUnavailable) {
			t.Errorf("%+v", got)
		}
		book.away.Store(false)
		if got := other.Extend(t.Context(), e)[0]; got.Err != nil {
			t.Errorf("%+v", got)
		}
		time.Sleep(50 * time.Second)
		if p.Lent() != 1 {
			t.Error("the lender took it back")
		}
		time.Sleep(15 * time.Second)
		if p.Lent() != 0 {
			t.Error("nobody extends it, and it is still lent")
		}
	})
	inBubble(t, "the limits of a task count", func(t *testing.T, s *shop) {
		p, end := s.pull()
		defer end()
		other, endOther := s.pull()
		defer endOther()
		s.enqueue(count{}, &tusk.Options{Timeout: 40 * time.Second})
		began := time.Now()
		e := tusk.Extension{Receipt: lend(t, p, 1)[0], Lease: time.Hour}
		if got := other.Extend(t.Context(), e)[0]; got.Err != nil || got.Until.Sub(began) > 41*time.Second {
			t.Errorf("%+v", got)
		}
		time.Sleep(45 * time.Second)
		if got := other.Extend(t.Context(), e)[0]; !errors.Is(got.Err, tusk.ErrLeaseLost) {
			t.Errorf("%+v", got)
		}
	})
	inBubble(t, "records of processes that stopped are deleted", func(t *testing.T, s *shop) {
		for range 3 {
			s.enqueue(count{}, nil)
			p, end := s.pull()
			other, endOther := s.pull()
			e := tusk.Extension{Receipt: lend(t, p, 1)[0]}
			if got := other.Extend(t.Context(), e)[0]; got.Err != nil {
				t.Errorf("%+v", got)
			}
			if errs, err := p.Finish(t.Context(), []tusk.Verdict{{Receipt: e.Receipt}}); err != nil || errs[0] != nil {
				t.Error(errs, err)
			}
			endOther()
			end()
			time.Sleep(14 * time.Hour)
		}
		if left, err := s.store.Records(t.Context(), store.RecordFilter{Kind: "guests"}); err != nil || len(left) != 1 {
			t.Errorf("%d records are left, %v", len(left), err)
		}
	})
	inBubble(t, "no tenant takes all the room for leases of others", func(t *testing.T, s *shop) {
		const room = 5000
		p, end := s.pull()
		defer end()
		other, endOther := s.pull()
		defer endOther()
		extend := func(tenant string, n int) (extended int) {
			for range n {
				s.enqueue(count{}, &tusk.Options{Tenant: tenant})
			}
			var extensions []tusk.Extension
			for len(extensions) < n {
				for _, r := range lend(t, p, min(n-len(extensions), tusk.MaxPull)) {
					extensions = append(extensions, tusk.Extension{Receipt: r})
				}
			}
			for _, e := range other.Extend(t.Context(), extensions...) {
				switch {
				case e.Err == nil:
					extended++
				case !errors.Is(e.Err, tusk.ErrLentElsewhere):
					t.Fatal(e.Err)
				}
			}
			return extended
		}
		if n := extend("greedy", room/2+10); n != room/2 {
			t.Errorf("the greedy tenant extends %d, want %d", n, room/2)
		}
		if n := extend("other", 10); n != 10 {
			t.Errorf("another tenant extends %d of 10", n)
		}
		time.Sleep(31 * time.Second)
		if n := extend("greedy", 10); n != 10 {
			t.Errorf("the greedy tenant extends %d of 10 after its leases have ended", n)
		}
	})
}
