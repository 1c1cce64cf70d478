package mysql

import (
	"context"
	"database/sql"
	"fmt"
	"regexp"
	"strings"

	"github.com/tuskqueue/tusk/store"
)

var _ store.Granter = (*Store)(nil)

var roleName = regexp.MustCompile(`^[a-z_][a-z0-9_]{0,20}$`)

// Roles implements store.Granter. It grants rights table by table, because the database may have other tables.
// Procedures run with the rights of their caller.
func (s *Store) Roles(ctx context.Context, prefix string, apply bool) ([]string, error) {
	if !roleName.MatchString(prefix) {
		return nil, fmt.Errorf("roles: prefix %q: want lower-case letters, digits and underscores, at most 21", prefix)
	}
	tables, err := s.names(ctx,
		"select table_name from information_schema.tables where table_schema = database() and table_name like "+
			"'tusk|_%' escape '|' order by 1")
	if err != nil {
		return nil, wrap("roles", err)
	}
	procedures, err := s.names(ctx,
		"select routine_name from information_schema.routines where routine_schema = database() and routine_name like "+
			"'tusk|_%' escape '|' order by 1")
	if err != nil {
		return nil, wrap("roles", err)
	}
	database, err := s.names(ctx, "select database()")
	if err != nil {
		return nil, wrap("roles", err)
	}
	statements := roleStatements(prefix, database[0], tables, procedures)
	for _, text := range statements {
		if apply && err == nil {
			_, err = s.db.ExecContext(ctx, text)
		}
	}
	return statements, wrap("roles", err)
}

func roleStatements(prefix, database string, tables, procedures []string) (all []string) {
	quote := func(name string) string { return "`" + strings.ReplaceAll(name, "`", "``") + "`" }
	for _, role := range []string{"_migrate", "_work", "_read"} {
		all = append(all, "create role if not exists "+quote(prefix+role))
	}
	all = append(all,
		fmt.Sprintf(
			"grant select, insert, update, delete, create, alter, drop, index, execute, create routine, alter routine "+
				"on %s.* to %s", quote(database), quote(prefix+"_migrate")))
	for _, table := range tables {
		// Days are partitions, which are added and dropped while workers run.
		rights := "select, insert, update, delete, create, alter, drop"
		if table == "tusk_migration" {
			rights = "select"
		}
		at := quote(database) + "." + quote(table)
		all = append(all, fmt.Sprintf("grant %s on %s to %s", rights, at, quote(prefix+"_work")),
			fmt.Sprintf("grant select on %s to %s", at, quote(prefix+"_read")))
	}
	for _, procedure := range procedures {
		all = append(all, fmt.Sprintf("grant execute on procedure %s.%s to %s", quote(database), quote(procedure),
			quote(prefix+"_work")))
	}
	return all
}

func (s *Store) names(ctx context.Context, text string) (names []string, err error) {
	rows, err := s.db.QueryContext(ctx, text)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var name sql.NullString
		if err := rows.Scan(&name); err != nil {
			return nil, err
		}
		names = append(names, name.String)
	}
	return names, rows.Err()
}
