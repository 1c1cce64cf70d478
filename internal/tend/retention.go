package tend

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/tuskqueue/tusk/store"
)

// ArchiveKind is the kind of record in which the archive's settings are, by the name
// ArchiveSettings, and what those who archive note for each other, by other names.
const (
	ArchiveKind     = "archive"
	ArchiveSettings = "settings"
)

// Archiving says whether the tasks of queues that say nothing themselves are archived.
type Archiving struct {
	All bool `json:"all,omitempty"`
}

// Retentions returns how long tasks are kept that Prune is to delete, and how long those that
// an archive is to take. What is in neither is kept.
func (l *Leader) Retentions(ctx context.Context) (pruned, archived store.Retention, err error) {
	keep := l.o.Retention()
	queues, err := l.store.Records(ctx, QueueKind)
	if err != nil {
		return pruned, archived, err
	}
	all, err := l.archivesAll(ctx)
	if err != nil {
		return pruned, archived, err
	}
	r := retentions{all: keep, own: map[string]store.Retention{}, archives: map[string]bool{}, archivesAll: all}
	maps.Copy(r.own, keep.Queues)
	for _, q := range queues {
		var settings struct {
			Retention QueueRetention
			Archive   *bool
		}
		if err := json.Unmarshal(q.Body, &settings); err != nil {
			l.o.Log.Error("prune: settings cannot be read, keeping all that the queue has", "queue", q.Name, "error", err)
			r.own[q.Name] = store.Retention{}
			continue
		}
		if settings.Retention != (QueueRetention{}) {
			r.own[q.Name] = settings.Retention.over(r.of(q.Name))
		}
		if settings.Archive != nil {
			r.archives[q.Name] = *settings.Archive
		}
	}
	pruned, archived = r.part(false), r.part(true)
	pruned.Stats = keep.Stats
	return pruned, archived, nil
}

func (l *Leader) archivesAll(ctx context.Context) (bool, error) {
	records, err := l.store.Records(ctx, ArchiveKind)
	if err != nil {
		return false, err
	}
	at := slices.IndexFunc(records, func(r store.Record) bool { return r.Name == ArchiveSettings })
	if at < 0 {
		return false, nil
	}
	var settings Archiving
	if err := json.Unmarshal(records[at].Body, &settings); err != nil {
		return false, fmt.Errorf("settings of the archive: %w", err) // or what it is to take would be deleted
	}
	return settings.All, nil
}

// retentions are those of all queues, and which of them are archived.
type retentions struct {
	all         store.Retention
	own         map[string]store.Retention
	archives    map[string]bool
	archivesAll bool
}

// of returns how long a queue keeps its tasks.
func (r *retentions) of(queue string) store.Retention {
	if own, ok := r.own[queue]; ok {
		return own
	}
	return store.Retention{Completed: r.all.Completed, Cancelled: r.all.Cancelled, Discarded: r.all.Discarded}
}

// part is the retention of the queues that are archived, or of those that are not. The others
// are kept for ever in it.
func (r *retentions) part(archived bool) store.Retention {
	var part store.Retention
	if r.archivesAll == archived {
		part = r.all
	}
	part.Queues = map[string]store.Retention{}
	for _, names := range []func(func(string) bool){maps.Keys(r.own), maps.Keys(r.archives)} {
		for name := range names {
			archives, said := r.archives[name]
			if !said {
				archives = r.archivesAll
			}
			if part.Queues[name] = (store.Retention{}); archives == archived {
				part.Queues[name] = r.of(name)
			}
		}
	}
	return part
}
