package mysql

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/tuskqueue/tusk/store"
)

// The settings that matter in the sessions of a user's pool. A time zone does not matter, nor do the parts of a mode
// about quotes, backslashes and operators.
const sessionVariables = `show session variables where variable_name in ('transaction_isolation', 'tx_isolation',
	'autocommit', 'sql_mode', 'sql_select_limit', 'max_statement_time', 'max_execution_time', 'max_allowed_packet',
	'innodb_lock_wait_timeout')`

func (s *Store) sessionSettings(ctx context.Context) (map[string]string, error) {
	conn, err := s.conn(ctx)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	return variables(ctx, conn, sessionVariables)
}

const noLimit = "18446744073709551615"

// checkSession rejects sessions in which statements would have another meaning.
func checkSession(is map[string]string) error {
	refuse := func(what, fix string) error {
		return fmt.Errorf("%w: %s: add %s to the database URL, or to the DSN of the pool", store.ErrUnsupported, what, fix)
	}
	if is["autocommit"] == "OFF" {
		return refuse("autocommit is 0 in the sessions of the pool, so that each statement begins a transaction and none "+
			"ends it", "autocommit=1")
	}
	if limit := is["sql_select_limit"]; limit != noLimit && limit != "" {
		return refuse("sql_select_limit is "+limit+" in the sessions of the pool, so that what is read lacks rows",
			"sql_select_limit=DEFAULT")
	}
	for _, mode := range []string{"EMPTY_STRING_IS_NULL", "ORACLE"} {
		if hasMode(is, mode) {
			return refuse("sql_mode has "+mode+" in the sessions of the pool, which gives statements another meaning",
				strictMode)
		}
	}
	return nil
}

// strictMode is a mode as it is written in a DSN.
const strictMode = "sql_mode=%27STRICT_TRANS_TABLES%27"

func hasMode(is map[string]string, mode string) bool {
	return slices.Contains(strings.Split(is["sql_mode"], ","), mode)
}

// sessionWeaknesses says which settings of a pool's sessions weaken the contract.
func sessionWeaknesses(is map[string]string) (all []string) {
	if !hasMode(is, "STRICT_TRANS_TABLES") && !hasMode(is, "STRICT_ALL_TABLES") {
		all = append(all, "sql_mode has no STRICT_TRANS_TABLES in the sessions of the pool: values that do not fit are cut "+
			"without a word; add "+strictMode+" to the DSN")
	}
	for _, limit := range []struct{ name, unit string }{{"max_statement_time", "s"}, {"max_execution_time", "ms"}} {
		if value := is[limit.name]; strings.Trim(value, "0.") != "" {
			all = append(all, limit.name+" is "+value+" "+limit.unit+" in the sessions of the pool: what takes longer, such "+
				"as to prune or to migrate, fails each time; add "+limit.name+"=0 to the DSN")
		}
	}
	if packet, err := strconv.Atoi(is["max_allowed_packet"]); err == nil && packet < leastPacket {
		all = append(all, fmt.Sprintf("max_allowed_packet is %d: larger args and outputs are refused, and many small ones "+
			"take more round trips; set it to %d or more on the server", packet, leastPacket))
	}
	return all
}
