package doctor_test

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/doctor"
	"github.com/tuskqueue/tusk/internal/lifecycle"
	"github.com/tuskqueue/tusk/internal/tend"
	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/enginetest"
	"github.com/tuskqueue/tusk/store/postgres"
	"github.com/tuskqueue/tusk/store/postgres/pgtest"
)

func TestMain(m *testing.M) { enginetest.Main(m) }

type database interface {
	store.Store
	store.Migrator
	Close() error
}

// patient is a database with a problem, or one that is about to get one.
type patient struct {
	*testing.T
	*tusk.Client
	dsn     string
	options doctor.Options
	change  func(*doctor.Facts)
}

func (p *patient) must(err error) {
	p.Helper()
	if err != nil {
		p.Fatal(err)
	}
}

func (p *patient) open(d database, err error) {
	p.Helper()
	p.must(err)
	p.Cleanup(func() { d.Close() })
	p.Client, err = tusk.NewClient(d, &tusk.ClientConfig{Logger: slog.New(slog.DiscardHandler)})
	p.must(err)
}

func (p *patient) migrate(version int64) {
	p.Helper()
	m, _ := store.As[store.Migrator](p.Store())
	_, err := m.Migrate(p.Context(), version)
	p.must(err)
}

func (p *patient) lead() {
	p.Helper()
	_, err := p.Store().Lead(p.Context(), store.Candidate{ID: tusk.NewID(), TTL: time.Hour})
	p.must(err)
}

func (p *patient) work(version, queue string) store.ID {
	p.Helper()
	id := tusk.NewID()
	w := store.Worker{ID: id, Queues: []string{queue}, Kinds: []string{"k"}, Concurrency: 1, Version: version}
	_, err := p.Store().Extend(p.Context(), store.Beat{Worker: w, TTL: time.Hour})
	p.must(err)
	return id
}

func (p *patient) add(queue string) {
	p.Helper()
	_, err := p.Enqueue(p.Context(), tusk.RawArgs{Name: "k"}, &tusk.Options{Queue: queue})
	p.must(err)
}

// claim has a worker claim a task.
func (p *patient) claim(worker store.ID, queue string) store.Task {
	p.Helper()
	for {
		tasks, err := p.Store().Claim(p.Context(), store.ClaimRequest{Worker: worker, Queues: []string{queue}, Limit: 1,
			Token: store.NewToken()})
		if p.must(err); len(tasks) > 0 {
			return tasks[0]
		}
	}
}

// putOff has a worker without the right handler put a task off.
func (p *patient) putOff(queue string) {
	p.Helper()
	w := store.Worker{ID: tusk.NewID(), Queues: []string{queue}, Kinds: []string{"other"}, Concurrency: 1,
		Version: tusk.Version()}
	_, err := p.Store().Extend(p.Context(), store.Beat{Worker: w, TTL: time.Hour})
	p.must(err)
	task := p.claim(w.ID, queue)
	_, err = tend.NoteStranger(p.Context(), p.Store(), "k")
	p.must(err)
	_, err = p.Store().Finish(p.Context(), []store.Outcome{lifecycle.After(&task, lifecycle.Settings{},
		lifecycle.End{Err: &lifecycle.UnknownKindError{Noted: true}}, 0)})
	p.must(err)
}

func (p *patient) postgres(dsn string) *patient {
	p.Helper()
	p.dsn = dsn
	s, err := postgres.Open(p.Context(), dsn)
	p.open(s, err)
	return p
}

// healthy is a PostgreSQL database without problems.
func (p *patient) healthy(settings ...string) *patient {
	p.Helper()
	p.postgres(enginetest.PostgresDSN(p, settings...)).lead()
	return p
}

// pooled is a healthy database behind a pgbouncer.
func (p *patient) pooled(mode string) {
	p.Helper()
	s, err := postgres.Open(p.Context(), pgtest.Bouncer(p, p.healthy().dsn, mode, 3))
	p.open(s, err)
}

// deliver stores the state of an alert or a hook.
func (p *patient) deliver(kind, name, body string) {
	p.Helper()
	for _, r := range []store.Record{{Kind: strings.TrimSuffix(kind, "_state"), Name: name, Body: []byte("{}")},
		{Kind: kind, Name: name, Body: []byte(body)}} {
		_, _, err := p.Store().PutRecord(p.Context(), store.PutRecord{Record: r})
		p.must(err)
	}
}

func (p *patient) examine() []doctor.Finding {
	p.Helper()
	facts := doctor.Gather(p.Context(), p.Client, p.options)
	if p.change != nil {
		p.change(&facts)
	}
	return doctor.Examine(facts, p.options)
}
