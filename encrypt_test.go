package tusk_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/memory"
)

func keyRing(primary string, names ...string) *tusk.KeyRing {
	ring := &tusk.KeyRing{Keys: map[string][]byte{}, Primary: primary}
	for _, name := range names {
		ring.Keys[name] = bytes.Repeat([]byte(name[:1]), 32)
	}
	return ring
}

// secrets is a shop whose args are encrypted.
func secrets(t *testing.T, s *shop, ring *tusk.KeyRing) *tusk.Client {
	client, err := tusk.NewClient(s.store, &tusk.ClientConfig{KeyRing: ring})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func TestEncryption(t *testing.T) {
	ctx := context.Background()
	inBubble(t, "args are stored encrypted and handled in the clear, with old keys too", func(t *testing.T, s *shop) {
		old := secrets(t, s, keyRing("a", "a"))
		s.client = secrets(t, s, keyRing("b", "a", "b"))
		got := make(chan int, 3)
		tusk.HandleFunc(s.mux, func(_ context.Context, a count) error { got <- a.N; return nil })
		first, err := old.Enqueue(ctx, count{41}, nil)
		if err != nil {
			t.Fatal(err)
		}
		s.enqueue(count{42}, nil)
		if stored := string(s.get(first.ID).Task.Args); strings.Contains(stored, `:41`) ||
			!strings.Contains(stored, "$encrypted") {
			t.Errorf("stored as %s", stored)
		}
		_, stop := s.work(nil)
		if sum := <-got + <-got; sum != 83 {
			t.Error(sum)
		}
		s.stop(stop)
	})
	inBubble(t, "a rerun that takes the place of another task can be read", func(t *testing.T, s *shop) {
		s.client = secrets(t, s, keyRing("a", "a"))
		o := &tusk.Options{Key: "document", OnConflict: tusk.Replace}
		s.enqueue(count{1}, o)
		s.enqueue(count{2}, o)
		got := make(chan int, 1)
		tusk.HandleFunc(s.mux, func(_ context.Context, a count) error { got <- a.N; return nil })
		_, stop := s.work(nil)
		if n := <-got; n != 2 {
			t.Error(n)
		}
		s.stop(stop)
	})
	inBubble(t, "a missing key and another task's args are failures, not crashes", func(t *testing.T, s *shop) {
		sealed := secrets(t, s, keyRing("a", "a"))
		r, err := sealed.Enqueue(ctx, count{1}, &tusk.Options{MaxAttempts: 1})
		if err != nil {
			t.Fatal(err)
		}
		stolen := s.get(r.ID).Task.Args
		var refused *tusk.InvalidError
		_, err = sealed.Enqueue(ctx, tusk.RawArgs{Name: "count", JSON: stolen}, nil)
		if !errors.As(err, &refused) || refused.Code != "reserved" {
			t.Errorf("another task's encrypted args: %v", err)
		}
		moved := tusk.NewID()
		task := store.NewTask{ID: moved, Kind: "count", Queue: tusk.DefaultQueue, Args: stolen,
			Settings: []byte(`{"max_attempts":1}`)}
		_, err = sealed.Store().Enqueue(ctx, []store.NewTask{task})
		if err != nil {
			t.Fatal(err)
		}
		s.client = secrets(t, s, keyRing("a", "a"))
		tusk.HandleFunc(s.mux, func(context.Context, count) error { return nil })
		_, stop := s.work(nil)
		if e := s.await(moved, tusk.StateDiscarded).Detail.Attempts[0].Error; !strings.Contains(e, "belong to another task") {
			t.Error(e)
		}
		s.await(r.ID, tusk.StateCompleted)
		s.stop(stop)

		r, err = sealed.Enqueue(ctx, count{1}, &tusk.Options{MaxAttempts: 1})
		if err != nil {
			t.Fatal(err)
		}
		for i, ring := range []*tusk.KeyRing{nil, keyRing("b", "b")} {
			s.client = secrets(t, s, ring)
			_, stop := s.work(nil)
			if e := s.await(r.ID, tusk.StateDiscarded).Detail.Attempts[i].Error; !strings.Contains(e,
				tusk.ErrEncrypted.Error()) {
				t.Error(e)
			}
			s.stop(stop)
			if err := s.client.Retry(ctx, r.ID); err != nil {
				t.Fatal(err)
			}
		}
	})
	inBubble(t, "a puller with the keys lends args in the clear, and fails what it cannot read",
		func(t *testing.T, s *shop) {
			other := secrets(t, s, keyRing("b", "b"))
			s.client = secrets(t, s, keyRing("a", "a"))
			readable := s.enqueue(count{7}, nil)
			foreign, err := other.Enqueue(ctx, count{8}, &tusk.Options{MaxAttempts: 1})
			if err != nil {
				t.Fatal(err)
			}
			running, stop := context.WithCancel(ctx)
			puller, ended := s.client.NewPuller(), make(chan error)
			go func() { ended <- puller.Run(running) }()
			lent, err := puller.Claim(ctx, tusk.Pull{Queues: []string{"default"}, Limit: 2, Wait: 10 * time.Second})
			if err != nil || len(lent) != 1 || lent[0].ID != readable || string(lent[0].Args) != `{"N":7}` {
				t.Errorf("lent %+v, %v", lent, err)
			}
			if e := s.await(foreign.ID, tusk.StateDiscarded).Detail.Attempts[0].Error; !strings.Contains(e,
				tusk.ErrEncrypted.Error()) {
				t.Error(e)
			}
			stop()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
	t.Run("a bad key ring is refused", func(t *testing.T) {
		for _, ring := range []*tusk.KeyRing{{}, keyRing("x", "a"),
			{Keys: map[string][]byte{"a": []byte("short")}, Primary: "a"}} {
			if _, err := tusk.NewClient(memory.New(), &tusk.ClientConfig{KeyRing: ring}); !errors.Is(err, tusk.ErrInvalid) {
				t.Errorf("%+v: %v", ring, err)
			}
		}
	})
}

func ExampleKeyRing() {
	ctx := context.Background()
	client, _ := tusk.NewClient(memory.New(), &tusk.ClientConfig{KeyRing: &tusk.KeyRing{
		Keys:    map[string][]byte{"2026": bytes.Repeat([]byte{7}, 32)}, // from a secret store
		Primary: "2026",
	}})
	r, _ := client.Enqueue(ctx, Greet{Name: "Ada"}, nil)
	task, _ := client.Get(ctx, r.ID)
	fmt.Println(bytes.Contains(task.Task.Args, []byte("Ada")))
	// Output: false
}
