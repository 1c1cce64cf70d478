package tusk_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/memory"
)

// TestThereIsRoomForSoManyBytesOfSchedules fills a database with schedules. A tenant's are refused beyond
// its share. Stored schedules can always be put again and made smaller.
func TestThereIsRoomForSoManyBytesOfSchedules(t *testing.T) {
	kept := memory.New()
	client, err := tusk.NewClient(kept, nil)
	if err != nil {
		t.Fatal(err)
	}
	put := func(name, tenant string, bytes int) error {
		args := fmt.Appendf(nil, `{"text":%q}`, strings.Repeat("x", bytes))
		return client.PutSchedule(context.Background(), tusk.Schedule{Name: name, Spec: "@every 24h",
			Args: tusk.RawArgs{Name: "k", JSON: args}, Options: &tusk.Options{Tenant: tenant}})
	}
	fill := func(tenant string) (stored int) {
		t.Helper()
		for ; ; stored++ {
			err := put(fmt.Sprint(tenant, "x", stored), tenant, 250_000)
			var invalid *tusk.InvalidError
			if errors.As(err, &invalid) && invalid.Code == "too_large" {
				return stored
			}
			if err != nil || stored > 100 {
				t.Fatal(stored, err)
			}
		}
	}
	if n := fill("acme"); n != 6 {
		t.Errorf("%d schedules of 250 KB of one tenant", n)
	}
	if n := fill("umbrella"); n != 6 {
		t.Errorf("%d schedules of 250 KB of another tenant", n)
	}
	if n := fill(""); n != 13 {
		t.Errorf("%d more schedules of 250 KB", n)
	}
	if err := put("x0", "", 250_000); err != nil {
		t.Error("a schedule that is there:", err)
	}
	if err := put("acmex0", "acme", 200_000); err != nil {
		t.Error("a smaller one:", err)
	}
	beyond := store.Record{Kind: "schedule", Name: "by-an-older-release",
		Body: fmt.Appendf(nil, `{"spec":"@every 24h","kind":%q}`, strings.Repeat("k", 1<<20))}
	if _, _, err := kept.PutRecord(context.Background(), store.PutRecord{Record: beyond}); err != nil {
		t.Fatal(err)
	}
	if err := put("x0", "", 250_000); err != nil {
		t.Error("a schedule that is there, beyond what is allowed:", err)
	}
	if err := put("x0", "", 250_001); !errors.Is(err, tusk.ErrInvalid) {
		t.Error("a larger one, beyond what is allowed:", err)
	}
}

// TestThereIsRoomForSoManySchedules fills a tenant's share with small schedules.
func TestThereIsRoomForSoManySchedules(t *testing.T) {
	kept := memory.New()
	client, err := tusk.NewClient(kept, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := range tusk.MaxSchedules / 4 {
		small := store.Record{Kind: "schedule", Name: fmt.Sprint("s", i),
			Body: []byte(`{"spec":"@every 24h","kind":"k","tenant":"acme"}`)}
		if _, _, err := kept.PutRecord(context.Background(), store.PutRecord{Record: small}); err != nil {
			t.Fatal(err)
		}
	}
	one := tusk.Schedule{Name: "one", Spec: "@every 24h", Args: tusk.RawArgs{Name: "k"},
		Options: &tusk.Options{Tenant: "acme"}}
	if err := client.PutSchedule(context.Background(), one); !errors.Is(err, tusk.ErrInvalid) {
		t.Error("one more of the tenant:", err)
	}
	one.Options.Tenant = "umbrella"
	if err := client.PutSchedule(context.Background(), one); err != nil {
		t.Error("one of another tenant:", err)
	}
}

func TestArgsOfAScheduleHaveTheSameLimitWithPayloads(t *testing.T) {
	client, err := tusk.NewClient(memory.New(), &tusk.ClientConfig{Payloads: &shelfOf{objects: map[string][]byte{}}})
	if err != nil {
		t.Fatal(err)
	}
	args := func(bytes int) tusk.RawArgs {
		return tusk.RawArgs{Name: "k", JSON: fmt.Appendf(nil, `"%0*d"`, bytes-2, 0)}
	}
	put := func(bytes int) error {
		return client.PutSchedule(t.Context(), tusk.Schedule{Name: "s", Spec: "@daily", Args: args(bytes)})
	}
	if err := put(tusk.MaxArgsBytes); err != nil {
		t.Error(err)
	}
	bad := new(tusk.InvalidError)
	if err := put(tusk.MaxArgsBytes + 1); !errors.As(err, &bad) || bad.Code != "args_too_large" ||
		!strings.Contains(err.Error(), "262144") {
		t.Errorf("args that are too large: %v", err)
	}
	if _, err := client.Enqueue(t.Context(), args(tusk.MaxArgsBytes+1), nil); err != nil {
		t.Errorf("a task may have them: %v", err)
	}
}
