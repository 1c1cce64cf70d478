package claim

import (
	"slices"
	"sync"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// fewQueues is the number of queues that each claim may name. If a worker has more, a claim names only those that a
// hint names or that just had tasks, and all of them once per Poll, because each queue has a cost in the database.
const fewQueues = 8

// hints is what is known about where tasks may be.
type hints struct {
	poll time.Duration

	mu    sync.Mutex
	hot   map[string]bool // queues that may have tasks
	any   bool            // any queue may have tasks
	told  bool            // there is room, or another reason to claim
	swept time.Time       // when all were last claimed from; zero to claim from all at once
}

func newHints(poll time.Duration) *hints { return &hints{poll: poll, hot: map[string]bool{}} }

func (h *hints) add(queues ...string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, q := range queues {
		h.hot[q] = true
	}
	h.any = h.any || len(queues) == 0
}

// tell says that a claim is worthwhile, from any queue.
func (h *hints) tell() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.told = true
}

// silent reports whether no hint has come since the last claim.
func (h *hints) silent() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return !h.told && !h.any && len(h.hot) == 0
}

// choose returns those of the asks, and of their queues, that are worth a claim now.
func (h *hints) choose(asks []Ask) []Ask {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.told = false
	if isFew(asks) || h.any || time.Since(h.swept) >= h.poll {
		h.swept, h.any = time.Now(), false
		clear(h.hot)
		return asks
	}
	var worth []Ask
	for _, a := range asks {
		a.Queues = slices.DeleteFunc(slices.Clone(a.Queues), func(q string) bool { return !h.hot[q] })
		for _, q := range a.Queues {
			delete(h.hot, q)
		}
		if len(a.Queues) > 0 {
			worth = append(worth, a)
		}
	}
	return worth
}

func isFew(asks []Ask) bool {
	n := 0
	for _, a := range asks {
		n += len(a.Queues)
	}
	return n <= fewQueues
}

// learn records which queues may have more tasks: those that tasks came from, or all queues of the request if its
// limit was reached. It reports whether any tasks were found.
func (h *hints) learn(r store.ClaimRequest, tasks []store.Task) (more bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch full := len(tasks) == r.Limit; {
	case full && len(r.Queues) > fewQueues:
		h.swept = time.Time{}
	case full:
		for _, q := range r.Queues {
			h.hot[q] = true
		}
	default:
		for i := range tasks {
			h.hot[tasks[i].Queue] = true
		}
	}
	return len(tasks) > 0
}

// untilSweep returns the time until all queues are claimed from again.
func (h *hints) untilSweep() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return max(h.poll-time.Since(h.swept), firstIdle)
}
