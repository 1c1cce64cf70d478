package witness_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tuskqueue/tusk/internal/witness"
)

// server is a server in memory whose connections can be refused and whose answers can be lost.
type server struct {
	mu       sync.Mutex
	refuses  bool
	loses    bool // the answer to the next change
	connects int
	locked   map[string]bool
	disowned []string
	ends     chan struct{} // closed to end the connection
}

var errGone = errors.New("the connection is gone")

func (s *server) Connect(context.Context) (witness.Session[string], error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.connects++; s.refuses {
		return nil, errGone
	}
	s.locked, s.ends = map[string]bool{}, make(chan struct{})
	return session{s}, nil
}

func (s *server) Failed(error) time.Duration { return time.Second }

func (s *server) Disown(_ context.Context, workers []string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.disowned = append(s.disowned, workers...)
	slices.Sort(s.disowned)
	return nil
}

type session struct{ *server }

func (s session) Change(_ context.Context, release, take []string) ([]string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, worker := range release {
		delete(s.locked, worker)
	}
	for _, worker := range take {
		s.locked[worker] = true
	}
	if s.loses {
		s.loses = false
		return nil, errGone
	}
	return take, nil
}

func (s session) Wait(ctx context.Context, wake <-chan struct{}) error {
	s.mu.Lock()
	ends := s.ends
	s.mu.Unlock()
	select {
	case <-wake:
		return nil
	case <-ends:
		return errGone
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s session) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.locked = nil
}

// set changes the server, and returns what it has disowned since the last time.
func (s *server) set(change func(s *server)) (disowned []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(s)
	disowned, s.disowned = s.disowned, nil
	return disowned
}

func inBubble(t *testing.T, name string, f func(t *testing.T, s *server, k *witness.Keeper[string])) {
	t.Run(name, func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := &server{}
			k := witness.New[string](s, 5*time.Second)
			defer k.Close()
			f(t, s, k)
		})
	})
}

func TestKeeper(t *testing.T) {
	inBubble(t, "locks are taken and released", func(t *testing.T, s *server, k *witness.Keeper[string]) {
		<-k.Keep("a")
		<-k.Keep("b")
		k.Leave("a")
		synctest.Wait()
		s.set(func(s *server) {
			if k.Holds("a") || !k.Holds("b") || s.locked["a"] || !s.locked["b"] || s.connects != 1 {
				t.Errorf("%v on %d connections", s.locked, s.connects)
			}
		})
	})
	inBubble(t, "a lost connection is disowned, and replaced", func(t *testing.T, s *server, k *witness.Keeper[string]) {
		<-k.Keep("a")
		<-k.Keep("b")
		s.set(func(s *server) { close(s.ends) })
		synctest.Wait()
		if lost := s.set(func(*server) {}); !slices.Equal(lost, []string{"a", "b"}) || k.Holds("a") {
			t.Errorf("disowned %v", lost)
		}
		time.Sleep(2 * time.Second)
		if !k.Holds("a") || !k.Holds("b") {
			t.Error("the locks are not held again")
		}
	})
	inBubble(t, "a lock whose answer is lost is disowned", func(t *testing.T, s *server, k *witness.Keeper[string]) {
		s.set(func(s *server) { s.loses = true })
		<-k.Keep("a")
		synctest.Wait()
		if lost := s.set(func(*server) {}); !slices.Equal(lost, []string{"a"}) {
			t.Errorf("disowned %v", lost)
		}
	})
	inBubble(t, "nobody connects without workers", func(t *testing.T, s *server, k *witness.Keeper[string]) {
		s.set(func(s *server) { s.refuses = true })
		<-k.Keep("a")
		k.Leave("a")
		time.Sleep(time.Hour)
		s.set(func(s *server) {
			if s.connects > 2 {
				t.Errorf("%d connects", s.connects)
			}
			s.refuses = false
		})
		<-k.Keep("b")
		if !k.Holds("b") {
			t.Error("the lock of a later worker is not held")
		}
	})
	inBubble(t, "whoever leaves at once is answered", func(t *testing.T, s *server, k *witness.Keeper[string]) {
		asked := k.Keep("a")
		k.Leave("a")
		select {
		case <-asked:
		case <-time.After(time.Second):
			t.Error("not answered")
		}
	})
}
