package mysql

import (
	"context"
	"database/sql"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tuskqueue/tusk/internal/bell"
	"github.com/tuskqueue/tusk/store"
)

// How often idle queues are checked for tasks that other processes have made available: often during activity. After
// ten seconds without activity, the server itself checks them, for a while in one statement. If no connection can be
// spared for that, this process checks them, less often. Right after a task has given back its turn, the next task in
// its line is likely to get one.
const (
	lookSoon   = 10 * time.Millisecond
	soonFor    = 100 * time.Millisecond
	lookOften  = 25 * time.Millisecond
	lookSeldom = 100 * time.Millisecond
	quiet      = 10 * time.Second
	mostLooked = 64 // queues per statement

	watchFor   = time.Second // the duration of one statement
	watchEvery = 50 * time.Millisecond
	watchEach  = time.Millisecond // more per queue
)

// wakes notifies the listeners of this process, and knows which queues are empty.
type wakes struct {
	bell.Bell
	mu      sync.Mutex
	idle    map[string]time.Time // queues that were found empty, and when
	found   time.Time            // when tasks were last found
	soon    time.Time            // until when queues are checked every lookSoon
	hurried chan struct{}        // receives a value when that begins
	watched bool                 // the server is checking the queues
}

// Listen implements store.Notifier. It reports at once what this process commits. For other processes, it checks the
// queues that were empty at their last claim, all with one statement.
func (s *Store) Listen(ctx context.Context, wake func(store.Hint)) error {
	var looking sync.WaitGroup
	defer looking.Wait()
	looking.Go(func() { s.keepLooking(ctx) })
	return s.wakes.Bell.Listen(ctx, wake)
}

// keepLooking checks idle queues until the context ends. It ignores errors, because claims report them as well.
func (s *Store) keepLooking(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.wakes.hurried:
			pauseFor(ctx, lookSoon)
		case <-time.After(s.wakes.pause(time.Now())):
		}
		if queues := s.wakes.watch(time.Now(), s.spares()); len(queues) > 0 {
			found, err := s.watch(ctx, queues)
			s.wakes.wake(found)
			s.wakes.watchEnded()
			if err != nil {
				pauseFor(ctx, watchFor)
			}
		} else {
			s.lookAround(ctx)
		}
	}
}

func pauseFor(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// spares reports whether a connection can wait without delaying others.
func (s *Store) spares() bool {
	limit := s.db.Stats().MaxOpenConnections
	return s.spare != nil || limit == 0 || limit >= 4
}

// watch makes the server check queues for a while, and returns those with tasks.
func (s *Store) watch(ctx context.Context, queues []string) (found map[string]bool, err error) {
	pause := watchEvery + time.Duration(len(queues))*watchEach
	found = map[string]bool{}
	_, _, err = s.call(ctx, func(rows *sql.Rows) error {
		var places []byte
		err := rows.Scan(&places)
		for _, i := range places {
			found[queues[i]] = true
		}
		return err
	}, "tusk_watch", namesOf(queues), pause.Seconds(), int(watchFor/pause))
	return found, err
}

// lookAround checks the queues that are due.
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

// wake notifies all listeners that queues have available tasks, or the leader. These queues are checked again once a
// claim has found them empty.
func (w *wakes) wake(names map[string]bool) {
	if len(names) == 0 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.found = time.Now()
	for name := range names {
		delete(w.idle, name)
		w.Ring(name)
	}
}

// claimed records that a claim has emptied queues, or found them empty.
func (w *wakes) claimed(queues []string, tasks int) {
	if !w.Heard() {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.idle == nil {
		w.idle = map[string]time.Time{}
	}
	now := time.Now()
	if tasks > 0 {
		w.found = now
	}
	for _, queue := range queues {
		w.idle[queue] = now
	}
}

// gaveBack records that tasks of this process have given back their turns.
func (w *wakes) gaveBack(now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if now.After(w.soon) {
		select {
		case w.hurried <- struct{}{}:
		default:
		}
	}
	w.soon = now.Add(soonFor)
}

// pause returns the pause before the next check.
func (w *wakes) pause(now time.Time) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if now.Before(w.soon) {
		return lookSoon
	}
	return lookOften
}

// watch returns the idle queues if the server should check them: nothing has happened for a while, and the server is
// not checking already. The caller must call watchEnded afterwards.
func (w *wakes) watch(now time.Time, spares bool) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !spares || w.watched || now.Sub(w.found) <= quiet || len(w.idle) == 0 || len(w.idle) > mostLooked {
		return nil
	}
	w.watched = true
	return slices.Sorted(maps.Keys(w.idle))
}

func (w *wakes) watchEnded() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.watched = false
}

// due returns the queues to check now, those first that have waited longest.
func (w *wakes) due(now time.Time) (queues []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.watched {
		return nil
	}
	pace := lookOften / 2 // a check may come early
	switch {
	case now.Before(w.soon):
		pace = lookSoon / 2
	case now.Sub(w.found) > quiet:
		pace = lookSeldom - lookOften/2
	}
	for queue, at := range w.idle {
		if now.Sub(at) >= pace {
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
