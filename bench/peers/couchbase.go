package peers

import (
	"context"
	"errors"

	"github.com/tuskqueue/tusk/bench/harness"
)

var couchbaseArticle = []Contender{{
	Name: "article: Couchbase", Server: Couchbase, Version: statementsOnly, New: func(string) harness.Peer {
		return notHere{}
	},
	Settings: "documents with a status, claimed by compare-and-swap",
}}

// notHere stands for a contender that cannot run, so that it is in the report.
type notHere struct{}

var errNotHere = errors.New("needs a Couchbase server, which no Debian package, Go module or npm package has")

func (notHere) Open(context.Context, harness.Plan) error      { return errNotHere }
func (notHere) Enqueue(context.Context, []harness.Task) error { return errNotHere }
func (notHere) Work(context.Context, func(n int)) error       { return errNotHere }
func (notHere) Left(context.Context) (int, error)             { return 0, errNotHere }
func (notHere) Close() error                                  { return nil }
