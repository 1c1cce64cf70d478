package tusk

import (
	"maps"
	"os"
	"slices"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// What a puller's heartbeats report about its external workers, which appear as one worker.

const (
	wantedFor  = time.Minute // a queue counts as taken from for this long after the last Claim that named it
	mostWanted = 1000        // maximum number of queues remembered
)

// appetite is what callers of Claim have requested.
type appetite struct {
	queues  map[string]time.Time // when a call that named the queue last began or ended
	waiting int                  // tasks that the calls in progress request
}

// want records that a Claim is in progress. The caller calls end when it is over.
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

// about describes the puller as a worker. It takes any kind of task from the queues that were recently requested
// and from those whose tasks are lent. It always has room for at least one task, since a call may come at any
// time.
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
