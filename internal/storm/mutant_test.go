//go:build unix

package storm

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// mutant is a bug planted in Tusk's own source, on the way to the compiler: no
// file is changed, and nothing of it is in the product.
type mutant struct {
	name   string
	ground string
	file   string // from the module's root
	old    string // every occurrence is replaced
	new    string
	faults string // codes that bring it out; empty: all
	caught string // which invariants may say so, as a regular expression
}

var mutants = []mutant{
	{"a late outcome is taken for accepted", "sqlite", "store/sqlite/finish.go",
		"			return accepted, err\n		}\n	}\n	return false, nil", "			return accepted, err\n		}\n	}\n	return true, nil", "F1,F2", "I3|I5"},
	{"nobody is rescued", "sqlite", "internal/tend/rescue.go",
		"if err != nil || len(tasks) == 0 {", "if err != nil || len(tasks) >= 0 {", "F1", "I1"},
	{"rescue forgets a lane", "sqlite", "store/sqlite/sql/keep.sql",
		"where id = tusk_lease.worker) > 0\n", "where id = tusk_lease.worker) > 0 and lane % 3 <> 1\n", "F1", "I1"},
	{"a key is not looked up", "sqlite", "store/sqlite/enqueue.go",
		"if key.task.IsZero() {", "if n.OnConflict != store.Rerun || key.task.IsZero() {", "F1", "I7|I1"},
	{"what awaits a rerun is lost when the attempt fails", "sqlite", "store/sqlite/finish.go",
		`e.state, e.reason = store.Cancelled, "superseded"`, "e.state, e.reason = store.Cancelled, \"superseded\"\n\t\t\tk.awaiting = store.ID{}\n\t\t\tif err := w.writeKey(k); err != nil {\n\t\t\t\treturn err\n\t\t\t}", "F1", "A10|I1"},
	{"partitions have no limit", "sqlite", "internal/allot/allot.go",
		"p.room = w.Limits.PerPartition - int(g.Held)", "p.room = w.Limits.PerPartition", "F1", "I8"},
	{"a queue's limit is of each round", "sqlite", "internal/allot/allot.go",
		"room = min(room, l.Concurrency-q.held)", "room = min(room, l.Concurrency)", "F1", "I9"},
	{"the first of its needs sets a task free", "sqlite", "store/sqlite/need.go",
		"if is, err := w.isOpen(t); is || err != nil {", "if _, err := w.isOpen(t); err != nil {", "F1", "I10"},
	{"waiting tasks are admitted too early", "sqlite", "store/sqlite/sql/keep.sql",
		"where state in (1, 5) and run_at <= ?", "where state in (1, 5) and run_at <= ? + 1500000", "F1", "I14"},
	{"a claim does not count the attempt", "sqlite", "store/sqlite/task.go",
		"	t.Attempt++\n", "", "F1", "I13|I1"},
	{"everybody leads", "sqlite", "store/sqlite/keep.go",
		"		mine := holder == c.ID\n", "		mine := holder == c.ID || !holder.IsZero()\n", "F1", "I12"},
	{"a tick leaves the cursor where it was", "sqlite", "internal/tend/schedule.go",
		"if r.Body, err = json.Marshal(s); err != nil {", "s.Next = planned\n	if r.Body, err = json.Marshal(s); err != nil {", "F1", "I11"},
	{"each claim leaves a goroutine behind", "sqlite", "internal/claim/claim.go",
		"	c.unanswered = nil\n	return c.pause(r, tasks), nil", "	c.unanswered = nil\n	go func() { select {} }()\n	return c.pause(r, tasks), nil", "F1", "I16"},
	{"workers are known by their process id", "sqlite", "worker.go",
		"NewID:  NewID, TTL:", "NewID: func() ID { return ID{6: 0x70, 8: 0x80, 15: byte(os.Getpid())} }, TTL:", "F1,F29", "I1|I4"},
	{"an enqueue is acknowledged before it is stored", "sqlite", "store/sqlite/enqueue.go",
		"	results := make([]store.Enqueued, len(tasks))\n", "	results := make([]store.Enqueued, len(tasks))\n	if len(tasks) > 1 && tasks[0].ID[15]%8 == 0 {\n		for i := range tasks {\n			results[i] = store.Enqueued{ID: tasks[i].ID, Result: store.Added}\n		}\n		return results, nil\n	}\n", "F1", "I1|I10"},
	{"who commits late is passed over", "postgres", "store/postgres/migrations/00003_claim.sql",
		"x where x >= _at_xid and pg_visible_in_snapshot(x, _win) order by x) late", "x where false and pg_visible_in_snapshot(x, _win) order by x) late", "F1", "I1"},
	{"a claim takes its last task once more", "postgres", "store/postgres/migrations/00003_claim.sql",
		"p.at_n := _ns[_size];", "p.at_n := _ns[_size] - 1;", "F1", "I1|I4|I3"},
	{"a transaction of the user's is not used", "postgres", "store/postgres/tx.go",
		"return &userTx{s, sqlSession{tx}}, nil", "return &userTx{s, driverSession{s.pool}}, nil", "F1", "I2|I6"},
	{"an enqueue is not written through", "postgres", "store/postgres/migrations/00004_enqueue.sql",
		"  perform tusk.need_read_committed();\n  _ns", "  perform tusk.need_read_committed(), set_config('synchronous_commit', 'off', true);\n  _ns", "F5", "I1"},
	{"a claim whose answer was lost is forgotten", "postgres", "internal/claim/claim.go",
		"		r.Again = true\n		c.unanswered = &r\n", "", "F13", "I1"},
	{"a need is forgotten", "mysql", "store/mysql/sql/finish.sql",
		"where state = 3 and needed = 0 and turn = 0", "where state = 3 and turn = 0", "F1", "I1|I10"},
}

