package archive

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// Status is the status of archiving.
type Status struct {
	Succeeded time.Time `json:"succeeded,omitzero"` // when last nothing was left to archive; database's clock
	Failing   string    `json:"failing,omitempty"`  // why it cannot continue; empty if it can
	Tasks     int64     `json:"tasks"`              // moved so far, in the life of the database
	Bytes     int64     `json:"bytes"`              // their size in the archive
}

// tell changes the status. A success is written every time, an unchanged failure only once.
func (r *Runner) tell(ctx context.Context, change func(*Status)) error {
	record, err := find(ctx, r.o.Store, recordKind, statusName)
	if err != nil {
		return err
	}
	var s Status
	if record.Version != 0 {
		if err := json.Unmarshal(record.Body, &s); err != nil {
			s = Status{}
		}
	}
	if s.Failing == "" && record.Version != 0 {
		s.Succeeded = record.UpdatedAt
	}
	before := s
	if change(&s); s == before && s.Failing != "" {
		return nil
	}
	if record.Body, err = json.Marshal(s); err != nil {
		return err
	}
	_, _, err = r.o.Store.PutRecord(ctx, store.PutRecord{Record: record})
	return err
}

// ReadStatus returns the status of archiving, as written by the processes that archive.
func ReadStatus(ctx context.Context, s store.Recorder) (status Status, err error) {
	record, err := find(ctx, s, recordKind, statusName)
	if err != nil || record.Version == 0 {
		return status, err
	}
	if err := json.Unmarshal(record.Body, &status); err != nil {
		return status, fmt.Errorf("the status of the archive is damaged: %w", err)
	}
	if status.Failing == "" {
		status.Succeeded = record.UpdatedAt
	}
	return status, nil
}
