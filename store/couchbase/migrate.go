package couchbase

import (
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/couchbase/gocb/v2"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/migrate"
)

// The statements of each version of the schema, one per line. They may be run twice.
//
//go:embed migrations/*.sql
var migrations embed.FS

// schema is the document that records when migrations were applied.
const schema = "schema"

// Migrate implements store.Migrator. A schema is never rolled back: a version below the current one is no error and
// does nothing.
func (s *Store) Migrate(ctx context.Context, version int64) ([]store.Migration, error) {
	all, err := s.Migrations(ctx)
	if err != nil {
		return nil, fmt.Errorf("migrate: %w", err)
	}
	var taken []store.Migration
	for i := range all {
		m := &all[i]
		if !m.AppliedAt.IsZero() || version >= 0 && m.Version > version {
			continue
		}
		for statement := range strings.SplitSeq(strings.TrimSuffix(m.SQL, ";\n"), ";\n") {
			if err := s.define(ctx, statement); err != nil {
				return taken, fmt.Errorf("migrate: %s: %w", statement, err)
			}
		}
		m.AppliedAt = time.Now().UTC().Truncate(time.Microsecond)
		if err := s.applied(ctx, m); err != nil {
			return taken, fmt.Errorf("migrate: %w", err)
		}
		taken = append(taken, *m)
	}
	return taken, nil
}

// The error codes of statements about a keyspace that the query service does not know yet. Statements that create
// scopes and collections return before it does. docs.couchbase.com: "SQL++ Error Codes".
const noKeyspace, noScope = 12003, 12021

// define runs a statement of the schema. It waits until the query service knows what earlier statements have created.
func (s *Store) define(ctx context.Context, statement string) error {
	limit, cancel := context.WithTimeout(ctx, s.learnWithin)
	defer cancel()
	for {
		_, err := ask[struct{}](s, statement, gocb.QueryOptions{Context: ctx, Adhoc: true, Timeout: s.queryTimeout})
		var of *gocb.QueryError
		if !errors.As(err, &of) || !slices.ContainsFunc(of.Errors, func(e gocb.QueryErrorDesc) bool {
			return e.Retry || e.Code == noKeyspace || e.Code == noScope
		}) {
			return err
		}
		if sleep(limit, 100*time.Millisecond) != nil {
			return fmt.Errorf("waited for the query service to know of the scope and its collections, for %v at most: "+
				"look whether its nodes are well, then run 'tusk migrate up' again, which goes on here: %w",
				s.learnWithin, err)
		}
	}
}

// applied records that a migration was applied. It waits for a node that does not know the new collection yet.
func (s *Store) applied(ctx context.Context, m *store.Migration) error {
	return until(ctx, func(try int) (bool, error) {
		_, err := s.meta.MutateIn(schema, []gocb.MutateInSpec{gocb.UpsertSpec(fmt.Sprintf("`%d`", m.Version),
			micros(m.AppliedAt), nil)},
			&gocb.MutateInOptions{Context: ctx, StoreSemantic: gocb.StoreSemanticsUpsert})
		if try < 300 && (unknown(err) || errors.Is(err, gocb.ErrCollectionNotFound)) {
			return false, nil
		}
		return true, err
	})
}

// Migrations implements store.Migrator.
func (s *Store) Migrations(ctx context.Context) ([]store.Migration, error) {
	taken := map[string]int64{}
	there, err := query[string](ctx, s, queryKeyspaces, args{"bucket": s.bucket, "scope": s.scope})
	if slices.Contains(there, "meta") { // the client would wait long for a collection that does not exist
		var raw []byte
		if raw, _, err = s.get(ctx, s.meta, schema); err == nil && raw != nil {
			err = json.Unmarshal(raw, &taken)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("migrations: %w: %w", store.ErrUnavailable, err)
	}
	all, err := migrate.Read(migrations)
	for i := range all {
		m := &all[i]
		m.AppliedAt, m.SQL = instant(taken[strconv.FormatInt(m.Version, 10)]), s.placed(m.SQL)
	}
	return all, err
}
