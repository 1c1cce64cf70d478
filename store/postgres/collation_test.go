package postgres_test

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/tuskqueue/tusk/store/postgres"
)

// Columns of indexes and partition keys are listed separately from those of tables, because an expression can bring
// in another collation.
func TestTextIsComparedByItsBytes(t *testing.T) {
	_, pool := fresh(t)
	if _, err := pool.Exec(t.Context(), postgres.InFunctions(
		"insert into tusk.class values (1, 'short'); select tusk_fn.make_segment('task_99')")); err != nil {
		t.Fatal(err)
	}
	rows, err := pool.Query(t.Context(), `
		select 'column ' || a.attrelid::regclass || '.' || a.attname
		from pg_class c join pg_attribute a on a.attrelid = c.oid
		where c.relnamespace = 'tusk'::regnamespace and c.relkind in ('r', 'p') and a.attnum > 0 and not a.attisdropped
		  and a.attcollation not in (0, 'pg_catalog."C"'::regcollation)
		union all
		select 'index ' || i.indexrelid::regclass || ' column ' || o.n
		from pg_class c join pg_index i on i.indexrelid = c.oid cross join unnest(i.indcollation) with ordinality o(id, n)
		where c.relnamespace = 'tusk'::regnamespace and o.id not in (0, 'pg_catalog."C"'::regcollation)
		union all
		select 'partition key of ' || p.partrelid::regclass
		from pg_class c join pg_partitioned_table p on p.partrelid = c.oid cross join unnest(p.partcollation) o(id)
		where c.relnamespace = 'tusk'::regnamespace and o.id not in (0, 'pg_catalog."C"'::regcollation)
		order by 1`)
	if err != nil {
		t.Fatal(err)
	}
	found, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	for _, what := range found {
		t.Errorf("%s depends on the database's collation", what)
	}
	if n := number(t, pool, `select count(*) from pg_index i join pg_class c on c.oid = i.indexrelid
		where c.relnamespace = 'tusk'::regnamespace and 'pg_catalog."C"'::regcollation = any(i.indcollation)`); n < 20 {
		t.Errorf("%d indexes have text: the query does not find them", n)
	}
}
