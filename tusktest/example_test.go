package tusktest_test

import (
	"context"
	"testing"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/tusktest"
)

type welcome struct{ To string }

func (welcome) Kind() string { return "welcome" }

// signUp is the code under test.
func signUp(ctx context.Context, client *tusk.Client, address string) error {
	_, err := client.Enqueue(ctx, welcome{address}, &tusk.Options{Delay: time.Hour})
	return err
}

func Example() {
	test := func(t *testing.T) {
		k := tusktest.Memory(t) // or tusktest.New(t, engine, nil) on your own database
		if err := signUp(context.Background(), k.Client, "ada@example.com"); err != nil {
			t.Fatal(err)
		}
		tusktest.RequireEnqueued[welcome](k, &tusktest.Want{Args: welcome{"ada@example.com"}, Delay: time.Hour, Count: 1})

		mux := tusk.NewMux()
		sent := 0
		tusk.HandleFunc(mux, func(context.Context, welcome) error { sent++; return nil })
		w := k.Work(mux, nil)
		w.Advance(time.Hour)
		if sent != 1 {
			t.Errorf("%d mails were sent after an hour, want 1", sent)
		}
	}
	_ = test // in a test file: func TestSignUp(t *testing.T) { … }
}

func TestTheExampleWorks(t *testing.T) {
	k := tusktest.Memory(t)
	if err := signUp(context.Background(), k.Client, "ada@example.com"); err != nil {
		t.Fatal(err)
	}
	tusktest.RequireEnqueued[welcome](k, &tusktest.Want{Args: welcome{"ada@example.com"}, Delay: time.Hour, Count: 1})
	mux := tusk.NewMux()
	sent := 0
	tusk.HandleFunc(mux, func(context.Context, welcome) error { sent++; return nil })
	if k.Work(mux, nil).Advance(time.Hour); sent != 1 {
		t.Errorf("%d mails were sent after an hour, want 1", sent)
	}
}
