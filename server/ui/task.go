package ui

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/server/query"
	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/why"
)

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
