package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/tuskqueue/tusk/store"
)

var _ store.Checker = (*Store)(nil)

// Check implements store.Checker.
func (s *Store) Check(ctx context.Context) (warnings []string, err error) {
	if warnings, err = s.checkServer(ctx); err == nil {
		err = s.checkSchema(ctx)
	}
	if err == nil {
		err = s.mayWork(ctx)
	}
	if err == nil {
		var more []string
		more, err = s.checkPath(ctx)
		warnings = append(warnings, more...)
	}
	if err == nil {
		var more []string
		more, err = s.checkRights(ctx)
		warnings = append(warnings, more...)
	}
	if err != nil {
		return warnings, fmt.Errorf("check: %w", translate(err))
	}
	return warnings, nil
}

func (s *Store) checkServer(ctx context.Context) (warnings []string, err error) {
	var version, connections int
	var replica, pooled bool
	var fsync, fullPages, commit, dataSync, isolation, readOnly string
	var pid uint32
	c, err := s.acquire(ctx)
	if err != nil {
		return nil, err
	}
	defer c.Release()
	if err := c.QueryRow(ctx, s.sql["server"]).Scan(&version, &replica, &fsync, &fullPages, &commit, &dataSync, &isolation,
		&connections, &pid, &readOnly); err != nil {
		return nil, err
	}
	pooled = pid != c.Conn().PgConn().PID()
	switch {
	case version < 140000:
		return nil, fmt.Errorf("PostgreSQL %d is too old: want 14 or later", version/10000)
	case replica:
		return nil, fmt.Errorf("%w: this server is a replica: name the primary", store.ErrReadOnly)
	case readOnly == "on":
		return nil, fmt.Errorf("%w: default_transaction_read_only is on: set it to off for this role and database",
			store.ErrReadOnly)
	case isolation != "read committed":
		return nil, fmt.Errorf("default_transaction_isolation is %q: want read committed", isolation)
	}
	for _, setting := range [][4]string{
		{"fsync", fsync, "on", "a crash of the machine may lose or corrupt everything"},
		{"full_page_writes", fullPages, "on", "a crash of the machine may corrupt tables"},
		{"synchronous_commit", commit, "on", "a crash of the server may lose acknowledged tasks"},
		{"data_sync_retry", dataSync, "off", "a failed write to the disk may go unnoticed"},
	} {
		if bad := map[string]string{"on": "off", "off": "on"}[setting[2]]; setting[1] == bad {
			warnings = append(warnings, fmt.Sprintf("%s is %s: %s; set it to %s", setting[0], setting[1], setting[3],
				setting[2]))
		}
	}
	if most := int(s.pool.Config().MaxConns) + spareConns + 2; most > connections {
		warnings = append(warnings, fmt.Sprintf(
			"this process may open %d connections, the server takes %d: lower pool_max_conns or raise max_connections", most,
			connections))
	}
	if pooled {
		warnings = append(warnings,
			"a pooler stands between: workers poll, and a killed worker is seen by its heartbeat alone")
	}
	return warnings, nil
}

// checkPath warns about schemas in which other roles could create functions.
func (s *Store) checkPath(ctx context.Context) (warnings []string, err error) {
	var open string
	if err := s.scan(ctx, "open_schemas", []any{&open}); err != nil {
		return nil, err
	}
	if open != "" {
		warnings = append(warnings, fmt.Sprintf("anybody may create functions in schema %s, which this role looks into: "+
			"revoke create on schema %s from public, or use a role that tusk db roles makes", open, open))
	}
	return warnings, nil
}

// checkRights warns if this role lacks a right that workers or the leader use.
func (s *Store) checkRights(ctx context.Context) (warnings []string, err error) {
	var grants string
	if err := s.scan(ctx, "missing_rights", []any{&grants}); err != nil {
		return nil, err
	}
	if grants != "" {
		warnings = append(warnings,
			"this role lacks rights that workers or the leader use: run tusk db roles --apply, or "+grants)
	}
	return warnings, nil
}

// checkSchema fails if this program does not work with the schema. It works with a newer
// schema, unless the schema says otherwise.
func (s *Store) checkSchema(ctx context.Context) error {
	all, err := s.Migrations(ctx)
	if err != nil {
		return err
	}
	functions, newest := all[len(all)-1], all[len(all)-2]
	switch {
	case all[0].AppliedAt.IsZero():
		return store.ErrSchemaMissing
	case newest.AppliedAt.IsZero():
		return store.ErrSchemaOld
	}
	if err := s.checkOldest(ctx, newest.Version); err != nil {
		return err
	}
	if functions.AppliedAt.IsZero() {
		return fmt.Errorf("%w: it lacks the functions of this program, which are those of schema %s",
			store.ErrSchemaOld, s.program)
	}
	return nil
}

// checkOldest fails if the tables are too new for a program that knows versions up to the
// given one.
func (s *Store) checkOldest(ctx context.Context, version int64) error {
	var oldest int64
	if err := s.scan(ctx, "oldest_program", []any{&oldest}); err != nil {
		if errors.Is(err, pgx.ErrNoRows) {
			return store.ErrSchemaForeign
		}
		return err
	}
	if version < oldest {
		return fmt.Errorf("%w: it wants version %d, this program has %d", store.ErrSchemaNew, oldest, version)
	}
	return nil
}
