package tend

import (
	"context"
	"log/slog"
	"reflect"
	"testing"
	"time"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/memory"
)

func TestWhatIsArchivedIsNotPruned(t *testing.T) {
	all := store.Retention{Completed: time.Hour, Cancelled: 2 * time.Hour, Discarded: 3 * time.Hour, Stats: time.Minute}
	plain, own := store.Retention{Completed: time.Hour, Cancelled: 2 * time.Hour, Discarded: 3 * time.Hour},
		store.Retention{}
	own = plain
	own.Completed = time.Second
	kept := store.Retention{}
	for name, c := range map[string]struct {
		settings         string
		queues           map[string]string
		pruned, archived store.Retention
	}{
		"nothing is said": {
			pruned: all, archived: store.Retention{}},
		"one queue is archived": {
			queues: map[string]string{"a": `{"archive": true, "retention": {"completed": 1000000000}}`,
				"b": `{"paused": true}`},
			pruned: store.Retention{Completed: time.Hour, Cancelled: 2 * time.Hour, Discarded: 3 * time.Hour,
				Stats: time.Minute, Queues: map[string]store.Retention{"a": kept}},
			archived: store.Retention{Queues: map[string]store.Retention{"a": own}}},
		"all but one are archived": {
			settings: `{"all": true}`,
			queues:   map[string]string{"a": `{"archive": false}`, "b": `{"retention": {"completed": 1000000000}}`},
			pruned:   store.Retention{Stats: time.Minute, Queues: map[string]store.Retention{"a": plain, "b": kept}},
			archived: store.Retention{Completed: time.Hour, Cancelled: 2 * time.Hour, Discarded: 3 * time.Hour,
				Queues: map[string]store.Retention{"a": kept, "b": own}}},
		"a queue whose settings cannot be read keeps all": {
			settings: `{"all": true}`,
			queues:   map[string]string{"a": `{`},
			pruned:   store.Retention{Stats: time.Minute, Queues: map[string]store.Retention{"a": kept}},
			archived: store.Retention{Completed: time.Hour, Cancelled: 2 * time.Hour, Discarded: 3 * time.Hour,
				Queues: map[string]store.Retention{"a": kept}}},
	} {
		t.Run(name, func(t *testing.T) {
			s := memory.New()
			put := func(kind, name, body string) {
				if _, _, err := s.PutRecord(t.Context(),
					store.PutRecord{Record: store.Record{Kind: kind, Name: name, Body: []byte(body)}}); err != nil {
					t.Fatal(err)
				}
			}
			if c.settings != "" {
				put(ArchiveKind, ArchiveSettings, c.settings)
			}
			for name, body := range c.queues {
				put(QueueKind, name, body)
			}
			l := New(s, Options{ID: newID(), TTL: time.Second, NewID: newID, RescueEvery: time.Second,
				Log: slog.New(slog.DiscardHandler), Retention: func() store.Retention { return all }})
			pruned, archived, err := l.Retentions(context.Background())
			if err != nil {
				t.Fatal(err)
			}
			archived.Stats = 0 // Due does not read it
			for _, r := range []*store.Retention{&c.pruned, &c.archived} {
				if r.Queues == nil {
					r.Queues = map[string]store.Retention{}
				}
			}
			if !reflect.DeepEqual(pruned, c.pruned) || !reflect.DeepEqual(archived, c.archived) {
				t.Errorf("pruned:\n%+v\nwant:\n%+v\narchived:\n%+v\nwant:\n%+v", pruned, c.pruned, archived, c.archived)
			}
		})
	}
}
