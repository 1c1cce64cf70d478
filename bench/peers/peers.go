// Package peers has one adapter for each system that Tusk is measured beside. An
// adapter uses its system's public interface and nothing else; what it reads of
// its tables by itself is how many tasks are left, to know when a run has ended.
//
// Settings of batches and workers are the plan's where a system has them. All
// others are those that the system's own documentation gives for speed, or its
// defaults; Contender.Settings says which, for the table.
package peers

import (
	"errors"
	"fmt"
	"runtime/debug"
	"slices"

	"github.com/tuskqueue/tusk/bench/harness"
)

// Server is what a contender keeps its tasks in.
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
	Variant  string // of its settings; empty: as the plan says
	Server   Server
	Settings string // in words: what the plan does not say
	Version  func() string

	New    func(variant string) harness.Peer // nil: it is a program
	Script string                            // of node/ or python/
	SQL    string                            // the environment variable that names the file that makes it
	Full   bool                              // only in the full benchmark

	Cannot []string // scenarios that it has no means for
	Aside  bool     // in the short benchmark, in the main scenarios only
}

// Key tells contenders apart.
func (c Contender) Key() string {
	if c.Variant == "" {
		return c.Name
	}
	return c.Name + ", " + c.Variant
}

// All contenders. The first of a server is the one that others are compared with.
func All() []Contender {
	return slices.Concat(tuskPostgres, river, gue, graphile, pgboss, pgmq, pgque, pgq, articles, limits, python,
		tuskMySQL, mysqlArticle, couchbaseArticle, tuskSQLite, riverSQLite, goqiteContenders, backliteContenders,
		asynqContenders)
}

// Everyday are the contenders of everyday runs.
func Everyday() []Contender {
	return slices.Concat(tuskPostgres, river[:1], []Contender{riverEveryday}, graphile[1:2], pgboss, tuskSQLite,
		riverSQLite, goqiteContenders[:1], backliteContenders, tuskMySQL, mysqlArticle)
}

// Find returns the adapter that a plan names; it runs in this process.
func Find(p harness.Plan) (harness.Peer, error) {
	for _, c := range append(All(), riverEveryday) {
		if c.Name == p.Peer && c.Variant == p.Variant && c.New != nil {
			return c.New(p.Variant), nil
		}
	}
	return nil, fmt.Errorf("peer %q, variant %q: there is none", p.Peer, p.Variant)
}

// module returns the version of a Go module that is compiled in.
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
