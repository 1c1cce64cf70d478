package ui

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/internal/duration"
	"github.com/tuskqueue/tusk/server/query"
	"github.com/tuskqueue/tusk/store"
)

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
