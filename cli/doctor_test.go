package cli

import (
	"strings"
	"testing"
)

func TestTheDoctorsExitStatusIsForMonitors(t *testing.T) {
	sh := newShell(t)
	r := sh.run("doctor", "--json")
	if r.status != exitCritical || !strings.Contains(r.out, `"check":"connection"`) ||
		!strings.Contains(r.err, "error[critical]") {
		t.Errorf("a database that does not exist: %+v", r)
	}
	sh.enqueue("a", "--queue", "lonely")
	r = sh.run("doctor")
	if r.status != exitCritical || !strings.Contains(r.out, "critical\tleader\t") {
		t.Errorf("nobody leads: %+v", r)
	}
	r = sh.run("doctor", "--ignore", "leader,disk")
	if r.status != exitWarn || !strings.Contains(r.out, "warn\tqueues\t") || !strings.Contains(r.err, "error[warn]") {
		t.Errorf("a queue without workers: %+v", r)
	}
	if r = sh.run("doctor", "--ignore", "leader,disk,queues"); r.status != exitOK || r.err != "" {
		t.Errorf("all is well: %+v", r)
	}
}
