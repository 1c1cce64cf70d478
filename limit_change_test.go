package tusk_test

import (
	"strings"
	"testing"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/store"
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
	refuse := func(*tusk.Limits) error { return tusk.ErrNotFound }
	if err := client.ChangeLimits(ctx, "q", refuse); err != tusk.ErrNotFound {
		t.Errorf("the error of the change is %v", err)
	}
	if err := client.ChangeLimits(ctx, "q", func(l *tusk.Limits) error { l.Concurrency = -1; return nil }); err == nil {
		t.Error("invalid limits are stored")
	}
}

func TestLimitsThatCannotBeReadCanBeReplaced(t *testing.T) {
	client, err := tusk.NewClient(memory.New(), nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	if err := client.SetLimits(ctx, "q", tusk.Limits{Concurrency: 1}); err != nil {
		t.Fatal(err)
	}
	all, err := client.Store().Records(ctx, store.RecordFilter{Kind: "limits"})
	if err != nil || len(all) != 1 {
		t.Fatal(all, err)
	}
	all[0].Body = []byte(`{"concurrency":"many"}`)
	if _, _, err := client.Store().PutRecord(ctx, store.PutRecord{Record: all[0]}); err != nil {
		t.Fatal(err)
	}
	err = client.ChangeLimits(ctx, "q", func(*tusk.Limits) error { return nil })
	if err == nil || !strings.Contains(err.Error(), "set or remove them") {
		t.Errorf("a change: %v", err)
	}
	if err := client.SetLimits(ctx, "q", tusk.Limits{Concurrency: 2}); err != nil {
		t.Error(err)
	}
	if got, err := client.Limits(ctx); err != nil || got["q"].Concurrency != 2 {
		t.Error(got, err)
	}
}
