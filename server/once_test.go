package server

import (
	"log/slog"
	"testing"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/memory"
)

func TestIdempotencyKeysAreForgottenAfterTheirDay(t *testing.T) {
	client, err := tusk.NewClient(memory.New(), nil)
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(client, Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	kept := map[string]bool{}
	for age, keep := range map[time.Duration]bool{0: true, 24 * time.Hour: true, 48 * time.Hour: false,
		96 * time.Hour: false} {
		day, name := now.Add(-age), hash(age.String())
		if err := s.markDay(t.Context(), day); err != nil {
			t.Fatal(err)
		}
		if _, _, err := client.Store().PutRecord(t.Context(),
			store.PutRecord{Record: store.Record{Kind: onceKind(day, name), Name: name, Body: []byte("{}")}}); err != nil {
			t.Fatal(err)
		}
		kept[onceKind(day, name)] = keep
	}
	if err := s.forgetOnce(t.Context(), now); err != nil {
		t.Fatal(err)
	}
	for kind, keep := range kept {
		if records, err := client.Store().Records(t.Context(), kind); err != nil || len(records) == 1 != keep {
			t.Errorf("%s: %d records, %v", kind, len(records), err)
		}
	}
	if days, err := client.Store().Records(t.Context(), onceDays); err != nil || len(days) != 2 {
		t.Error(days, err)
	}
}
