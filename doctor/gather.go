package doctor

import (
	"context"
	"errors"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/internal/lifecycle"
	"github.com/tuskqueue/tusk/internal/tend"
	"github.com/tuskqueue/tusk/server/herald"
	"github.com/tuskqueue/tusk/store"
)

// Gather reads what Examine needs for the same options. Failed reads become errors in the facts.
func Gather(ctx context.Context, client *tusk.Client, o Options) Facts {
	f := Facts{Version: tusk.Version()}
	s := client.Store()
	look := f.pooled(s)
	look()
	if c, ok := store.As[store.Checker](s); ok {
		f.Warnings, f.Check = c.Check(ctx)
	}
	if f.Check == nil {
		f.Check = checkSchema(ctx, s)
	}
	look()
	if e, ok := store.As[store.Examiner](s); ok {
		asked := time.Now()
		f.Health, f.HealthErr = e.Examine(ctx)
		f.Local = asked.Add(time.Since(asked) / 2).Round(0)
		look()
	} else {
		f.Unknown, f.Local = true, time.Now()
	}
	f.ReadErr = f.read(ctx, client, o.Complete())
	look()
	return f
}

// pooled returns a function that checks this process's pool. Gather calls it several times.
func (f *Facts) pooled(s store.Store) (look func()) {
	pool, ok := store.As[store.Connected](s)
	if !ok {
		return func() {}
	}
	before, full := pool.Connections().Waits, false
	return func() {
		now := pool.Connections()
		full = full || now.Used >= now.Most
		f.Pool, f.Exhausted = now.Most, full && now.Waits > before
	}
}

// checkSchema checks the schema of engines without a check of their own.
func checkSchema(ctx context.Context, s store.Store) error {
	m, ok := store.As[store.Migrator](s)
	if !ok {
		return nil
	}
	steps, err := m.Migrations(ctx)
	if err != nil || len(steps) == 0 {
		return err
	}
	switch {
	case steps[0].AppliedAt.IsZero():
		return store.ErrSchemaMissing
	case steps[len(steps)-1].AppliedAt.IsZero():
		return store.ErrSchemaOld
	}
	return nil
}

func (f *Facts) read(ctx context.Context, client *tusk.Client, o Options) (err error) {
	var problems [7]error
	f.Queues, f.Workers, problems[0] = client.QueuesAndWorkers(ctx)
	f.Schedules, problems[1] = client.Schedules(ctx)
	served, err := client.Store().Records(ctx, store.RecordFilter{Kind: "endpoint"})
	f.Served, problems[2] = map[string]bool{}, err
	for _, r := range served {
		f.Served[r.Name] = true
	}
	f.Receivers, problems[3] = herald.Receivers(ctx, client.Store())
	f.PutOff, problems[4] = putOff(ctx, client)
	f.Endpoints, problems[5] = herald.Endpoints(ctx, client.Store())
	f.Running, problems[6] = running(ctx, client.Store(), f.now().Add(-o.Running))
	return errors.Join(problems[:]...)
}

// mostRunning is how many running tasks are looked at.
const mostRunning = 10 * store.MaxPage

// running finds running tasks that were enqueued before a time: only these can have begun before it.
func running(ctx context.Context, s store.Reader, until time.Time) (found []store.Task, err error) {
	f := store.Filter{States: []store.State{store.Running}, Until: until, NoArgs: true, Limit: store.MaxPage}
	for len(found) < mostRunning {
		page, err := s.List(ctx, f)
		if found = append(found, page...); err != nil || len(page) < f.Limit {
			return found, err
		}
		f.Before = page[len(page)-1].ID
	}
	return found, nil
}

// putOff finds tasks that are postponed until a worker has a handler for them. It checks only the
// first kinds.
func putOff(ctx context.Context, client *tusk.Client) (found []store.ErrorGroup, err error) {
	kinds, err := client.Store().Records(ctx, store.RecordFilter{Kind: tend.StrangerKind})
	for _, kind := range kinds[:min(len(kinds), 2*mostNamed)] {
		groups, err := client.Errors(ctx, store.ErrorFilter{Kind: kind.Name})
		if err != nil {
			return nil, err
		}
		for _, g := range groups {
			if g.Fingerprint == lifecycle.StrangerPrint(kind.Name) && g.Waiting > 0 {
				found = append(found, g)
			}
		}
	}
	return found, err
}
