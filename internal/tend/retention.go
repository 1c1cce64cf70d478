package tend

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/tuskqueue/tusk/store"
)

// ArchiveKind is the kind of the records that hold the archive's settings, under the name ArchiveSettings, and the
// notes that archivers leave for each other, under other names.
const (
	ArchiveKind     = "archive"
	ArchiveSettings = "settings"
)

// Archiving says whether tasks are archived if their queue has no setting of its own.
type Archiving struct {
	All bool `json:"all,omitempty"`
}

// Retentions returns the retentions of tasks that Prune deletes and of tasks that an archive takes. Tasks in neither
// are kept.
func (l *Leader) Retentions(ctx context.Context) (pruned, archived store.Retention, err error) {
	keep := l.o.Retention()
	queues, err := l.store.Records(ctx, store.RecordFilter{Kind: QueueKind})
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
	records, err := l.store.Records(ctx, store.RecordFilter{Kind: ArchiveKind})
	if err != nil {
		return false, err
	}
	at := slices.IndexFunc(records, func(r store.Record) bool { return r.Name == ArchiveSettings })
	if at < 0 {
		return false, nil
	}
	var settings Archiving
	if err := json.Unmarshal(records[at].Body, &settings); err != nil {
		// Otherwise Prune would delete tasks that should be archived.
		return false, fmt.Errorf("settings of the archive: %w", err)
	}
	return settings.All, nil
}

// retentions holds the retentions of all queues, and which queues are archived.
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

// part returns the retention of the queues that are archived, or of those that are not. The tasks of all other queues
// are kept forever.
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
