package access

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// Limits of the audit log. Successful actions are kept by age, regardless of refusals. Only beyond MaxAudit entries
// the oldest ones of the identity with the most entries are deleted. The newest MaxRefused refusals are kept.
const (
	AuditAge   = 400 * 24 * time.Hour
	MaxAudit   = 50000
	MaxRefused = 2000
)

const (
	collapseFor  = time.Minute // a refusal that is repeated within this time is counted
	maxCollapsed = 1000        // refusals that are counted at the same time
	pruneEvery   = 250         // entries written between signals to prune the log
	auditPage    = 500         // entries read at a time
	// auditDisorder is more than the time from when an entry gets its id, with the request, until it is written.
	auditDisorder = 10 * time.Minute
)

// Entry is one line of the audit log: what an operator did or tried to do.
type Entry struct {
	ID     string    `json:"id"`
	At     time.Time `json:"at"`
	Who    string    `json:"who"`      // a name, for people
	WhoID  string    `json:"identity"` // see Identity.ID
	Via    string    `json:"via"`
	Role   Role      `json:"role"`
	Action string    `json:"action"` // e.g. "tasks.cancel"
	Target string    `json:"target,omitempty"`
	Detail string    `json:"detail,omitempty"`
	Result string    `json:"result"` // "ok", or the error
	// Times is, for a refusal, how often it was repeated within a minute.
	Times   int    `json:"times,omitempty"`
	Request string `json:"request_id,omitempty"`
	Address string `json:"address,omitempty"`
}

// By reports whether an identity, given by id or name, did it.
func (e Entry) By(who string) bool { return who == e.WhoID || who == e.Who }

func (e Entry) refused() bool { return e.Result != "ok" && e.Result != "" }

type auditor struct {
	mu       sync.Mutex
	repeated map[refusal]*repeats
	written  atomic.Int64
	grown    chan struct{}
}

// refusal identifies refusals that count as the same.
type refusal struct{ who, via, action, result, address string }

type repeats struct {
	last  Entry
	times int
}

// Record appends an entry, as a record that never changes. The id must be new; ids sort by time. A refusal that
// repeats another is counted, and written with its count after the minute is over.
func (b *Book) Record(ctx context.Context, id store.ID, e Entry) error {
	e.ID, e.At = id.String(), time.Now().UTC().Truncate(time.Millisecond)
	e.Target, e.Detail, e.Result = cut(e.Target, 200), cut(e.Detail, 500), cut(e.Result, 200)
	if e.refused() && b.repeats(e) {
		return nil
	}
	return b.append(ctx, e)
}

// repeats reports whether an entry repeats a refusal, and if so counts it.
func (b *Book) repeats(e Entry) bool {
	key := refusal{e.WhoID, e.Via, e.Action, e.Result, e.Address}
	b.audit.mu.Lock()
	defer b.audit.mu.Unlock()
	if seen := b.audit.repeated[key]; seen != nil {
		seen.last = e
		seen.times++
		return true
	}
	if len(b.audit.repeated) >= maxCollapsed {
		key = refusal{action: "others", result: e.Result}
		if seen := b.audit.repeated[key]; seen != nil {
			seen.last, seen.times = e, seen.times+1
			return true
		}
	}
	if b.audit.repeated == nil {
		b.audit.repeated = map[refusal]*repeats{}
	}
	b.audit.repeated[key] = &repeats{}
	time.AfterFunc(collapseFor, func() { b.tellRepeats(key) })
	return false
}

func (b *Book) tellRepeats(key refusal) {
	b.audit.mu.Lock()
	seen := b.audit.repeated[key]
	delete(b.audit.repeated, key)
	b.audit.mu.Unlock()
	if seen.times == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	seen.last.Times = seen.times
	_ = b.append(ctx, seen.last) // the first one has been written
}

func (b *Book) append(ctx context.Context, e Entry) error {
	body, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	_, _, err = b.store.PutRecord(ctx, store.PutRecord{Record: store.Record{Kind: auditRecord, Name: e.ID, Body: body}})
	if err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	if b.audit.written.Add(1)%pruneEvery == 0 {
		select {
		case b.audit.grown <- struct{}{}:
		default: // the log is to be pruned already
		}
	}
	return nil
}

// AuditGrown signals that so many entries were written that the log must be pruned.
func (b *Book) AuditGrown() <-chan struct{} { return b.audit.grown }

// EntryFilter selects entries of the audit log.
type EntryFilter struct {
	Who   string    // only those of this identity, by id or name; empty means all
	Since time.Time // only those from then on
	Limit int       // maximum number of entries; 0 means all
}

// Entries returns entries of the log, newest first. It reads the log page by page, and no further than it has to.
func (b *Book) Entries(ctx context.Context, f EntryFilter) (entries []Entry, err error) {
	for page := (store.RecordFilter{Kind: auditRecord, Backward: true, Limit: auditPage}); ; {
		read, err := b.store.Records(ctx, page)
		if err != nil {
			return nil, fmt.Errorf("audit: %w", err)
		}
		for _, r := range read {
			e, err := decode[Entry](r)
			if err != nil {
				return nil, err
			}
			if e.At.Before(f.Since.Add(-auditDisorder)) {
				return entries, nil
			}
			if (f.Who == "" || e.By(f.Who)) && !e.At.Before(f.Since) {
				entries = append(entries, e)
			}
			if len(entries) == f.Limit && f.Limit > 0 {
				return entries, nil
			}
		}
		if len(read) < auditPage {
			return entries, nil
		}
		page.Before = read[len(read)-1].Name
	}
}

// PruneAudit deletes entries beyond the limits of the log. It reads the whole log, page by page.
func (b *Book) PruneAudit(ctx context.Context) error {
	var records []store.Record // without bodies
	var entries []Entry        // only what surplus needs
	for page := (store.RecordFilter{Kind: auditRecord, Limit: auditPage}); ; {
		read, err := b.store.Records(ctx, page)
		if err != nil {
			return fmt.Errorf("audit: %w", err)
		}
		if len(read) == 0 {
			break
		}
		page.After = read[len(read)-1].Name
		for _, r := range read {
			e, err := decode[Entry](r)
			if err != nil {
				return err
			}
			r.Body = nil
			records = append(records, r)
			entries = append(entries, Entry{At: e.At, WhoID: e.WhoID, Result: e.Result})
		}
	}
	for _, i := range surplus(entries, time.Now()) {
		// Another process may have deleted it already.
		_, _, _ = b.store.PutRecord(ctx, store.PutRecord{Record: records[i]})
	}
	return nil
}

// surplus returns the indexes of the entries to delete. The log must be in order of time.
func surplus(log []Entry, now time.Time) (gone []int) {
	refused, kept := 0, map[string][]int{}
	total := 0
	for i := len(log) - 1; i >= 0; i-- {
		switch e := log[i]; {
		case now.Sub(e.At) > AuditAge:
			gone = append(gone, i)
		case e.refused():
			if refused++; refused > MaxRefused {
				gone = append(gone, i)
			}
		default:
			kept[e.WhoID] = append(kept[e.WhoID], i) // newest first
			total++
		}
	}
	for ; total > MaxAudit; total-- {
		most := ""
		for who, of := range kept {
			if len(of) > len(kept[most]) {
				most = who
			}
		}
		last := len(kept[most]) - 1
		gone, kept[most] = append(gone, kept[most][last]), kept[most][:last]
	}
	return gone
}

func cut(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	return strings.ToValidUTF8(text[:limit], "") + "…"
}
