package tusk_test

import (
	"context"
	"fmt"
	"time"

	"github.com/tuskqueue/tusk"
)

func ExampleClient_SetLimits() {
	ctx, client := context.Background(), newClient()
	err := client.SetLimits(ctx, "reports", tusk.Limits{
		Concurrency: 20,                                                // for the queue
		PerTenant:   2,                                                 // for each tenant
		Tenants:     map[string]tusk.TenantLimits{"acme": {Weight: 3}}, // three times the share of others
		TenantRate:  &tusk.Rate{Allowed: 100, Period: time.Minute},
	})
	fmt.Println(err)
	r, _ := client.Enqueue(ctx, Greet{Name: "Ada"}, &tusk.Options{Queue: "reports", Tenant: "acme"})
	task, _ := client.Get(ctx, r.ID)
	fmt.Println(task.State, task.Turn)
	// Output:
	// <nil>
	// pending true
}

func ExampleClient_ChangeLimits() {
	ctx, client := context.Background(), newClient()
	_ = client.SetLimits(ctx, "reports", tusk.Limits{Concurrency: 20, PerTenant: 2})
	err := client.ChangeLimits(ctx, "reports", func(l *tusk.Limits) error {
		l.Concurrency *= 2 // the other limits stay, whoever changes them meanwhile
		return nil
	})
	limits, _ := client.Limits(ctx)
	fmt.Println(err, limits["reports"].Concurrency, limits["reports"].PerTenant)
	// Output: <nil> 40 2
}

// Index is work on a document. For each document, one task runs at a time.
type Index struct{ Document string }

func (Index) Kind() string { return "index" }

// Options sets the partition, by which the limits of a queue separate tasks.
func (i Index) Options() tusk.Options { return tusk.Options{Partition: i.Document, Weight: 2} }

func ExampleArgs_partition() {
	ctx, client := context.Background(), newClient()
	_ = client.SetLimits(ctx, "default", tusk.Limits{PerPartition: 1})
	r, _ := client.Enqueue(ctx, Index{Document: "17"}, nil)
	task, _ := client.Get(ctx, r.ID)
	fmt.Println(task.Partition, task.Weight)
	// Output: 17 2
}

func ExampleClient_TurnCounts() {
	ctx, client := context.Background(), newClient()
	_ = client.SetLimits(ctx, "default", tusk.Limits{PerTenant: 1})
	for range 3 {
		_, _ = client.Enqueue(ctx, Greet{Name: "Ada"}, &tusk.Options{Tenant: "acme"})
	}
	counts, _ := client.TurnCounts(ctx, "default")
	fmt.Println(counts[0].Tenant, counts[0].Held, counts[0].Waiting)
	// Output: acme 0 3
}
