package postgres

import (
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/tuskqueue/tusk/internal/bell"
	"github.com/tuskqueue/tusk/store"
)

const (
	notifyEvery  = 20 * time.Millisecond // between two notifications about a queue
	notifySooner = 3 * time.Millisecond  // the same while few calls ring
	fewRings     = 10                    // rings between two notifications that count as few
	leadEvery    = 100 * time.Millisecond
	leadSooner   = 20 * time.Millisecond // both for the leader, which polls while tasks wait
	notifyWithin = 5 * time.Second
	toldWithin   = time.Second // how long close waits
)

// ringing limits how often notifications are sent.
type ringing struct {
	mu     sync.Mutex
	names  map[string]*rung // by the names of queues, and of bells for the leader
	later  sync.WaitGroup   // scheduled notifications
	commit time.Duration    // how long users' transactions are expected to last after an enqueue; see learn
	closed bool
}

// close waits, but not for long, until all scheduled notifications have been sent. So a program that enqueues a task
// and ends also wakes a worker.
func (b *ringing) close(tell func(name string, r *rung)) {
	b.mu.Lock()
	b.closed = true
	for name, r := range b.names {
		if r.again != nil && r.again.Stop() { // its transaction may just have committed
			b.later.Add(1)
			go tell(name, r)
		}
	}
	b.mu.Unlock()
	told := make(chan struct{})
	go func() { b.later.Wait(); close(told) }()
	select {
	case <-told:
	case <-time.After(toldWithin):
	}
}

// rung is the state of the notifications of one name.
type rung struct {
	sooner, every time.Duration

	at    time.Time // when the last one was sent
	rings int       // since then
	later bool      // one is scheduled
	tries int       // the next of commitsAfter, for users' transactions; see ringAfter
	again *time.Timer
	open  []store.ID // expected tasks of users' transactions
	blind bool       // users' transactions have other tasks
}

func (b *ringing) of(name string) *rung {
	if b.names == nil || len(b.names) > 10000 {
		b.names = map[string]*rung{}
	}
	r := b.names[name]
	if r == nil {
		r = &rung{sooner: notifySooner, every: notifyEvery}
		if bell.Leads(name) {
			r.sooner, r.every = leadSooner, leadEvery
		}
		b.names[name] = r
	}
	return r
}

// ring notifies listeners that queues may have new tasks, or the leader of such tasks, soon and not too often. It
// does not block the caller.
func (s *Store) ring(names ...string) {
	if s.quiet {
		return
	}
	s.bell.mu.Lock()
	defer s.bell.mu.Unlock()
	if s.bell.closed {
		return
	}
	for _, name := range names {
		r := s.bell.of(name)
		if bell.Leads(name) && s.leads() && s.near.bell.Ring(name) {
			continue // no other process needs it
		}
		r.rings++
		if r.later {
			continue
		}
		every := r.sooner
		if r.rings > fewRings {
			every = r.every
		}
		r.later = true
		s.bell.later.Add(1)
		time.AfterFunc(every-time.Since(r.at), func() { s.notify(name, r) })
	}
}

// notify sends one notification. Nothing relies on it, so it ignores the error.
func (s *Store) notify(name string, r *rung) {
	s.bell.mu.Lock()
	if many := r.rings > fewRings; many && time.Since(r.at) < r.every {
		time.AfterFunc(r.every-time.Since(r.at), func() { s.notify(name, r) })
		s.bell.mu.Unlock()
		return
	}
	r.at, r.rings, r.later = time.Now(), 0, false
	s.bell.mu.Unlock()
	defer s.bell.later.Done()
	ctx, cancel := context.WithTimeout(context.Background(), notifyWithin)
	defer cancel()
	_ = s.exec(ctx, "notify", s.channel(), name)
}

// commitsAfter says how long after an enqueue in a user's transaction the transaction has probably been committed. Most
// are committed soon, but the engine is not told when. The first time is for this process alone, and is replaced by
// what the process has learned.
var commitsAfter = [...]time.Duration{time.Millisecond, 3 * time.Millisecond, 15 * time.Millisecond,
	60 * time.Millisecond, 250 * time.Millisecond}

const (
	earliestCommit = 500 * time.Microsecond
	latestCommit   = 5 * time.Millisecond
)

// learn corrects how long users' transactions are expected to last. A guess that is too early costs a claim that finds
// nothing, so it changes the time more than a guess that is late enough. About one guess in nine is too early.
func (b *ringing) learn(early bool) {
	last := cmp.Or(b.commit, commitsAfter[0])
	if early {
		b.commit = min(last+last/4, latestCommit)
	} else {
		b.commit = max(last-last/32, earliestCommit)
	}
}

// commitAfter returns how long to wait before the given try.
func (b *ringing) commitAfter(try int) time.Duration {
	if try == 0 && b.commit > 0 {
		return b.commit
	}
	return commitsAfter[try]
}

// ringAfter announces tasks in a user's transaction several times, after the times in commitsAfter. A notification
// inside the transaction would make all such transactions of the server commit one after the other.
func (s *Store) ringAfter(n *news) {
	if s.quiet {
		return
	}
	s.bell.mu.Lock()
	defer s.bell.mu.Unlock()
	for _, name := range n.have.rings() {
		r := s.bell.of(name)
		r.open, r.blind = append(r.open, n.ids...), r.blind || n.ids == nil
		first := 0
		if n.ids == nil {
			first = 1
		}
		switch {
		case r.again == nil:
			r.tries, r.again = first, time.AfterFunc(s.bell.commitAfter(first), func() { s.ringAgain(name, r) })
		case r.tries > first:
			r.tries = first
			r.again.Reset(s.bell.commitAfter(first))
		}
	}
}

func (s *Store) ringAgain(name string, r *rung) {
	s.bell.mu.Lock()
	r.open = s.near.still(r.open)
	open, blind := r.open, r.blind
	if r.tries == 1 && !blind {
		s.bell.learn(len(open) > 0)
	}
	s.bell.mu.Unlock()
	if blind {
		s.ring(name)
	} else {
		s.offer(name, open)
	}
	s.bell.mu.Lock()
	defer s.bell.mu.Unlock()
	if r.tries++; r.tries == len(commitsAfter) || !r.blind && len(r.open) == 0 {
		s.near.forget(r.open)
		r.open, r.blind, r.again = nil, false, nil
		return
	}
	r.again.Reset(commitsAfter[r.tries])
}

// leads reports whether this process leads, as far as the engine knows.
func (s *Store) leads() bool { return time.Since(time.Unix(0, s.near.leads.Load())) < leadsFor }
