package mysql

import (
	"context"
	"database/sql"
	"strings"
)

// missingProcedures returns those procedures of the newest schema, with their
// texts, that the database does not have.
func (s *Store) missingProcedures(ctx context.Context) (map[string]string, error) {
	missing, err := ownProcedures()
	if err != nil {
		return nil, err
	}
	err = s.query(ctx, func(rows *sql.Rows) error {
		var name string
		err := rows.Scan(&name)
		delete(missing, strings.ToLower(name))
		return err
	},
		`select routine_name from information_schema.routines where routine_schema = database() and routine_name like 'tusk\_%'`)
	return missing, err
}

// makeProcedures makes the procedures that are missing from a database that was
// restored without them.
func (s *Store) makeProcedures(ctx context.Context) error {
	missing, err := s.missingProcedures(ctx)
	if err != nil {
		return err
	}
	for _, text := range missing {
		if _, err := s.db.ExecContext(ctx, text); err != nil {
			return err
		}
	}
	return nil
}

// ownProcedures returns the texts of the procedures that the newest schema has, by
// their names.
func ownProcedures() (map[string]string, error) {
	procedures := map[string]string{}
	ups, err := schema.Ups()
	for _, up := range ups {
		for _, part := range strings.Split(up, "-- +goose StatementBegin\n")[1:] {
			text, _, _ := strings.Cut(part, "-- +goose StatementEnd")
			name, _, _ := strings.Cut(strings.TrimPrefix(text, "create procedure "), "(")
			procedures[name] = strings.TrimSpace(text)
		}
	}
	return procedures, err
}
