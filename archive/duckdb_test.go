package archive

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/memory"
	"github.com/tuskqueue/tusk/store/storetest"
)

// python returns a Python with DuckDB. scripts/duckdb-deps installs it.
func python(t *testing.T) string {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(cache, "tusk-duckdb-2.0.0", "bin", "python")
	if _, err := os.Stat(path); err != nil {
		if os.Getenv("TUSK_TEST_ALL") != "" {
			t.Fatalf("run scripts/duckdb-deps: %v", err)
		}
		t.Skip("run scripts/duckdb-deps first")
	}
	return path
}

// DuckDB runs the queries of docs/archive.md, and they return what is in the archive.
func TestAnotherReaderRunsTheQueriesOfTheDocs(t *testing.T) {
	python := python(t)
	page, err := os.ReadFile("../docs/archive.md")
	if err != nil {
		t.Fatal(err)
	}
	var queries []string
	for _, found := range regexp.MustCompile("(?s)```sql\n(.*?)```").FindAllStringSubmatch(string(page), -1) {
		queries = append(queries, found[1])
	}
	s, worker := memory.New(), storetest.NewID()
	b, dir := place(t)
	run(t, s, worker, 30, "mail")
	fail(t, s, worker)
	r := keeper(t, s, b)
	drain(t, r)
	// Python gets the columns with DuckDB's types.
	script := `
import duckdb, json, sys
c = duckdb.connect()
c.execute("set TimeZone = 'UTC'")
out = [[[str(v) for v in row] for row in c.execute(q).fetchall()] for q in json.load(sys.stdin)]
print(json.dumps(out))`
	queries = append(queries,
		"select column_name, column_type from (describe select * from read_parquet('day=*/queue=*/*.parquet', "+
			"hive_partitioning = true))")
	in, err := json.Marshal(queries)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), python, "-c", script)
	cmd.Dir, cmd.Stdin, cmd.Stderr = dir, strings.NewReader(string(in)), os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var answers [][][]string
	if err := json.Unmarshal(out, &answers); err != nil || len(answers) != 4 {
		t.Fatalf("%d answers: %v", len(answers), err)
	}
	week := time.Now().UTC().Truncate(24 * time.Hour)
	for week.Weekday() != time.Monday {
		week = week.AddDate(0, 0, -1)
	}
	if got := answers[0]; len(got) != 1 || got[0][0] != "odd" ||
		!strings.HasPrefix(got[0][1], week.Format(time.DateOnly)) || got[0][2] != "1" {
		t.Errorf("failures by kind and week: %v", got)
	}
	if got := answers[1]; len(got) != 4 || got[0][2] != "10" || got[3][0] != "None" {
		t.Errorf("work by tenant: %v", got)
	}
	if got := answers[2]; len(got) != 1 || got[0][1] != "17" || got[0][2] != "['first', 'last']" {
		t.Errorf("args and errors: %v", got)
	}
	types := map[string]string{}
	for _, column := range answers[3] {
		types[column[0]] = column[1]
	}
	for name, want := range map[string]string{"args": "JSON", "output": "JSON", "finished_at": "TIMESTAMP WITH TIME ZONE",
		"tags":     "VARCHAR[]",
		"priority": "INTEGER", "day": "DATE", "queue": "VARCHAR", "settings": "BLOB", "turn": "BOOLEAN"} {
		if types[name] != want {
			t.Errorf("DuckDB takes %s for %s, want %s", name, types[name], want)
		}
	}
}

// fail makes a task of the queue mail fail twice, the second time for good.
func fail(t *testing.T, s *memory.Store, worker store.ID) {
	t.Helper()
	task := store.NewTask{ID: storetest.NewID(), Kind: "odd", Queue: "mail", Args: []byte(`{"n": 17}`)}
	if _, err := s.Enqueue(t.Context(), []store.NewTask{task}); err != nil {
		t.Fatal(err)
	}
	for _, o := range []store.Outcome{{State: store.Available, Error: "first", Fingerprint: "f"},
		{State: store.Discarded, Error: "last", Fingerprint: "f", Reason: "attempts"}} {
		tasks, err := s.Claim(t.Context(), store.ClaimRequest{Worker: worker, Queues: []string{"mail"}, Limit: 1,
			Token: store.NewToken()})
		if err != nil || len(tasks) != 1 {
			t.Fatal(len(tasks), err)
		}
		o.Task, o.Attempt = &tasks[0], tasks[0].Attempt
		if lost, err := s.Finish(t.Context(), []store.Outcome{o}); err != nil || len(lost) > 0 {
			t.Fatal(len(lost), err)
		}
	}
}
