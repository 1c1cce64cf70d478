package mysql_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/mysql"
	"github.com/tuskqueue/tusk/store/mysql/mysqltest"
)

// The server's error about a full table is explained once, however many rooms it passes through, and says what to do.
func TestAFullTableIsExplainedOnce(t *testing.T) {
	s, err := mysql.Open(t.Context(), mysqltest.Database(t))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	c, err := s.DB().Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, statement := range []string{"set max_heap_table_size = 16384",
		"create table small (t char(250)) engine = memory", "insert into small values ('x')"} {
		if _, err := c.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	for err == nil {
		_, err = c.ExecContext(t.Context(), "insert into small select * from small")
	}
	told := mysql.Explain(mysql.Explain(err))
	if !errors.Is(told, store.ErrFull) || strings.Count(told.Error(), "free some space") != 1 {
		t.Error(told)
	}
}
