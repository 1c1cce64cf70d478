package ui

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/internal/duration"
	"github.com/tuskqueue/tusk/server/query"
	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/why"
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

type taskData struct {
	*tusk.TaskInfo
	Detail  store.Detail
	All     bool // show everything, however long
	Actions []string
	Why     []why.Reason // why it does not run
	Flow    fmt.Stringer // the workflow that it belongs to or begins; nil if none
}

// Anew reports whether the task was retried by hand before attempt i, so that attempts were counted from 1 again.
// Attempts are sorted latest first.
func (d taskData) Anew(i int) bool {
	all := d.Detail.Attempts
	return i+1 < len(all) && all[i].Number <= all[i+1].Number
}

// Editable is for templates. The form checks again.
func (d taskData) Editable() bool { return replaceable(d.TaskInfo) }

func task(v *visit) (answer, error) {
	if part, is := v.partOfID(); is {
		return v.taskOfPart(part)
	}
	t, err := v.visible()
	if errors.Is(err, tusk.ErrNotFound) && v.Archive != nil {
		return v.archivedTask()
	}
	if err != nil {
		return answer{}, err
	}
	d := taskData{TaskInfo: t, All: v.r.URL.Query().Get("all") == "1", Actions: actionsOf(t.State)}
	if t.Detail != nil {
		d.Detail = *t.Detail
	}
	if !t.Workflow.IsZero() {
		d.Flow = t.Workflow
	} else if strings.Contains(t.Kind, ".") || len(d.Detail.Needs) > 0 {
		d.Flow = v.begins(t.ID)
	}
	slices.Reverse(d.Detail.Attempts)
	if d.Why, err = v.why(t); err != nil {
		return answer{}, err
	}
	a := answer{page: "task", title: t.Kind, section: "tasks", data: d}
	if !t.State.Finished() {
		a.watch = v.url("tasks", t.ID, "live")
	}
	return a, nil
}

// partOfID returns the part of an id, if the path has that instead of a whole id.
func (v *visit) partOfID() (part string, is bool) {
	part = v.r.PathValue("id")
	return part, query.IsPart(part) && len(part) < len(tusk.ID{}.String())
}

// taskOfPart redirects to the task whose id contains the part, or to a list if there are several.
func (v *visit) taskOfPart(part string) (answer, error) {
	id, err := query.FindID(v.r.Context(), v.client, v.who, part)
	switch {
	case errors.As(err, new(*query.AmbiguousError)):
		return goTo("/tasks?key=" + url.QueryEscape(part)), nil
	case err != nil:
		return answer{}, err
	}
	return goTo("/tasks/" + id.String()), nil
}

// why explains why an unfinished task does not run.
func (v *visit) why(t *tusk.TaskInfo) ([]why.Reason, error) {
	if t.State.Finished() {
		return nil, nil // the page says how it ended
	}
	facts, err := why.Gather(v.r.Context(), v.client, *t, v.who.Bounds())
	if err != nil {
		return nil, err
	}
	return why.Explain(facts), nil
}

// begins returns the id if other tasks belong to the task: it is the first of a pipeline's run, or has children.
func (v *visit) begins(id tusk.ID) fmt.Stringer {
	members, err := v.client.List(v.r.Context(), tusk.Filter{Workflow: id, Limit: 1})
	if err != nil || len(members) == 0 {
		return nil
	}
	return id
}

// actionsOf lists the actions that a state allows. The engine has the final say.
func actionsOf(s tusk.State) []string {
	switch s {
	case store.Running:
		return []string{"cancel"}
	case store.Available:
		return []string{"cancel", "reschedule", "reprioritize", "move", "delete"}
	case store.Scheduled, store.Retryable:
		return []string{"retry", "cancel", "reschedule", "reprioritize", "move", "delete"}
	case store.Pending:
		return []string{"cancel", "delete"}
	default:
		return []string{"retry", "delete"}
	}
}

// visible returns the task in the path if the visitor may see it.
func (v *visit) visible() (*tusk.TaskInfo, error) {
	id, err := tusk.ParseID(v.r.PathValue("id"))
	if err != nil {
		return nil, err
	}
	v.target = id.String()
	t, err := v.client.Get(v.r.Context(), id)
	if err != nil {
		return nil, err
	}
	if !v.who.Sees(t.Queue, t.Tenant) {
		return nil, tusk.ErrNotFound
	}
	return t, nil
}

// change reads a change from a form.
func (v *visit) change(action string) (c tusk.Change, err error) {
	for op := tusk.OpCancel; op <= tusk.OpReschedule; op++ {
		if op.String() == action {
			c.Op = op
		}
	}
	v.detail = action
	switch c.Op {
	case tusk.OpCancel:
		c.Reason = "cancelled by " + v.who.Name
	case tusk.OpReprioritize:
		n, err := strconv.ParseInt(v.r.PostFormValue("priority"), 10, 16)
		if err != nil {
			return c, failure(http.StatusBadRequest, "A priority is a whole number from -32768 to 32767. Lower runs sooner.")
		}
		c.Priority = int16(n)
	case tusk.OpMove:
		c.Queue = strings.TrimSpace(v.r.PostFormValue("to"))
		if !v.who.SeesQueue(c.Queue) {
			return c, failure(http.StatusForbidden, "You may not use that queue.")
		}
		return c, tusk.ValidateName("queue", c.Queue)
	case tusk.OpReschedule:
		c.RunAt, c.Delay, err = when(v.r.PostFormValue("when"))
	case tusk.OpRetry:
		if text := v.r.PostFormValue("retry_at"); strings.TrimSpace(text) != "" {
			c.RunAt, c.Delay, err = when(text)
		}
	case tusk.OpDelete:
	default:
		return c, failure(http.StatusNotFound, "There is no such action.")
	}
	return c, err
}

