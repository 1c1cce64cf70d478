// Package peers has one adapter for each system that Tusk is compared with. An adapter uses its
// system's public interface and nothing else, except that it may read from the tables how many
// tasks are left, to know when a run has ended.
//
// The sizes of batches and the number of workers are the plan's if a system has such settings. All
// other settings are those that the system's own documentation recommends for speed, or its
// defaults. Contender.Settings describes them for the table.
package peers

import (
	"errors"
	"fmt"
	"runtime/debug"
	"slices"

	"github.com/tuskqueue/tusk/bench/harness"
)

// Server is where a contender keeps its tables.
type Server string

const (
	Postgres   Server = "PostgreSQL"
	Redis      Server = "Redis"
	RedisEvery Server = "Redis, fsync every second"
	SQLite     Server = "SQLite"
	MySQL      Server = "MariaDB"
	Couchbase  Server = "Couchbase"
)

// Contender is a peer with settings.
type Contender struct {
	Name     string // as its makers write it
	Variant  string // of its settings; empty means those of the plan
	Server   Server
	Settings string // in words: what the plan does not say
	Version  func() string

	New    func(variant string) harness.Peer // nil if it is a separate program
	Script string                            // in node/ or python/
	SQL    string                            // the environment variable that names the file that installs it
	Full   bool                              // only in the full benchmark

	Cannot []string // scenarios that it has no means for
	Aside  bool     // in the short benchmark, only in the main scenarios
}

// Key identifies a contender.
func (c Contender) Key() string {
	if c.Variant == "" {
		return c.Name
	}
	return c.Name + ", " + c.Variant
}

// All returns all contenders. The others are compared with the first one of their server.
func All() []Contender {
	return slices.Concat(tuskPostgres, river, gue, graphile, pgboss, pgmq, pgque, pgq, articles, limits, python,
		tuskMySQL, mysqlArticle, couchbaseArticle, tuskSQLite, riverSQLite, goqiteContenders, backliteContenders,
		asynqContenders)
}

// Everyday returns the contenders of everyday runs.
func Everyday() []Contender {
	return slices.Concat(tuskPostgres, []Contender{tuskEveryday}, river[:1], []Contender{riverEveryday}, graphile[1:2],
		pgboss, tuskSQLite, riverSQLite, goqiteContenders[:1], backliteContenders, tuskMySQL, mysqlArticle)
}

// Find returns the adapter that a plan names. It runs in this process.
func Find(p harness.Plan) (harness.Peer, error) {
	for _, c := range append(All(), riverEveryday, tuskEveryday) {
		if c.Name == p.Peer && c.Variant == p.Variant && c.New != nil {
			return c.New(p.Variant), nil
		}
	}
	return nil, fmt.Errorf("peer %q, variant %q: there is none", p.Peer, p.Variant)
}

// module returns the version of a Go module in this program.
func module(path string) func() string {
	return func() string {
		info, ok := debug.ReadBuildInfo()
		if !ok {
			return ""
		}
		for _, m := range info.Deps {
			if m.Path == path {
				return m.Version
			}
		}
		return ""
	}
}

var errNoTime = errors.New("cannot be told when to run a task")
