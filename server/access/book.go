package access

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/tuskqueue/tusk/server/shelf"
	"github.com/tuskqueue/tusk/store"
)

// Kinds of records that store access data.
const (
	tokenRecord   = "token"
	useRecord     = "token-use"
	userRecord    = "user"
	sessionRecord = "session"
	auditRecord   = "audit"
)

// refresh is how long a revocation takes to reach every process.
const refresh = 2 * time.Second

// betweenReads is the shortest time between two reads caused by unknown names.
const betweenReads = 200 * time.Millisecond

// Errors that a caller can act on.
var (
	ErrNotFound = errors.New("not found")
	ErrInvalid  = errors.New("invalid")
)

// Book stores tokens, users, sessions and the audit log as records of a store.
type Book struct {
	store store.Recorder
	audit auditor

	mu    sync.Mutex
	cache map[string]page
	uses  map[string]time.Time // when the use of a token was last recorded

	hashing chan struct{} // held while a password is compared
	asking  chan struct{} // held while records are read because of an unknown name
}

type page struct {
	at     time.Time
	byName map[string]store.Record
}

// NewBook returns a book.
func NewBook(s store.Recorder) *Book {
	return &Book{store: s, cache: map[string]page{}, uses: map[string]time.Time{},
		hashing: make(chan struct{}, max(1, runtime.NumCPU()/2)), asking: make(chan struct{}, 1),
		audit: auditor{grown: make(chan struct{}, 1)}}
}

// find returns a record, at most refresh old. It also finds a record that another process has just created.
func (b *Book) find(ctx context.Context, kind, name string) (store.Record, error) {
	p, err := b.page(ctx, kind, refresh)
	if err != nil {
		return store.Record{}, err
	}
	if r, ok := p.byName[name]; ok {
		return r, nil
	}
	return b.findNow(ctx, kind, name)
}

// findNow returns the current record. Concurrent callers share one read.
func (b *Book) findNow(ctx context.Context, kind, name string) (store.Record, error) {
	asked := time.Now()
	select {
	case b.asking <- struct{}{}:
		defer func() { <-b.asking }()
	case <-ctx.Done():
		return store.Record{}, ctx.Err()
	}
	b.mu.Lock()
	p := b.cache[kind]
	b.mu.Unlock()
	if !p.at.After(asked) {
		select {
		case <-time.After(betweenReads - time.Since(p.at)):
		case <-ctx.Done():
			return store.Record{}, ctx.Err()
		}
		var err error
		if p, err = b.page(ctx, kind, 0); err != nil {
			return store.Record{}, err
		}
	}
	r, ok := p.byName[name]
	if !ok {
		return store.Record{}, ErrNotFound
	}
	return r, nil
}

func (b *Book) page(ctx context.Context, kind string, age time.Duration) (page, error) {
	b.mu.Lock()
	p, ok := b.cache[kind]
	b.mu.Unlock()
	if ok && time.Since(p.at) < age {
		return p, nil
	}
	p = page{at: time.Now(), byName: map[string]store.Record{}}
	records, err := b.store.Records(ctx, store.RecordFilter{Kind: kind})
	if err != nil {
		return p, err
	}
	for _, r := range records {
		p.byName[r.Name] = r
	}
	b.mu.Lock()
	b.cache[kind] = p
	b.mu.Unlock()
	return p, nil
}

func (b *Book) forget(kind string) {
	b.mu.Lock()
	delete(b.cache, kind)
	b.mu.Unlock()
}

// change is shelf.Change for a kind of which the book keeps a page.
func change[T any](
	ctx context.Context, b *Book, kind, name string, edit func(doc *T, exists bool) (keep bool, err error),
) error {
	defer b.forget(kind)
	return shelf.Change(ctx, b.store, kind, name, edit)
}

func decode[T any](r store.Record) (doc T, err error) {
	if err = json.Unmarshal(r.Body, &doc); err != nil {
		err = fmt.Errorf("%s %s: %w", r.Kind, r.Name, err)
	}
	return doc, err
}
