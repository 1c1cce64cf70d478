package postgres

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/tuskqueue/tusk/store"
)

var _ store.Granter = (*Store)(nil)

// Roles implements store.Granter.
func (s *Store) Roles(ctx context.Context, prefix string, apply bool) ([]string, error) {
	if !schemaName.MatchString(prefix) {
		return nil, fmt.Errorf("roles: prefix %q: want lower-case letters, digits and underscores, at most 48", prefix)
	}
	text := strings.NewReplacer("{schema}", s.schema, "{role}", prefix).Replace(s.sql["roles"])
	statements := strings.Split(text, ";;\n")
	for i := range statements {
		statements[i] = strings.TrimSuffix(strings.TrimSpace(statements[i]), ";;")
	}
	if !apply {
		return statements, nil
	}
	err := s.ownTx(ctx, pgx.TxOptions{}, func(tx pgx.Tx) error {
		for _, text := range statements {
			if _, err := tx.Exec(ctx, text); err != nil {
				return fmt.Errorf("%w\n%s", translate(err), text)
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("roles: %w", err)
	}
	return statements, nil
}
