package tusk

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"

	"github.com/tuskqueue/tusk/internal/tend"
	"github.com/tuskqueue/tusk/store"
)

// SetArchive sets whether the finished tasks of a queue are archived or deleted when their retention expires; nil
// means the setting of SetArchiveAll. Tasks to be archived stay in the database until an archiving process takes
// them (package archive, or tusk serve --archive), however long that takes.
//
// The error is ErrUnsupported if the engine does not support archiving, or an *InvalidError if the input is
// invalid.
func (c *Client) SetArchive(ctx context.Context, queue string, on *bool) error {
	if err := c.canArchive(on != nil && *on); err != nil {
		return err
	}
	return c.setQueue(ctx, queue, func(s *queueSettings) { s.Archive = on })
}

// SetArchiveAll is like SetArchive for all queues that have no setting of their own. By default they are not
// archived.
func (c *Client) SetArchiveAll(ctx context.Context, on bool) error {
	if err := c.canArchive(on); err != nil {
		return err
	}
	body, err := json.Marshal(tend.Archiving{All: on})
	if err == nil {
		err = c.changeRecord(ctx, tend.ArchiveKind, tend.ArchiveSettings, func([]byte) ([]byte, error) { return body, nil })
	}
	if err != nil {
		return fmt.Errorf("settings of the archive: %w", err)
	}
	return nil
}

// ArchivesAll returns the current setting of SetArchiveAll.
func (c *Client) ArchivesAll(ctx context.Context) (bool, error) {
	r, err := c.record(ctx, tend.ArchiveKind, tend.ArchiveSettings)
	if err != nil || len(r.Body) == 0 {
		return false, err
	}
	var settings tend.Archiving
	if err := json.Unmarshal(r.Body, &settings); err != nil {
		return false, fmt.Errorf("settings of the archive: %w", err)
	}
	return settings.All, nil
}

func (c *Client) canArchive(on bool) error {
	if _, ok := store.As[store.Archiver](c.store); !ok && on {
		return fmt.Errorf("archive: the engine: %w", ErrUnsupported)
	}
	return nil
}

// Archivable returns how long finished tasks of the archived queues are kept, from this leader's retention and the
// settings of queues; the tasks of other queues are kept forever. An archiving process passes it to the engine.
func (l *Leader) Archivable(ctx context.Context) (store.Retention, error) {
	_, archived, err := l.leader.Retentions(ctx)
	return archived, err
}

// Again returns a new task that repeats a finished one, such as one from an archive. It has the same kind, args,
// queue, tenant, partition, key, priority, tags and settings. It runs at once, belongs to no workflow, and has
// neither an expiry nor a deadline. Its metadata names the other task as rerun_of. A key that a schedule or Unique
// generated is left out.
//
// Large args are copied when the new task is enqueued, so that each task has an object of its own.
//
// The error is ErrEncrypted if the args cannot be decrypted.
func (c *Client) Again(t TaskInfo) (NewTask, error) {
	content, err := c.ArgsOf(&t)
	if err != nil {
		return NewTask{}, fmt.Errorf("task %s: %w", t.ID, err)
	}
	var args Args = copiedArgs{t.Kind, content}
	if !content.Large() {
		args = RawArgs{Name: t.Kind, JSON: content.text}
	}
	o := &Options{Queue: t.Queue, Tenant: t.Tenant, Priority: t.Priority, Partition: t.Partition, Tags: t.Tags,
		MaxAttempts: t.MaxAttempts,
		Timeout:     t.Timeout, StallTimeout: t.StallTimeout, Backoff: t.Backoff, Weight: t.Weight, Ephemeral: t.Ephemeral,
		Metadata: map[string]string{}}
	maps.Copy(o.Metadata, t.Metadata)
	o.Metadata["rerun_of"] = t.ID.String()
	if !ReservedKey(t.Key) {
		o.Key = t.Key
	}
	return NewTask{Args: args, Options: o}, nil
}
