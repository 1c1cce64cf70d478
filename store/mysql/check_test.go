package mysql

import (
	"errors"
	"strings"
	"testing"

	"github.com/tuskqueue/tusk/store"
)

func TestServersThatCannotHoldAQueueAreRefusedByName(t *testing.T) {
	for _, test := range []struct{ version, comment, says string }{
		{"10.11.19-MariaDB-0+deb12u1", "Debian 12", ""},
		{"5.5.5-10.6.0-MariaDB", "", ""},
		{"12.1.2-MariaDB", "", ""},
		{"8.0.1", "MySQL Community Server - GPL", ""},
		{"9.4.0", "MySQL Community Server - GPL", ""},
		{"8.0.11-TiDB-v8.5.0", "TiDB Server (Apache License 2.0)", "TiDB"},
		{"8.0.30-Vitess", "", "Vitess"},
		{"10.5.29-MariaDB", "", "upgrade to 10.6"},
		{"5.5.5-10.3.39-MariaDB", "", "10.3.39"},
		{"5.7.44", "MySQL Community Server (GPL)", "upgrade to 8.0"},
	} {
		err := checkVersion(test.version, test.comment)
		switch {
		case test.says == "" && err != nil:
			t.Errorf("%s: %v", test.version, err)
		case test.says != "" && (!errors.Is(err, store.ErrUnsupported) || !strings.Contains(err.Error(), test.says)):
			t.Errorf("%s: %v, want %q in it", test.version, err, test.says)
		}
	}
}

func TestSettingsThatBreakThePromisesAreRefused(t *testing.T) {
	for _, test := range []struct {
		is      map[string]string
		oneNode bool
		says    string
	}{
		{map[string]string{"wsrep_on": "OFF", "log_bin": "ON", "binlog_format": "MIXED"}, false, ""},
		{map[string]string{"wsrep_on": "ON"}, false, "tusk_one_node=1"},
		{map[string]string{"wsrep_on": "ON"}, true, ""},
		{map[string]string{"group_replication_group_name": "X", "group_replication_single_primary_mode": "OFF"}, false,
			"single primary, or send the connections of all processes to one and the same node, and add tusk_one_node=1"},
		{map[string]string{"group_replication_group_name": "X", "group_replication_single_primary_mode": "OFF"}, true, ""},
		{map[string]string{"group_replication_group_name": "X", "group_replication_single_primary_mode": "ON"}, false, ""},
		{map[string]string{"group_replication_group_name": "", "group_replication_single_primary_mode": "OFF"}, false, ""},
		{map[string]string{"log_bin": "ON", "binlog_format": "STATEMENT"}, false, "ROW"},
		{map[string]string{"log_bin": "OFF", "binlog_format": "STATEMENT"}, false, ""},
	} {
		err := checkSettings(test.is, test.oneNode)
		switch {
		case test.says == "" && err != nil:
			t.Errorf("%v: %v", test.is, err)
		case test.says != "" && (!errors.Is(err, store.ErrUnsupported) || !strings.Contains(err.Error(), test.says)):
			t.Errorf("%v: %v, want %q in it", test.is, err, test.says)
		}
	}
}

func TestSettingsThatWeakenThePromisesAreSaid(t *testing.T) {
	strict := map[string]string{"innodb_flush_log_at_trx_commit": "1", "log_bin": "ON", "sync_binlog": "1",
		"innodb_doublewrite": "ON", "wsrep_on": "OFF", "group_replication_group_name": "X",
		"group_replication_single_primary_mode": "ON"}
	if all := weaknesses(strict); len(all) > 0 {
		t.Error(all)
	}
	for name, value := range map[string]string{"innodb_flush_log_at_trx_commit": "2", "sync_binlog": "0",
		"innodb_doublewrite": "OFF", "wsrep_on": "ON", "group_replication_single_primary_mode": "OFF"} {
		is := map[string]string{}
		for k, v := range strict {
			is[k] = v
		}
		is[name] = value
		if all := weaknesses(is); len(all) != 1 || !strings.HasPrefix(all[0], name+" is "+value+": ") {
			t.Errorf("%s = %s: %q", name, value, all)
		}
	}
}
