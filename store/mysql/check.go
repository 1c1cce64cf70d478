package mysql

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// Check implements store.Checker.
func (s *Store) Check(ctx context.Context) (warnings []string, err error) {
	if err := s.checkSchema(ctx); err != nil {
		return nil, wrap("check", err)
	}
	is, err := s.settings(ctx)
	if err != nil {
		return nil, wrap("check", err)
	}
	own, err := s.sessionSettings(ctx)
	if err != nil {
		return nil, wrap("check", err)
	}
	warnings = append(weaknesses(is), sessionWeaknesses(own)...)
	if most := s.db.Stats().MaxOpenConnections; most > 0 && s.spare == nil {
		warnings = append(warnings, fmt.Sprintf(
			"the pool has at most %d connections: while handlers hold all of them, beats and claims wait, and "+
				"workers may be taken for dead; set mysql.Options.Spare", most))
	}
	warnings = append(warnings, s.lostTasks(ctx)...)
	return warnings, wrap("check", checkSettings(is, s.oneNode))
}

// inspect checks the server once, before the store uses it.
func (s *Store) inspect(ctx context.Context) error {
	s.places.renew()
	s.leases.held = map[store.Token]*heldLease{}
	s.attendant = newAttendant(s)
	if err := s.readSession(ctx); err != nil {
		return explain(err)
	}
	var version, comment string
	if err := s.db.QueryRowContext(ctx, "select version(), @@version_comment").Scan(&version, &comment); err != nil {
		return explain(err)
	}
	if err := checkVersion(version, comment); err != nil {
		return err
	}
	is, err := s.settings(ctx)
	if err != nil {
		return explain(err)
	}
	if err := checkSettings(is, s.oneNode); err != nil {
		return err
	}
	s.galera = is["wsrep_on"] == "ON"
	return nil
}

var errNoInnoDB = fmt.Errorf("%w: InnoDB is switched off: start the server with it", store.ErrUnsupported)

// readSession finds out what the pool's connections can do, and reads the server's time.
func (s *Store) readSession(ctx context.Context) error {
	conn, err := s.conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	if now, err := serverTime(ctx, conn); err != nil {
		return err
	} else {
		s.places.learn(now)
	}
	is, err := variables(ctx, conn, sessionVariables)
	if err == nil {
		err = checkSession(is)
	}
	if err != nil {
		return err
	}
	if s.packet, err = strconv.Atoi(is["max_allowed_packet"]); err != nil {
		return fmt.Errorf("max_allowed_packet: %w", err)
	}
	lockWait, known := is["innodb_lock_wait_timeout"]
	if !known {
		return errNoInnoDB
	}
	wait, err := strconv.Atoi(lockWait)
	if err != nil {
		return fmt.Errorf("innodb_lock_wait_timeout: %w", err)
	}
	s.lockWait = time.Duration(wait) * time.Second
	s.isolated = cmp.Or(is["transaction_isolation"], is["tx_isolation"]) == "READ-COMMITTED"
	var one int
	rows, err := conn.QueryContext(ctx, "select ?; select ?", 1, 2)
	if codeOf(err) != 0 {
		return nil // then one statement at a time
	}
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := rows.Scan(&one); err != nil {
			return err
		}
	}
	s.multi = rows.NextResultSet()
	return rows.Err()
}

// serverTime reads the server's clock.
func serverTime(ctx context.Context, conn *sql.Conn) (now int64, err error) {
	err = conn.QueryRowContext(ctx, "select "+clock).Scan(&now)
	return now, err
}

// checkVersion rejects servers that are too old or only resemble MySQL.
func checkVersion(version, comment string) error {
	both := strings.ToLower(version + " " + comment)
	switch {
	case strings.Contains(both, "tidb"):
		return fmt.Errorf(
			"%w: TiDB (%s) takes FOR UPDATE SKIP LOCKED and locks nothing, so tasks would run twice: use MySQL or MariaDB",
			store.ErrUnsupported, version)
	case strings.Contains(both, "vitess"):
		return fmt.Errorf("%w: Vitess (%s) is not tested: use MySQL or MariaDB directly", store.ErrUnsupported, version)
	}
	number := strings.TrimPrefix(version, "5.5.5-") // the prefix with which old MariaDB servers greet
	major, minor := numbers(number)
	if strings.Contains(both, "mariadb") {
		if major < 10 || major == 10 && minor < 6 {
			return fmt.Errorf("%w: MariaDB %s is too old, it has no SKIP LOCKED: upgrade to 10.6 or newer",
				store.ErrUnsupported, number)
		}
		return nil
	}
	if major < 8 {
		return fmt.Errorf("%w: MySQL %s is too old, it has no SKIP LOCKED: upgrade to 8.0 or newer",
			store.ErrUnsupported, number)
	}
	return nil
}

