package mysql

import (
	"context"
	"database/sql"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// How often idle queues are looked at for what other processes have made available: often
// while something happens, seldom after ten seconds in which nothing did.
const (
	lookOften  = 25 * time.Millisecond
	lookSeldom = 100 * time.Millisecond
	quiet      = 10 * time.Second
	mostLooked = 64 // queues, with one statement
)

// wakes knows who listens in this process, and which queues have nothing for them.
type wakes struct {
	mu        sync.Mutex
	listeners map[*listener]bool
	idle      map[string]time.Time // queues that were found empty, and when
	found     time.Time            // when something was last found
}

// listener is somebody who wants to be told. ring has room for one ring, which is enough to
// have it look.
type listener struct {
	mail map[string]bool
	ring chan struct{}
}

// Listen implements store.Notifier. What this process commits it tells at once. For what
// others do it looks at the queues that were empty when somebody last claimed from them, all
// with one statement.
func (s *Store) Listen(ctx context.Context, wake func(queues ...string)) error {
	l := &listener{mail: map[string]bool{}, ring: make(chan struct{}, 1)}
	s.wakes.join(l)
	defer s.wakes.leave(l)
	look := time.NewTicker(lookOften)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-look.C:
			s.lookAround(ctx)
		case <-l.ring:
			wake(s.wakes.read(l)...)
		}
	}
}

// lookAround looks at the queues that are due. An error is left to the claims, which meet it
// as well.
func (s *Store) lookAround(ctx context.Context) {
	queues := s.wakes.due(time.Now())
	if len(queues) == 0 {
		return
	}
	var parts []string
	var args []any
	for i, queue := range queues {
		parts, args = append(parts, q("probe.queue")), append(args, i, []byte(queue))
	}
	found := map[string]bool{}
	_ = s.query(ctx, func(rows *sql.Rows) error {
		var i, unused int
		err := rows.Scan(&i, &unused)
		found[queues[i]] = true
		return err
	}, strings.Join(parts, " union all "), args...)
	s.wakes.wake(found)
}

func (w *wakes) join(l *listener) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.listeners == nil {
		w.listeners, w.idle = map[*listener]bool{}, map[string]time.Time{}
	}
	w.listeners[l] = true
}

func (w *wakes) leave(l *listener) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.listeners, l)
}

// read empties the mail.
func (w *wakes) read(l *listener) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	queues := slices.Sorted(maps.Keys(l.mail))
	clear(l.mail)
	return queues
}

// wake tells all listeners that queues have got available tasks. These are looked at again
// when a claim has found them empty.
func (w *wakes) wake(queues map[string]bool) {
	if len(queues) == 0 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.found = time.Now()
	for queue := range queues {
		delete(w.idle, queue)
	}
	for l := range w.listeners {
		maps.Copy(l.mail, queues)
		select {
		case l.ring <- struct{}{}:
		default:
		}
	}
}

// claimed takes note that a claim has emptied queues, or found them empty.
func (w *wakes) claimed(queues []string, tasks int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.listeners) == 0 {
		return
	}
	now := time.Now()
	if tasks > 0 {
		w.found = now
	}
	for _, queue := range queues {
		w.idle[queue] = now
	}
}

// due returns the queues that are to be looked at now, those first that have waited longest.
func (w *wakes) due(now time.Time) (queues []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	pace := lookOften
	if now.Sub(w.found) > quiet {
		pace = lookSeldom
	}
	for queue, at := range w.idle {
		if now.Sub(at) >= pace-lookOften/2 {
			queues = append(queues, queue)
		}
	}
	slices.SortFunc(queues, func(a, b string) int { return w.idle[a].Compare(w.idle[b]) })
	queues = queues[:min(len(queues), mostLooked)]
	for _, queue := range queues {
		w.idle[queue] = now
	}
	return queues
}
