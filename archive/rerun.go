package archive

import (
	"context"
	"encoding/json"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// RerunKind is the kind of the records that hold reruns; see package archive/rerun.
const RerunKind = "archive-rerun"

// RerunRunning is the state of a rerun that has not ended.
const RerunRunning = "running"

// rerunRests is how long a rerun may make no progress before files change anyway.
const rerunRests = time.Hour

// beingRead reports whether a rerun is reading the archive. Its cursor is a row of a file, so files
// may not change meanwhile. now is the time by the database's clock.
func beingRead(ctx context.Context, s store.Recorder, now time.Time) (bool, error) {
	records, err := s.Records(ctx, store.RecordFilter{Kind: RerunKind})
	for _, r := range records {
		var rerun struct{ State string }
		if json.Unmarshal(r.Body, &rerun) == nil && rerun.State == RerunRunning && now.Sub(r.UpdatedAt) < rerunRests {
			return true, err
		}
	}
	return false, err
}

// Changing reports whether a process is changing existing files. A rerun waits until that ends.
func Changing(ctx context.Context, s store.Recorder) (bool, error) {
	note, _, err := document[Note](ctx, s, recordKind, noteName)
	return note.Change, err
}
