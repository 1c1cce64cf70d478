// Package witness holds locks that prove that workers are alive, on a connection that has no other use. The server
// releases the locks as soon as the process dies, which other processes can see. See docs/design/liveness.md.
//
// The package accesses no database itself. An engine provides the connection, and defines what a lock is.
package witness

import (
	"context"
	"sync"
	"time"
)

// Server is the engine's part of its witness.
type Server[K comparable] interface {
	// Connect opens the connection for the locks.
	Connect(ctx context.Context) (Session[K], error)
	// Failed takes the reason why there is no connection, and returns the pause before the next try.
	Failed(err error) time.Duration
	// Disown records, on another connection, that only the beats of these workers count from now on.
	Disown(ctx context.Context, workers []K) error
}

// Session is a connection that holds locks.
type Session[K comparable] interface {
	// Change releases and takes locks, and returns those that it took. A server that has not noticed yet that an
	// earlier connection is dead may refuse some of them.
	Change(ctx context.Context, release, take []K) (taken []K, err error)
	// Wait returns nil when a value is sent on wake, or earlier if refused locks may be free by then. It returns an
	// error if the connection has ended.
	Wait(ctx context.Context, wake <-chan struct{}) error
	Close()
}

// Keeper holds a lock for each worker of this process. Beats do not wait for it, because the connection may be dead
// without notice.
type Keeper[K comparable] struct {
	server Server[K]
	within time.Duration // for each call of the server

	mu     sync.Mutex // never held during a call of the server
	held   map[K]bool // the workers, and whether their lock is held
	left   []K        // workers that have left, and whose lock is held
	unsure []K        // workers whose lock may be held: the answer was lost
	asked  []chan struct{}
	wake   chan struct{}
	stop   context.CancelFunc // nil if run does not run
	runs   sync.WaitGroup
	closed bool
}

// The pause before Disown is repeated doubles from disownAgain to disownSlowly.
const (
	disownAgain  = 100 * time.Millisecond
	disownSlowly = time.Second
)

// New creates a keeper. within limits each of its calls of the server. It connects once there is a worker.
func New[K comparable](server Server[K], within time.Duration) *Keeper[K] {
	return &Keeper[K]{server: server, within: within, held: map[K]bool{}, wake: make(chan struct{}, 1)}
}

// Keep adds a worker. For a new one, it returns a channel that is closed once the server has answered the request for
// the lock.
func (k *Keeper[K]) Keep(worker K) (asked <-chan struct{}) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if _, known := k.held[worker]; known || k.closed {
		return nil
	}
	k.held[worker] = false
	done := make(chan struct{})
	k.asked = append(k.asked, done)
	k.hurry()
	if k.stop == nil {
		ctx, stop := context.WithCancel(context.Background())
		k.stop = stop
		k.runs.Go(func() { k.run(ctx) })
	}
	return done
}

// Leave removes a worker, and does not wait until its lock is released.
func (k *Keeper[K]) Leave(worker K) {
	k.mu.Lock()
	defer k.mu.Unlock()
	held, known := k.held[worker]
	if !known {
		return
	}
	delete(k.held, worker)
	if held {
		k.left = append(k.left, worker)
	}
	k.hurry()
}

// Holds reports whether the lock of a worker is held.
func (k *Keeper[K]) Holds(worker K) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.held[worker]
}

// Workers returns the workers that have not left.
func (k *Keeper[K]) Workers() (all []K) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for worker := range k.held {
		all = append(all, worker)
	}
	return all
}

// Close ends the connection, and with it the locks. From then on, workers are judged by their beats alone.
func (k *Keeper[K]) Close() {
	k.mu.Lock()
	k.closed = true
	stop := k.stop
	k.mu.Unlock()
	if stop != nil {
		stop()
	}
	k.runs.Wait()
}

func (k *Keeper[K]) hurry() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// run holds the locks on one connection after the other. It ends when no worker is left.
func (k *Keeper[K]) run(ctx context.Context) {
	for ctx.Err() == nil && !k.over() {
		s, err := k.connected(ctx)
		if err == nil {
			return
		}
		pause := k.server.Failed(err)
		k.disown(ctx)
		if s != nil {
			s.Close() // not before: a lock that is free and not disowned tells of a death
		}
		rest(ctx, pause)
	}
}

// connected holds the locks on one connection. It returns a nil error when no worker is left. Otherwise, the caller
// closes the session, if there is one.
func (k *Keeper[K]) connected(ctx context.Context) (Session[K], error) {
	within, cancel := context.WithTimeout(ctx, k.within)
	s, err := k.server.Connect(within)
	if cancel(); err != nil {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.answer()
		return nil, err
	}
	for !k.over() {
		left, fresh := k.news()
		if err := k.change(ctx, s, left, fresh); err != nil {
			return s, err
		}
		if err := s.Wait(ctx, k.wake); err != nil {
			return s, err
		}
	}
	s.Close()
	return nil, nil
}

// over reports whether no worker is left. The goroutine of run then ends, and the next worker starts another one.
func (k *Keeper[K]) over() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.held) > 0 {
		return false
	}
	if k.stop != nil { // otherwise it had already ended
		k.stop()
		k.stop, k.left = nil, nil
		k.answer()
	}
	return true
}

// news returns the workers whose locks have to be released, and those whose locks have to be taken.
func (k *Keeper[K]) news() (left, fresh []K) {
	k.mu.Lock()
	defer k.mu.Unlock()
	left, k.left = k.left, nil
	for worker, held := range k.held {
		if !held {
			fresh = append(fresh, worker)
		}
	}
	return left, fresh
}

func (k *Keeper[K]) change(ctx context.Context, s Session[K], release, take []K) (err error) {
	var taken []K
	if len(release)+len(take) > 0 {
		within, cancel := context.WithTimeout(ctx, k.within)
		defer cancel()
		taken, err = s.Change(within, release, take)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.answer()
	if err != nil {
		k.unsure = take
	}
	for _, worker := range taken {
		if _, known := k.held[worker]; known {
			k.held[worker] = true
		} else { // it left in the meantime
			k.left = append(k.left, worker)
			k.hurry()
		}
	}
	return err
}

// answer tells the callers of Keep that the server has answered. The caller holds the lock.
func (k *Keeper[K]) answer() {
	for _, asked := range k.asked {
		close(asked)
	}
	k.asked = nil
}

// disown records in the database that the locks are lost.
func (k *Keeper[K]) disown(ctx context.Context) {
	k.mu.Lock()
	var lost []K
	for _, worker := range k.unsure {
		if held, known := k.held[worker]; known && !held {
			lost = append(lost, worker)
		}
	}
	for worker, held := range k.held {
		if held {
			lost = append(lost, worker)
			k.held[worker] = false
		}
	}
	k.left, k.unsure = nil, nil
	k.mu.Unlock()
	for pause := disownAgain; len(lost) > 0 && ctx.Err() == nil; pause = min(2*pause, disownSlowly) {
		within, cancel := context.WithTimeout(ctx, k.within)
		err := k.server.Disown(within, lost)
		if cancel(); err == nil {
			return
		}
		rest(ctx, pause)
	}
}

func rest(ctx context.Context, pause time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(pause):
	}
}