// TestEveryMutantCanBePlanted finds the places of the planted bugs, so that they
// do not go stale.
func TestEveryMutantCanBePlanted(t *testing.T) {
	for _, m := range mutants {
		text, err := os.ReadFile(filepath.Join("..", "..", m.file))
		if err != nil {
			t.Errorf("%s: %v", m.name, err)
		} else if !strings.Contains(string(text), m.old) {
			t.Errorf("%s: %s has no such text any more: plant the bug where its code is now:\n%s", m.name, m.file, m.old)
		}
	}
}

// TestEveryMutantIsCaught builds the storm once for each planted bug and expects
// it to find that. A harness that finds nothing proves nothing.
func TestEveryMutantIsCaught(t *testing.T) {
	if os.Getenv("STORM_MUTANTS") == "" {
		t.Skip("takes half a minute for each of them: make storm-mutants")
	}
	for _, m := range mutants {
		t.Run(m.name, func(t *testing.T) {
			program := m.plant(t)
			cmd := exec.Command(program, "-test.run", "^TestStorm$/^"+m.ground+"$", "-test.timeout", "3m")
			cmd.Env = append(os.Environ(), envTime+"=8s", envFaults+"="+m.faults)
			out, err := cmd.CombinedOutput()
			found := regexp.MustCompile(`(?m)^\s+storm_test\.go:\d+: (` + m.caught + `)\b.*$`).FindString(string(out))
			switch {
			case err == nil:
				t.Errorf("not caught:\n%s", out)
			case found == "":
				t.Errorf("the storm failed for another reason:\n%s", out)
			default:
				t.Logf("caught: %.300s", strings.TrimSpace(found))
			}
		})
	}
}

// plant builds this test binary with the bug in it.
func (m *mutant) plant(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	path, err := filepath.Abs(filepath.Join("..", "..", m.file))
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	changed := filepath.Join(dir, filepath.Base(m.file))
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{path: changed}})
	if err != nil {
		t.Fatal(err)
	}
	list, program := filepath.Join(dir, "overlay.json"), filepath.Join(dir, "storm.test")
	for name, body := range map[string][]byte{changed: []byte(strings.ReplaceAll(string(text), m.old, m.new)), list: overlay} {
		if err := os.WriteFile(name, body, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := exec.Command("go", "test", "-c", "-overlay", list, "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	return program
}
