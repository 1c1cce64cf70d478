package query

import (
	"fmt"
	"net/url"

	"github.com/tuskqueue/tusk/archive"
	"github.com/tuskqueue/tusk/mask"
)

// Archived selects tasks of an archive. An empty field selects all tasks; all set fields must match.
type Archived struct {
	State       []string `json:"state,omitempty" query:"state" rule:"ended" maxItems:"100" doc:"completed, cancelled, discarded"`
	Queue       []string `json:"queue,omitempty" query:"queue" rule:"value" maxItems:"100"`
	Kind        []string `json:"kind,omitempty" query:"kind" rule:"value" maxItems:"100"`
	Tenant      []string `json:"tenant,omitempty" query:"tenant" rule:"value" maxItems:"100"`
	Tag         []string `json:"tag,omitempty" query:"tag" rule:"value" maxItems:"100" doc:"all of these"`
	Key         string   `json:"key,omitempty" query:"key" rule:"value"`
	Fingerprint string   `json:"fingerprint,omitempty" query:"fingerprint" rule:"value" doc:"of the latest error"`
	From        string   `json:"from,omitempty" query:"from" rule:"when" doc:"ended at or after: a time (RFC 3339), or how long ago (24h)"`
	Until       string   `json:"until,omitempty" query:"until" rule:"when" doc:"ended before; same format as from"`
	Args        string   `json:"args,omitempty" query:"args" rule:"search" doc:"text in the args, or the value at a path (order.id=17); encrypted args never match"`
}

// ArchivedFrom reads the query of a URL. Lists may be repeated or comma-separated.
func ArchivedFrom(v url.Values) Archived { return Archived(FromValues(v)) }

// ArchivedOf returns the query from which an archive's query was made.
func ArchivedOf(q archive.Query) Archived {
	a := Archived{State: q.States, Queue: q.Queues, Kind: q.Kinds, Tenant: q.Tenants, Tag: q.Tags, Key: q.Key,
		Fingerprint: q.ErrorGroup, Args: q.Args}
	a.From, a.Until = instantText(q.From), instantText(q.Until)
	return a
}

// Values is the inverse of ArchivedFrom.
func (q Archived) Values() url.Values { return Tasks(q).Values() }

// IsZero reports whether the query selects everything.
func (q Archived) IsZero() bool { return len(q.Values()) == 0 }

// Query translates the query for somebody who cannot see the hidden parts of args.
func (q Archived) Query(hidden mask.Mask) (archive.Query, error) {
	f, err := Tasks(q).filter()
	if err != nil {
		return archive.Query{}, err
	}
	for _, s := range f.States {
		if !s.Finished() {
			return archive.Query{}, &Error{"state", "invalid_state_name",
				fmt.Sprintf("no task in an archive is %v: want completed, cancelled or discarded", s)}
		}
	}
	if len(q.Args) > MaxSearch {
		return archive.Query{}, &Error{"args", "filter_too_complex", fmt.Sprintf("has more than %d bytes", MaxSearch)}
	}
	return archive.Query{States: q.State, Queues: f.Queues, Kinds: f.Kinds, Tenants: f.Tenants, Tags: f.Tags, Key: f.Key,
		ErrorGroup: f.Fingerprint, From: f.From, Until: f.Until, Args: q.Args, Hidden: hidden}, nil
}
