package ui

import (
	"errors"
	"net/url"
	"slices"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/server/query"
	"github.com/tuskqueue/tusk/store"
)

const pageSize = 50

type tasksData struct {
	Query    query.Tasks
	State    string // the chosen state, if there is exactly one
	Values   url.Values
	Tasks    []tusk.TaskInfo
	Next     string // query of the next page
	First    string // query of the first page; empty on that page
	Queues   []string
	Kinds    []string
	Counts   map[string]string // tasks by state; empty if such a filter has no counts
	Chips    []chip
	Span     string
	Group    *groupRow
	Looked   int  // how many tasks a search in args has looked through
	Everyone bool // there is no filter
	// Several are the tasks whose id contains the searched part; nil if the search is not for such a part.
	Several *query.AmbiguousError
}

// chip is one part of the filter, and the query without it.
type chip struct{ Name, Value, Without string }

func tasks(v *visit) (answer, error) {
	a := answer{page: "tasks", title: "Tasks", section: "tasks"}
	values := v.r.URL.Query()
	q := query.FromValues(values)
	if q.Args != "" && q.From == "" { // the form says so
		q.From = "24h"
	}
	f, err := q.Filter()
	if err != nil {
		return a, err
	}
	f.Limit = pageSize
	if before := values.Get("before"); before != "" {
		if f.Before, err = tusk.ParseID(before); err != nil {
			return a, err
		}
	}
	// An id in the search field names a task, not a key.
	if id, err := tusk.ParseID(q.Key); err == nil {
		return goTo("/tasks/" + id.String()), nil
	}
	d := tasksData{Query: q, Values: q.Values(), Everyone: q.IsZero(), Span: q.From, Chips: chips(q)}
	found, err := q.Find(v.r.Context(), v.client, v.who, f, v.Mask.JSON)
	if err != nil {
		return a, err
	}
	if len(found.Tasks) == 0 && query.IsPart(q.Key) {
		switch id, err := query.FindID(v.r.Context(), v.client, v.who, q.Key); {
		case errors.As(err, &d.Several):
			found.Tasks = d.Several.Tasks
		case err == nil:
			return goTo("/tasks/" + id.String()), nil
		case !errors.Is(err, tusk.ErrNotFound):
			return a, err
		}
	}
	if d.Tasks, d.Looked = found.Tasks, found.Looked; !found.More.IsZero() {
		next := q.Values()
		next.Set("before", found.More.String())
		d.Next = next.Encode()
	}
	if !f.Before.IsZero() {
		d.First = "?" + q.Values().Encode()
	} else if q.Args == "" {
		a.watch = v.lists()
	}
	if len(q.State) == 1 {
		d.State = q.State[0]
	}
	if d.State == "discarded" && len(d.Chips) == 1 {
		a.section, a.title = "discarded", "Discarded tasks"
	}
	if v.who.SeesAllTenants() {
		if d.Queues, err = v.queueNames(); err != nil {
			return a, err
		}
		if d.Kinds, err = v.kindNames(); err != nil {
			return a, err
		}
		d.Group = v.group(q.Fingerprint)
		if d.Counts, err = v.countsFor(q); err != nil {
			return a, err
		}
	}
	a.data = d
	return a, nil
}

// countsAge is the greatest age of the state counts that are shown.
const countsAge = 5 * time.Second

// countsFor returns the number of tasks in each state that engines count, for all queues or for some.
func (v *visit) countsFor(q query.Tasks) (map[string]string, error) {
	others := q
	if others.State, others.Queue = nil, nil; !others.IsZero() {
		return nil, nil
	}
	s, err := v.Feed.Recent(v.r.Context(), countsAge)
	if err != nil {
		return nil, err
	}
	sums := map[string]int64{}
	for _, row := range v.queueRows(s) {
		if len(q.Queue) == 0 || slices.Contains(q.Queue, row.Name) {
			for state, n := range row.Counts {
				sums[state] += n
			}
		}
	}
	counts := map[string]string{}
	for _, state := range store.States() {
		if !state.Finished() {
			counts[state.String()] = num(sums[state.String()])
		}
	}
	counts["discarded"], err = v.discarded(q.Queue...)
	return counts, err
}

func chips(q query.Tasks) []chip {
	var all []chip
	values := q.Values()
	for _, name := range []string{"state", "queue", "kind", "tenant", "tag", "key", "fingerprint", "from",
		"until", "args"} {
		for i, value := range values[name] {
			without := q.Values()
			without[name] = slices.Delete(slices.Clone(values[name]), i, i+1)
			all = append(all, chip{name, value, "?" + without.Encode()})
		}
	}
	return all
}

func (v *visit) queueNames() ([]string, error) {
	all, err := v.Feed.Names(v.r.Context())
	var names []string
	for _, name := range all {
		if v.who.SeesQueue(name) {
			names = append(names, name)
		}
	}
	return names, err
}

// kindNames lists the kinds that live workers handle.
func (v *visit) kindNames() ([]string, error) {
	s, err := v.Feed.Recent(v.r.Context(), countsAge)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, w := range s.Workers {
		if v.seesWorker(w) {
			names = append(names, w.Kinds...)
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// group finds the error group that a list is about, or nil if there is none.
func (v *visit) group(fingerprint string) *groupRow {
	if fingerprint == "" {
		return nil
	}
	groups, _, err := Groups(v.r.Context(), v.client, v.who, store.ErrorFilter{Limit: 1000})
	if err != nil {
		return nil
	}
	for _, g := range groups {
		if g.Fingerprint == fingerprint {
			slots, err := v.trend.Of(v.r.Context(), []store.ErrorGroup{g}, time.Now())
			if err != nil {
				return nil
			}
			return &groupRow{g, sparkOf(slots[0])}
		}
	}
	return nil
}

// Budget is how many tasks a search in args looks through.
func (tasksData) Budget() int { return query.SearchBudget }

// SearchTime is how long such a search may take.
func (tasksData) SearchTime() string { return dur(query.SearchTime) }

// ListBudget is how many tasks a page looks through if no index finds the matches.
func (tasksData) ListBudget() int { return query.ListBudget }

// Short reports whether the page is not full although there may be more tasks.
func (d tasksData) Short() bool { return d.Looked == 0 && d.Next != "" && len(d.Tasks) < pageSize }
