package tusk_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tuskqueue/tusk"
)

func ExampleClient_KnowsQueue() {
	ctx, client := context.Background(), newClient()
	_ = client.PauseQueue(ctx, "bills")
	names, _ := client.QueueNames(ctx)
	known, _ := client.KnowsQueue(ctx, "bilss")
	fmt.Println(names, known)
	fmt.Println(client.RemoveQueue(ctx, "bills"), errors.Is(client.RemoveQueue(ctx, "bills"), tusk.ErrNotFound))
	// Output:
	// [bills] false
	// <nil> true
}

func ExampleStatesFor() {
	fmt.Println(tusk.StatesFor(tusk.OpRetry, nil))
	fmt.Println(tusk.StatesFor(tusk.OpCancel, []tusk.State{tusk.StateAvailable, tusk.StateCompleted}))
	// Output:
	// [retryable discarded]
	// [available]
}

func ExampleReservedKey() {
	fmt.Println(tusk.ReservedKey("schedule:nightly"), tusk.ReservedKey("nightly"))
	// Output: true false
}

// A process that only does the leader's work and runs no tasks.
func ExampleClient_NewLeader() {
	leader, err := newClient().NewLeader(nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	fmt.Println(leader.Run(ctx))
	// Output: <nil>
}

func ExampleKeyRing_Encrypt() {
	old := &tusk.KeyRing{Primary: "2026", Keys: map[string][]byte{"2026": make([]byte, 32)}}
	sealed, _ := old.Encrypt([]byte("s3cret"), "endpoint")
	ring := &tusk.KeyRing{Primary: "2027", Keys: map[string][]byte{"2026": make([]byte, 32),
		"2027": append(make([]byte, 31), 1)}}
	secret, err := ring.Decrypt(sealed, "endpoint")
	fmt.Println(string(secret), err, ring.IsCurrent(sealed))
	// Output: s3cret <nil> false
}
