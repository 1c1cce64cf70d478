package postgres_test

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/postgres"
	"github.com/tuskqueue/tusk/store/postgres/pgtest"
)

// An error of the server is translated once, however many layers it passes through, and says what to do.
func TestErrorsSayOnceWhatToDo(t *testing.T) {
	c, err := pgx.Connect(t.Context(), plain(pgtest.DSN(t)))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(t.Context())
	for statement, says := range map[string]string{
		"prepare twice as select 1; prepare twice as select 1": "default_query_exec_mode=cache_describe",
		"execute nothing": "default_query_exec_mode=cache_describe",
		"begin read only; create table written (n int)":                         store.ErrReadOnly.Error(),
		"do $$ begin raise 'no space left' using errcode = 'disk_full'; end $$": "free some space",
	} {
		_, err := c.PgConn().Exec(t.Context(), statement).ReadAll()
		text := postgres.Translate(postgres.Translate(err)).Error()
		if n := strings.Count(text, says); n != 1 {
			t.Errorf("%s: %s\nhas %q %d times", statement, text, says, n)
		}
		if _, err := c.PgConn().Exec(t.Context(), "rollback").ReadAll(); err != nil {
			t.Fatal(err)
		}
	}
}
