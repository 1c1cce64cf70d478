package access

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// MaxAudit is how many entries the audit log keeps: the newest.
const MaxAudit = 5000

// pruneEvery is after how many entries of one process the oldest are looked for.
const pruneEvery = 250

// Entry is one line of the audit log: what an operator did, or tried.
type Entry struct {
	ID      string    `json:"id"`
	At      time.Time `json:"at"`
	Who     string    `json:"who"`      // a name, for people to read
	WhoID   string    `json:"identity"` // see Identity.ID
	Via     string    `json:"via"`
	Role    Role      `json:"role"`
	Action  string    `json:"action"` // e.g. "tasks.cancel"
	Target  string    `json:"target,omitempty"`
	Detail  string    `json:"detail,omitempty"`
	Result  string    `json:"result"` // "ok", or what went wrong
	Request string    `json:"request_id,omitempty"`
	Address string    `json:"address,omitempty"`
}

// By reports whether somebody did it: by id, or by name.
func (e Entry) By(who string) bool { return who == e.WhoID || who == e.Who }

type auditor struct {
	mu     sync.Mutex
	writes int
}

// Record appends an entry: a record of its own, which nothing ever changes. The
// id is a new one and sorts by time.
func (b *Book) Record(ctx context.Context, id store.ID, e Entry) error {
	e.ID, e.At = id.String(), time.Now().UTC().Truncate(time.Millisecond)
	e.Target, e.Detail, e.Result = cut(e.Target, 200), cut(e.Detail, 500), cut(e.Result, 200)
	body, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	_, _, err = b.store.PutRecord(ctx, store.PutRecord{Record: store.Record{Kind: auditRecord, Name: e.ID, Body: body}})
	if err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	b.audit.mu.Lock()
	b.audit.writes++
	prune := b.audit.writes%pruneEvery == 0
	b.audit.mu.Unlock()
	if prune {
		return b.pruneAudit(ctx)
	}
	return nil
}

// Entries returns the log, newest first.
func (b *Book) Entries(ctx context.Context) ([]Entry, error) {
	records, err := b.store.Records(ctx, auditRecord)
	if err != nil {
		return nil, fmt.Errorf("audit: %w", err)
	}
	entries := make([]Entry, 0, len(records))
	for _, r := range records {
		e, err := decode[Entry](r)
		if err != nil {
			return nil, err
		}
		entries = append(entries, e)
	}
	slices.SortFunc(entries, func(x, y Entry) int { return strings.Compare(y.ID, x.ID) })
	return entries, nil
}

func (b *Book) pruneAudit(ctx context.Context) error {
	records, err := b.store.Records(ctx, auditRecord)
	if err != nil || len(records) <= MaxAudit {
		return err
	}
	slices.SortFunc(records, func(x, y store.Record) int { return strings.Compare(x.Name, y.Name) })
	for _, r := range records[:len(records)-MaxAudit] {
		r.Body = nil
		// Another process may have been faster.
		_, _, _ = b.store.PutRecord(ctx, store.PutRecord{Record: r})
	}
	return nil
}

func cut(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	return strings.ToValidUTF8(text[:limit], "") + "…"
}
