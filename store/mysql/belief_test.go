package mysql_test

import (
	"testing"

	"github.com/tuskqueue/tusk/store/mysql"
	"github.com/tuskqueue/tusk/store/storetest"
)

// No call depends on what the optimizer knows of the tables.
func TestWhatACallReadsDoesNotDependOnStatistics(t *testing.T) {
	s := fresh(t)
	for _, table := range tables(t, s) {
		exec(t, s, "alter table "+table+" stats_persistent = 1, stats_auto_recalc = 0")
	}
	reopen := func() {
		for _, table := range tables(t, s) {
			exec(t, s, "flush tables "+table)
		}
	}
	storetest.Costs(t, storetest.Meter{
		Store: s,
		Read:  func() int64 { return rowsRead(t, s) },
		Learn: func() {
			for _, table := range tables(t, s) {
				exec(t, s, "analyze table "+table)
			}
		},
		Beliefs: []storetest.Belief{
			{Name: "believes in a thousand times as many", Hold: func() {
				exec(t, s,
					`update mysql.innodb_table_stats
					set n_rows = 1000 * n_rows, clustered_index_size = 1000 * clustered_index_size,
						sum_of_other_index_sizes = 1000 * sum_of_other_index_sizes
					where database_name = database()`)
				exec(t, s, "update mysql.innodb_index_stats set stat_value = 1000 * stat_value where database_name = database()")
				reopen()
			}},
			{Name: "believes that there is nothing", Hold: func() {
				exec(t, s, `update mysql.innodb_table_stats set n_rows = 0, clustered_index_size = 1, sum_of_other_index_sizes = 1
					where database_name = database()`)
				exec(t, s, "update mysql.innodb_index_stats set stat_value = 1 where database_name = database()")
				reopen()
			}},
		},
	}, 10_000, 500)
}

func tables(t *testing.T, s *mysql.Store) (names []string) {
	t.Helper()
	rows, err := s.DB().Query(
		"select table_name from information_schema.tables where table_schema = database() and engine = 'InnoDB'")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			t.Fatal(err)
		}
		names = append(names, name)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return names
}

// rowsRead returns how many rows and index entries all connections have read.
func rowsRead(t *testing.T, s *mysql.Store) int64 {
	t.Helper()
	from := "performance_schema"
	if mysql.IsMariaDB(t, s) {
		from = "information_schema"
	}
	return number(t, s, "select cast(sum(variable_value) as signed) from "+from+
		`.global_status where variable_name like 'handler\_read%'`)
}
