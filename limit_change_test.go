package tusk_test

import (
	"testing"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/store/memory"
)

func TestAChangeOfLimitsKeepsWhatOthersSetMeanwhile(t *testing.T) {
	client, err := tusk.NewClient(memory.New(), nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, calls := t.Context(), 0
	err = client.ChangeLimits(ctx, "q", func(l *tusk.Limits) error {
		if calls++; calls == 1 {
			if err := client.SetTenantLimits(ctx, "q", "acme", tusk.TenantLimits{Concurrency: 3}); err != nil {
				t.Fatal(err)
			}
		}
		l.Concurrency = 5
		return nil
	})
	all, read := client.Limits(ctx)
	if l := all["q"]; err != nil || read != nil || calls != 2 || l.Concurrency != 5 || l.Tenants["acme"].Concurrency != 3 {
		t.Errorf("%+v after %d calls: %v, %v", l, calls, err, read)
	}
	if err := client.ChangeLimits(ctx, "q", func(*tusk.Limits) error { return tusk.ErrNotFound }); err != tusk.ErrNotFound {
		t.Errorf("the error of the change is %v", err)
	}
	if err := client.ChangeLimits(ctx, "q", func(l *tusk.Limits) error { l.Concurrency = -1; return nil }); err == nil {
		t.Error("invalid limits are stored")
	}
}
