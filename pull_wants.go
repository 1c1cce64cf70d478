package tusk

import (
	"maps"
	"os"
	"slices"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// What a puller's beats say of those it lends to: to everybody else they are one worker.

const (
	wantedFor  = time.Minute // after the last Claim that named a queue, the queue counts as taken from
	mostWanted = 1000        // queues that are remembered
)

// appetite is what callers of Claim have asked for.
type appetite struct {
	queues  map[string]time.Time // when a call that named the queue last began or ended
	waiting int                  // tasks that the calls under way ask for
}

// want notes that a Claim is under way. The caller calls end when it is over.
func (p *Puller) want(queues []string, limit int) (end func()) {
	p.wanted(queues, limit)
	return func() { p.wanted(queues, -limit) }
}

func (p *Puller) wanted(queues []string, more int) {
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.wants.waiting += more
	for _, q := range queues {
		if _, known := p.wants.queues[q]; known || len(p.wants.queues) < mostWanted {
			p.wants.queues[q] = now
		}
	}
}

// about is the puller as a worker. It takes any kind from the queues that were asked for of
// late and from those whose tasks are lent. It has room for one task at least, as somebody
// may ask at any moment.
func (p *Puller) about(host string) store.Worker {
	w := store.Worker{Host: host, PID: os.Getpid(), Version: Version()}
	p.mu.Lock()
	defer p.mu.Unlock()
	maps.DeleteFunc(p.wants.queues, func(_ string, last time.Time) bool { return time.Since(last) > wantedFor })
	queues := map[string]bool{}
	for q := range p.wants.queues {
		queues[q] = true
	}
	for _, l := range p.lent {
		queues[l.Task.Queue] = true
	}
	w.Queues = slices.Sorted(maps.Keys(queues))
	w.Concurrency = min(len(p.lent)+max(p.wants.waiting, 1), MaxLent)
	return w
}
