package tusk_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/memory"
)

// The engine's error already names the call.
func TestAnErrorNamesTheCallOnce(t *testing.T) {
	client, err := tusk.NewClient(memory.New(), nil)
	if err != nil {
		t.Fatal(err)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	errs := map[string]error{}
	_, errs["enqueue"] = client.Enqueue(over, Greet{}, nil)
	_, errs["list"] = client.List(over, tusk.Filter{})
	_, errs["stats"] = client.Stats(over, store.StatsFilter{Bucket: time.Minute})
	_, errs["errors"] = client.Errors(over, store.ErrorFilter{})
	_, errs["workers"] = client.Workers(over)
	_, errs["turns"] = client.TurnCounts(over, "")
	_, errs["count"] = client.Count(over, tusk.Filter{States: []tusk.State{store.Available}}, 1)
	for call, err := range errs {
		if err == nil || strings.Count(err.Error(), call+": ") != 1 {
			t.Errorf("%s: %v", call, err)
		}
	}
}