func numbers(version string) (major, minor int) {
	parts := strings.SplitN(version, ".", 3)
	major, _ = strconv.Atoi(parts[0])
	if len(parts) > 1 {
		minor, _ = strconv.Atoi(parts[1])
	}
	return major, minor
}

// settings reads the server variables that matter.
func (s *Store) settings(ctx context.Context) (map[string]string, error) {
	return variables(ctx, s.db, `show global variables where variable_name in ('innodb_flush_log_at_trx_commit',
		'sync_binlog', 'log_bin', 'binlog_format', 'innodb_doublewrite', 'wsrep_on',
		'group_replication_group_name', 'group_replication_single_primary_mode')`)
}

// variables reads variables, some of which a server may not know.
func variables(ctx context.Context, on runner, text string) (map[string]string, error) {
	rows, err := on.QueryContext(ctx, text)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	settings := map[string]string{}
	for rows.Next() {
		var name, value string
		if err := rows.Scan(&name, &value); err != nil {
			return nil, err
		}
		settings[name] = strings.ToUpper(value)
	}
	return settings, rows.Err()
}

// checkSettings rejects a server whose settings would lose tasks or run them twice.
func checkSettings(is map[string]string, oneNode bool) error {
	const use = "send the connections of all processes to one and the same node, and add tusk_one_node=1 to the " +
		"database URL, or set Options.OneNode"
	switch {
	case is["wsrep_on"] == "ON" && !oneNode:
		return fmt.Errorf("%w: wsrep_on is ON: a Galera cluster loses confirmed writes when several nodes are written to: "+
			"%s", store.ErrUnsupported, use)
	case multiPrimary(is) && !oneNode:
		return fmt.Errorf("%w: group_replication_single_primary_mode is OFF: row locks do not span the members of a group, "+
			"so tasks that need others may wait forever when several members are written to: switch the group to a single "+
			"primary, or %s", store.ErrUnsupported, use)
	case is["log_bin"] == "ON" && is["binlog_format"] == "STATEMENT":
		return fmt.Errorf("%w: binlog_format is STATEMENT, which READ COMMITTED does not allow: set binlog_format = ROW",
			store.ErrUnsupported)
	}
	return nil
}

// multiPrimary reports whether a server is a member of a replication group whose members all take writes.
func multiPrimary(is map[string]string) bool {
	return is["group_replication_group_name"] != "" && is["group_replication_single_primary_mode"] == "OFF"
}

// weaknesses returns warnings about what a crash of the server's machine could lose.
func weaknesses(is map[string]string) (all []string) {
	if v := is["innodb_flush_log_at_trx_commit"]; v != "1" && v != "3" {
		all = append(all, "innodb_flush_log_at_trx_commit is "+v+
			": a crash of the server may lose the tasks that it acknowledged in the last second; set it to 1")
	}
	if v := is["sync_binlog"]; is["log_bin"] == "ON" && v != "1" {
		all = append(all, "sync_binlog is "+v+
			": after a crash of the server its replicas may lack what it acknowledged; set it to 1")
	}
	if is["innodb_doublewrite"] == "OFF" {
		all = append(all,
			"innodb_doublewrite is OFF: a page that is torn by a power failure is lost; start the server with it ON")
	}
	const same = "all processes must use one and the same node of the cluster; with several writers tasks run twice"
	if is["wsrep_on"] == "ON" {
		all = append(all, "wsrep_on is ON: "+same)
	}
	if multiPrimary(is) {
		all = append(all, "group_replication_single_primary_mode is OFF: "+same)
	}
	return all
}
