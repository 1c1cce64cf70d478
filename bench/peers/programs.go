package peers

import (
	"os"
	"path/filepath"
	"regexp"
)

// Programs are contenders that are not compiled into this program. They are built or installed
// where the benchmark runs, and speak the harness's lines of JSON.

const (
	riverFileVersion = "v0.47.0"
	batched          = "; localQueue of the batch's size, completeJobBatchDelay 0, failJobBatchDelay 0: the settings " +
		"of its performance page"
)

var riverSQLite = []Contender{{
	Name: "River on SQLite", Server: SQLite, Script: "riversqlite", Version: func() string { return riverFileVersion },
	Cannot: []string{"tenants"},
	Settings: "InsertMany; MaxWorkers as the workers; FetchCooldown 2 ms, FetchPollInterval 20 ms; the driver's newest " +
		"published version, and River of that version" + goqiteCommon,
}}

var graphile = []Contender{
	{Name: "Graphile Worker", Server: Postgres, Script: "node/graphile.js", Version: locked("graphile-worker"),
		Cannot:   []string{"tenants"},
		Settings: "addJobs of a batch; concurrentJobs as the workers, a pool of 25" + batched},
	{Name: "Graphile Worker", Variant: "not batching", Aside: true, Server: Postgres, Script: "node/graphile.js",
		Version: locked("graphile-worker"), Cannot: []string{"tenants", "long", "scheduled", "history"},
		Settings: "addJobs of a batch; concurrentJobs as the workers, a pool of 25; its defaults: each job fetched and " +
			"completed by itself"},
}

var pgboss = []Contender{
	{Name: "pg-boss", Server: Postgres, Script: "node/pgboss.js", Version: locked("pg-boss"), Cannot: []string{"tenants"},
		Settings: "insert of a batch; work with batchSize as the batch (all of one are completed together), two pollers, " +
			"notify on, burst mode on; a queue with a table of its own (partition)"},
}

var python = []Contender{
	{Name: "awa", Server: Postgres, Script: "python/awa_peer.py", Version: pinned("awa-pg"), Full: true,
		Cannot:   []string{"tenants"},
		Settings: "enqueue_many_copy of a batch; max_workers as the workers; all else default"},
	{Name: "procrastinate", Server: Postgres, Script: "python/procrastinate_peer.py", Version: pinned("procrastinate"),
		Full: true, Cannot: []string{"tenants"},
		Settings: "batch_defer_async of a batch; concurrency as the workers, fetch_job_polling_interval 20 ms (default 5 " +
			"s), delete_jobs never"},
}

// Dir is this directory in the source, where the programs are.
var Dir = "peers"

// locked returns the version of an npm package in package.json.
func locked(name string) func() string {
	return inFile("node/package.json", `"`+regexp.QuoteMeta(name)+`": "([^"]*)"`)
}

// pinned returns the version of a PyPI package in requirements.txt.
func pinned(name string) func() string {
	return inFile("python/requirements.txt", `(?m)^`+regexp.QuoteMeta(name)+`==(\S+)`)
}

func inFile(file, pattern string) func() string {
	expression := regexp.MustCompile(pattern)
	return func() string {
		text, err := os.ReadFile(filepath.Join(Dir, file))
		if found := expression.FindSubmatch(text); err == nil && found != nil {
			return string(found[1])
		}
		return ""
	}
}
