//go:build unix

package storm

import (
	"bytes"
	"cmp"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// mutant is a bug that is planted in Tusk's source only for the compiler: no file is changed, and the product does
// not contain it.
type mutant struct {
	name   string
	ground string
	edits  []change // files, from the module's root
	faults string   // codes of the faults that bring it out; empty means all
	// Regular expression for the invariants that may report it.
	caught string
}

// planted is a mutant together with the test that has to find it.
type planted struct {
	mutant
	in, test string // a test other than the storm, and its package from the module's root
	env      string // name=value, for that test
}

// allPlanted returns all mutants.
func allPlanted() (all []planted) {
	for _, m := range mutants {
		all = append(all, planted{mutant: m})
	}
	return slices.Concat(all, audited, onCouchbase)
}

// A worker gives up a lease that may be over by itself, and also if its beat is refused; the engine refuses it as
// well. Each of these makes up for a bug in another, so some bugs are planted together.
var (
	watchNothing = change{"internal/lease/lease.go", "	limit := h.o.TTL * 2 / 3\n", "	limit := time.Hour\n"}
	deafHeart    = change{"internal/lease/lease.go", "	if errors.Is(err, store.ErrWorkerDead) {\n",
		"	if errors.Is(err, store.ErrWorkerDead) {\n		return h.o.Every, nil\n"}
	deafClaim = change{"internal/claim/claim.go", "		c.o.Dead(id)\n		return 0, nil\n", "		return firstIdle, nil\n"}
)

var mutants = []mutant{
	{"a late outcome is taken for accepted", "sqlite", []change{{"store/rules/finish.go",
		"			lost = append(lost, o.Task.ID)\n", ""}}, "F1,F2", "I3|I5"},
	{"a step does not wait until its result is stored", "sqlite", []change{{"step.go",
		"		select {\n		case <-stored:\n", "		select {\n		default:\n			return result, nil\n		case <-stored:\n"}}, "F1", "I25"},
	{"nobody is rescued", "sqlite", []change{{"internal/tend/rescue.go",
		"if err != nil || len(tasks) == 0 {", "if err != nil || len(tasks) >= 0 {"}}, "F1", "I1"},
	{"rescue forgets a lane", "sqlite", []change{{"store/sqlite/sql/keep.sql",
		"where id = tusk_lease.worker) > 0\n", "where id = tusk_lease.worker) > 0 and lane % 3 <> 1\n"}}, "F1", "I1"},
	{"a key is not looked up", "sqlite", []change{{"store/rules/enqueue.go",
		"	case holder == nil:\n", "	case holder == nil || n.OnConflict != store.Rerun:\n"}}, "F1", "I7|I1"},
	{"what awaits a rerun is lost when the attempt fails", "sqlite", []change{{"store/rules/finish.go",
		"		return store.Cancelled, Superseded\n", "		k.Awaiting = store.ID{}\n		return store.Cancelled, Superseded\n"}},
		"F1", "A10|I1"},
	{"partitions have no limit", "sqlite", []change{{"internal/allot/allot.go",
		"p.room = w.Limits.PerPartition - int(g.Held)", "p.room = w.Limits.PerPartition"}}, "F1", "I8"},
	{"a queue's limit is of each round", "sqlite", []change{{"internal/allot/allot.go",
		"room = min(room, l.Concurrency-q.held)", "room = min(room, l.Concurrency)"}}, "F1", "I9"},
	{"the first of its needs sets a task free", "sqlite", []change{{"store/rules/need.go",
		"if c.Open--; c.Open == 0", "if c.Open = 0; c.Open == 0"}}, "F1", "I10"},
	{"waiting tasks are admitted too early", "sqlite", []change{{"store/sqlite/sql/keep.sql",
		"where state in (1, 5) and run_at <= ?", "where state in (1, 5) and run_at <= ? + 1500000"}}, "F1", "I14"},
	{"a claim does not count the attempt", "sqlite", []change{{"store/sqlite/task.go",
		"	t.Attempt++\n", ""}}, "F1", "I13|I1"},
	{"everybody leads", "sqlite", []change{{"store/sqlite/keep.go",
		"		mine := holder == c.ID\n", "		mine := holder == c.ID || !holder.IsZero()\n"}}, "F1", "I12"},
	{"a tick leaves the cursor where it was", "sqlite", []change{{"internal/tend/schedule.go",
		"	r.Body, err = json.Marshal(s)\n", "	s.Next = k.plan.Next\n	r.Body, err = json.Marshal(s)\n"}}, "F1", "I11"},
	{"each claim leaves a goroutine behind", "sqlite", []change{{"internal/claim/claim.go",
		"	c.unanswered = nil\n	if r.Again", "	c.unanswered = nil\n	go func() { select {} }()\n	if r.Again"}}, "F1", "I16"},
	{"workers are known by their process id", "sqlite", []change{{"worker.go",
		"NewID: NewID, TTL:", "NewID: func() ID { return ID{6: 0x70, 8: 0x80, 15: byte(os.Getpid() % 16)} }, TTL:"}},
		"F1,F29", "I1|I4"},
	{"an enqueue is acknowledged before it is stored", "sqlite", []change{{"store/sqlite/enqueue.go",
		"func (w *work) enqueue(tasks []store.NewTask) (results []store.Enqueued, err error) {\n",
		"func (w *work) enqueue(tasks []store.NewTask) (results []store.Enqueued, err error) {\n" +
			"	if len(tasks) > 1 && tasks[0].ID[15]%8 == 0 {\n		for i := range tasks {\n" +
			"			results = append(results, store.Enqueued{ID: tasks[i].ID, Result: store.Added})\n		}\n		return " +
			"results, nil\n	}\n"}}, "F1", "I1|I10"},
	{"who commits late is passed over", "postgres", []change{{"store/postgres/functions/04_claim.sql",
		"x where x >= _at_xid and pg_visible_in_snapshot(x, _win) order by x) late",
		"x where false and pg_visible_in_snapshot(x, _win) order by x) late"}}, "F1", "I1"},
	{"a claim takes its last task once more", "postgres", []change{{"store/postgres/functions/04_claim.sql",
		"p.at_n := _n;", "p.at_n := _n - 1;"}}, "F1", "I1|I4|I3"},
	{"a transaction of the user's is not used", "postgres", []change{{"store/postgres/tx.go",
		"return &userTx{s, sqlSession{tx}}, nil", "return &userTx{s, driverSession{s.pool}}, nil"}}, "F1", "I2|I6"},
	{"an enqueue and a finish are not written through", "postgres", []change{{"store/postgres/functions/05_enqueue.sql",
		"  perform tusk_fn.need_read_committed();\n  _ns",
		"  perform tusk_fn.need_read_committed(), set_config('synchronous_commit', 'off', true);\n  _ns"},
		{"store/postgres/functions/06_finish.sql",
			"  delete from tusk.lease y where y.ctid = _at;\n",
			"  perform set_config('synchronous_commit', 'off', true);\n  delete from tusk.lease y where y.ctid = _at;\n"},
		{"store/postgres/functions/06_finish.sql",
			"  _locked := array(", "  perform set_config('synchronous_commit', 'off', true);\n  _locked := array("}}, "F6",
		"I1|I3|I5"},
	{"a claim whose answer was lost is forgotten", "postgres", []change{{"internal/claim/claim.go",
		"		r.Again = true\n		c.unanswered = &r\n", ""}}, "F13", "I1"},
	{"the dead may claim", "sqlite", []change{watchNothing, deafHeart, {"store/sqlite/claim.go",
		"if r == nil || r.int(0) != 0 {", "if r == nil {"}}, "F2", "I4"},
	{"a dead worker's beat revives it", "sqlite", []change{watchNothing, deafClaim, {"store/rules/beat.go",
		"	case is == Dead || is == SignedOff:\n", "	case is == SignedOff:\n"}, {"store/sqlite/sql/extend.sql",
		"kinds = excluded.kinds, beat_at", "kinds = excluded.kinds, dead = 0, beat_at"}}, "F2", "I4"},
	{"outcomes that cannot be stored at once are dropped", "postgres", []change{{"internal/finish/write.go",
		"		if err == nil || errors.As(err, &held) {\n", "		if err == nil || errors.As(err, &held) || ctx.Err() == nil {\n"}},
		"F7,F13", "I1"},
	{"an outcome that was brought along, and not answered, is dropped", "postgres", []change{{"internal/finish/lend.go",
		"		g.ready = append(g.ready, b)\n		g.count.Add(1)\n", ""}}, "F7,F13", "I1"},
	{"the sweep takes args that a finished task refers to", "sqlite", []change{{"archive/orphan.go",
		"(!t.State.Finished() || refersTo(t, name)) {", "!t.State.Finished() {"}}, "F41", "I23"},
	{"the sweep takes args of archived tasks", "sqlite", []change{{"archive/orphan.go",
		"		if archived[name] {\n", "		if archived[name] && name == \"\" {\n"}}, "F41", "I23"},
	{"nobody looks for tasks without being told of them", "postgres", []change{{"internal/claim/claim.go",
		"	pause := c.idle - rand.N(c.idle/4+1)\n	if !more && !isFew(c.o.Asks()) {",
		"	pause := time.Hour - rand.N(c.idle/4+1)\n	if !more && !isFew(c.o.Asks()) {"}}, "F11", "I1"},
	{"SQLite does not write through", "sqlite", []change{{"store/sqlite/sqlitefile/open.go",
		"synchronous(full)", "synchronous(off)"}, {"store/sqlite/sqlite.go", "if sync == 0 {", "if sync < 0 {"}},
		"F6", "I1|I2|I6|schedule clock: records: the database is damaged"},
	{"who kills workers is never stopped", "postgres", []change{{"internal/lifecycle/lifecycle.go",
		"	if out.Crashes >= MaxCrashes {", "	if out.Crashes >= 100*MaxCrashes {"}}, "F24", "I13|I1"},
	{"a need is forgotten", "mysql", []change{{"store/mysql/procedures/complete.sql",
		"state = 3 and needed = 0 and turn = the_turn", "state = 3 and turn = the_turn"}}, "F1", "I1|I10"},
	{"a moved ledger leaves behind what waits", "ledgers", []change{{"store/ledgers/copy.go",
		"args := []string{\"--dbname\", plain}",
		"args := []string{\"--dbname\", plain, \"--exclude-table-data=*.waiting\"}"}},
		"F50", "I1"},
}

// TestEveryMutantCanBePlanted checks that the code to be changed exists, so that mutants do not go stale.
func TestEveryMutantCanBePlanted(t *testing.T) {
	for _, m := range allPlanted() {
		for _, e := range m.edits {
			text, err := os.ReadFile(filepath.Join("..", "..", e.file))
			if err != nil {
				t.Errorf("%s: %v", m.name, err)
			} else if !strings.Contains(string(text), e.old) {
				t.Errorf("%s: %s has no such text any more: plant the bug where its code is now:\n%s", m.name, e.file, e.old)
			}
		}
	}
}

// mutantTries is how many storms a mutant gets. Some do harm only if a fault strikes within a few milliseconds.
const mutantTries = 3

// TestEveryMutantIsCaught builds the storm once for each mutant and expects it to find the bug. A harness that finds
// nothing proves nothing.
func TestEveryMutantIsCaught(t *testing.T) {
	if os.Getenv("STORM_MUTANTS") == "" {
		t.Skip("takes half a minute for each of them: make storm-mutants")
	}
	for _, m := range allPlanted() {
		t.Run(m.name, func(t *testing.T) {
			program, found := m.plant(t), regexp.MustCompile(`(?m)^\s+\w+\.go:\d+: .*(`+m.caught+`).*$`)
			for try := 1; ; try++ {
				cmd := m.command(program)
				out, err := cmd.CombinedOutput()
				switch line := found.Find(out); {
				case err != nil && line != nil:
					t.Logf("caught: %.300s", bytes.TrimSpace(line))
				case err != nil:
					t.Errorf("the test failed for another reason:\n%s", out)
				case try < mutantTries:
					continue
				default:
					t.Errorf("not caught:\n%s", out)
				}
				return
			}
		})
	}
}

// command runs the storm, or another test, with the bug.
func (m *planted) command(program string) *exec.Cmd {
	if m.test == "" {
		cmd := exec.Command(program, "-test.run", "^TestStorm$/^"+m.ground+"$", "-test.timeout", "4m")
		cmd.Env = append(os.Environ(), envTime+"="+m.lasts(), envFaults+"="+m.faults)
		return cmd
	}
	cmd := exec.Command(program, "-test.run", m.test, "-test.timeout", "6m")
	cmd.Dir = filepath.Join("..", "..", m.in)
	cmd.Env = append(os.Environ(), m.env)
	return cmd
}

// lasts returns how long faults strike.
func (m *planted) lasts() string { return cmp.Or(strings.TrimPrefix(m.env, envTime+"="), "8s") }

// plant builds this test binary with the bug.
func (m *planted) plant(t *testing.T) string {
	t.Helper()
	changes := make([]change, len(m.edits))
	for i, e := range m.edits {
		file, err := filepath.Abs(filepath.Join("..", "..", e.file))
		if err != nil {
			t.Fatal(err)
		}
		changes[i] = change{file, e.old, e.new}
	}
	of := "."
	if m.in != "" {
		of = "./" + path.Join("../..", m.in)
	}
	return build(t, of, changes)
}
