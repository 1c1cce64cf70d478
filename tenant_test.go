package tusk_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/tuskqueue/tusk"
)

func TestTheLimitsOfATenantAreSetAlone(t *testing.T) {
	s, ctx := newShop(t), context.Background()
	if err := s.client.SetLimits(ctx, "q", tusk.Limits{Concurrency: 10,
		Tenants: map[string]tusk.TenantLimits{"other": {Weight: 2}}}); err != nil {
		t.Fatal(err)
	}
	if err := s.client.SetTenantLimits(ctx, "q", "acme", tusk.TenantLimits{Concurrency: 3, Weight: 0.5}); err != nil {
		t.Fatal(err)
	}
	l, err := s.client.Limits(ctx)
	if err != nil || l["q"].Concurrency != 10 ||
		l["q"].Tenants["acme"] != (tusk.TenantLimits{Concurrency: 3, Weight: 0.5}) || l["q"].Tenants["other"].Weight != 2 {
		t.Errorf("%+v, %v", l, err)
	}
	if err := s.client.SetTenantLimits(ctx, "q", "acme", tusk.TenantLimits{}); err != nil {
		t.Fatal(err)
	}
	if l, _ := s.client.Limits(ctx); len(l["q"].Tenants) != 1 {
		t.Errorf("%+v", l)
	}
	if err := s.client.SetTenantLimits(ctx, "none", "acme", tusk.TenantLimits{}); !errors.Is(err, tusk.ErrNotFound) {
		t.Error(err)
	}
	for _, bad := range []error{
		s.client.SetTenantLimits(ctx, "No", "acme", tusk.TenantLimits{Weight: 1}),
		s.client.SetTenantLimits(ctx, "q", "No", tusk.TenantLimits{Weight: 1}),
		s.client.SetTenantLimits(ctx, "q", "acme", tusk.TenantLimits{Weight: -1}),
	} {
		if !errors.Is(bad, tusk.ErrInvalid) {
			t.Error(bad)
		}
	}
}

func ExampleClient_SetTenantLimits() {
	ctx, client := context.Background(), newClient()
	_ = client.SetLimits(ctx, "reports", tusk.Limits{Concurrency: 20, PerTenant: 2})
	_ = client.SetTenantLimits(ctx, "reports", "acme", tusk.TenantLimits{Concurrency: 5, Weight: 3})
	limits, _ := client.Limits(ctx)
	fmt.Printf("%+v\n", limits["reports"].Tenants)
	// Output: map[acme:{Concurrency:5 Weight:3}]
}