// when reads a delay like "10m", or a time.
func when(text string) (at time.Time, in time.Duration, err error) {
	text = strings.TrimSpace(text)
	if d, err := duration.ParseUnit(text); err == nil {
		return at, d, nil
	}
	if at, err = query.Instant("when", text, time.Now()); err != nil || at.IsZero() {
		return at, 0, failure(http.StatusBadRequest,
			"Say when: a time from now like 10m, 2h or 7d, or an instant like 2026-01-31T12:00 (UTC).")
	}
	return at, 0, nil
}

// confirmation asks before an action that cannot be undone.
type confirmation struct {
	Question, Detail, Button string
	Action                   string // where the form is sent
	Fields                   url.Values
	Type                     string // text that has to be typed; empty if none
	Retry                    bool   // asks for a pace and a time
	RetryAt                  string // as it was entered before
	Back                     string
}

func editTask(v *visit) (answer, error) {
	t, err := v.visible()
	if err != nil {
		return answer{}, err
	}
	action := v.r.PathValue("action")
	c, err := v.change(action)
	if err != nil {
		return answer{}, err
	}
	if c.Op == tusk.OpDelete && v.r.PostFormValue("confirm") != "yes" {
		return answer{page: "confirm", title: "Delete the task?", section: "tasks", data: confirmation{
			Question: "Delete this task and its history?", Detail: t.Kind + " · " + t.ID.String(), Button: "Delete",
			Action: v.url("tasks", t.ID, "delete"), Back: v.url("tasks", t.ID)}}, nil
	}
	if ask, err := v.askQueue(c.Queue, "tasks", "/tasks/"+t.ID.String()); err != nil || ask.page != "" {
		return ask, err
	}
	edited, err := v.client.Edit(v.r.Context(), []tusk.ID{t.ID}, c)
	if err != nil {
		return answer{}, err
	}
	to := "/tasks/" + t.ID.String()
	switch e := edited[0]; e.Result {
	case store.Missing:
		return answer{}, tusk.ErrNotFound
	case store.Refused:
		return answer{}, failure(http.StatusConflict, "The task is %v by now: that does not allow it.", e.State)
	case store.KeyTaken:
		return answer{}, failure(http.StatusConflict, "Another unfinished task has its key.")
	case store.Requested:
		return goTo(to, "requested"), nil
	}
	switch c.Op {
	case tusk.OpDelete:
		return goTo("/tasks", "deleted"), nil
	case tusk.OpCancel:
		return goTo(to, "cancelled"), nil
	case tusk.OpRetry:
		return goTo(to, "retried"), nil
	default:
		return goTo(to, "changed"), nil
	}
}

// editSelected changes the selected tasks, or all that match.
func editSelected(v *visit) (answer, error) {
	if v.r.PostFormValue("scope") == "all" {
		return startBulk(v)
	}
	c, err := v.change(v.r.PostFormValue("action"))
	if err != nil {
		return answer{}, err
	}
	var ids []tusk.ID
	for _, text := range v.r.PostForm["id"] {
		id, err := tusk.ParseID(text)
		if err != nil {
			return answer{}, err
		}
		ids = append(ids, id)
	}
	if len(ids) == 0 {
		return answer{}, failure(http.StatusBadRequest,
			"No task is selected. Tick the boxes of some, or choose all that match.")
	}
	back := "/tasks?" + v.r.PostFormValue("query")
	v.target = strconv.Itoa(len(ids)) + " tasks"
	if c.Op == tusk.OpDelete && v.r.PostFormValue("confirm") != "yes" {
		fields := url.Values{"id": v.r.PostForm["id"], "action": {"delete"}, "query": {v.r.PostFormValue("query")}}
		return answer{page: "confirm", title: "Delete tasks?", section: "tasks", data: confirmation{
			Question: "Delete " + v.target + " and their history?", Detail: "Tasks that run are left alone.", Button: "Delete",
			Action: v.url("tasks", "selected"), Fields: fields, Back: v.Prefix + back}}, nil
	}
	if ask, err := v.askQueue(c.Queue, "tasks", back); err != nil || ask.page != "" {
		return ask, err
	}
	mine, err := v.mine(ids)
	if err != nil {
		return answer{}, err
	}
	if _, err := v.client.Edit(v.r.Context(), mine, c); err != nil {
		return answer{}, err
	}
	return goTo(back, "edited"), nil
}

// mine returns the tasks that the visitor may see.
func (v *visit) mine(ids []tusk.ID) ([]tusk.ID, error) {
	found, err := v.client.List(v.r.Context(), tusk.Filter{IDs: ids, Limit: min(len(ids), store.MaxPage), NoArgs: true})
	if err != nil {
		return nil, err
	}
	var mine []tusk.ID
	for _, t := range found {
		if v.who.Sees(t.Queue, t.Tenant) {
			mine = append(mine, t.ID)
		}
	}
	return mine, nil
}
