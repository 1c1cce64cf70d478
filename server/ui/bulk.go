package ui

import (
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/server/query"
	"github.com/tuskqueue/tusk/store"
)

// startBulk first asks for confirmation, with the number of matching tasks, and then begins.
func startBulk(v *visit) (answer, error) {
	text := v.r.PostFormValue("query")
	values, err := url.ParseQuery(text)
	if err != nil {
		return answer{}, failure(http.StatusBadRequest, "The filter cannot be read.")
	}
	q := query.FromValues(values)
	f, err := q.Filter()
	if err = errors.Join(err, q.Indexed()); err != nil {
		return answer{}, err
	}
	action := v.r.PostFormValue("action")
	c, err := v.change(action)
	if err != nil {
		return answer{}, err
	}
	v.detail = action + " where " + q.Values().Encode()
	if f.States = tusk.StatesFor(c.Op, f.States); len(f.States) == 0 {
		return answer{}, failure(http.StatusConflict, "No task in these states can be changed so.")
	}
	count, err := v.count(f)
	if err != nil {
		return answer{}, err
	}
	typed := ""
	if c.Op == tusk.OpDelete {
		typed = count
	}
	ask, err := v.newQueue(c.Queue)
	if err != nil {
		return answer{}, err
	}
	if v.r.PostFormValue("confirm") != "yes" || typed != "" &&
		strings.TrimSpace(v.r.PostFormValue("typed")) != v.r.PostFormValue("type") {
		fields := url.Values{"query": {text}, "action": {action}, "scope": {"all"}, "type": {typed}}
		for _, name := range []string{"priority", "to", "when"} {
			if value := v.r.PostFormValue(name); value != "" {
				fields.Set(name, value)
			}
		}
		return answer{page: "confirm", title: "All that match?", section: "tasks", data: confirmation{
			Question: strings.ToUpper(action[:1]) + action[1:] + " all " + count + " tasks that match?",
			Detail:   strings.TrimSpace(filterWords(q) + changeWords(c) + " " + ask), Button: strings.ToUpper(action[:1]) +
				action[1:] + " " + count + " tasks", Type: typed,
			Retry: c.Op == tusk.OpRetry, RetryAt: v.r.PostFormValue("retry_at"),
			Action: v.url("bulk"), Fields: fields, Back: v.url("tasks") + "?" + q.Values().Encode()}}, nil
	}
	o, err := v.startOperation(f, c, count)
	if err != nil {
		return answer{}, err
	}
	v.target = o.ID.String()
	return goTo("/bulk/"+o.ID.String(), "started"), nil
}

// counting is how long a visitor waits for a count.
const counting = 3 * time.Second

// count returns an exact number unless counting takes too long. Then it returns the number so far with a "+".
func (v *visit) count(f tusk.Filter) (string, error) {
	n, begun := 0, time.Now()
	f.Limit, f.NoArgs = store.MaxPage, true
	for {
		tasks, more, err := query.Visible(v.r.Context(), v.client, v.who, f)
		n += len(tasks)
		switch {
		case err != nil || more.IsZero():
			return strconv.Itoa(n), err
		case time.Since(begun) > counting:
			return strconv.Itoa(n) + "+", nil
		}
		f.Before = more
	}
}

func filterWords(q query.Tasks) string {
	var parts []string
	for _, c := range chips(q) {
		parts = append(parts, c.Name+" is "+c.Value)
	}
	if len(parts) == 0 {
		return "There is no filter: that is every task there is."
	}
	return "Where " + strings.Join(parts, ", ") + "."
}

// changeWords describes what a change does to tasks.
func changeWords(c tusk.Change) string {
	switch {
	case c.Op == tusk.OpMove:
		return " They move to the queue " + c.Queue + "."
	case c.Op == tusk.OpReprioritize:
		return " Their priority becomes " + strconv.Itoa(int(c.Priority)) + "."
	case c.Delay > 0:
		return " They run in " + dur(c.Delay) + "."
	case !c.RunAt.IsZero():
		return " They run at " + c.RunAt.UTC().Format(time.RFC3339) + "."
	}
	return ""
}

func retryErrors(v *visit) (answer, error) {
	v.target = v.r.PathValue("fingerprint")
	change, err := v.change("retry")
	if err != nil {
		return answer{}, err
	}
	if err := query.HasError(v.r.Context(), v.client, v.who, v.target); err != nil {
		return answer{}, err
	}
	f := tusk.Filter{Fingerprint: v.target, States: tusk.StatesFor(tusk.OpRetry, nil)}
	count, err := v.count(f)
	if err != nil {
		return answer{}, err
	}
	if v.r.PostFormValue("confirm") != "yes" {
		return answer{page: "confirm", title: "Retry all of them?", section: "errors", data: confirmation{
			Question: "Retry all tasks with this error?", Retry: true,
			Detail: "Tasks: " + count + ". Those that wait for a retry do not wait it out; those that were discarded " +
				"begin again. Set a time or a pace if whatever failed needs time to recover.",
			Button: "Retry", Action: v.url("errors", v.target, "retry"), Fields: url.Values{}, Back: v.url("errors")}}, nil
	}
	o, err := v.startOperation(f, change, count)
	if err != nil {
		return answer{}, err
	}
	return goTo("/bulk/"+o.ID.String(), "started"), nil
}

// startOperation begins a change on behalf of the visitor and within the visitor's permissions.
func (v *visit) startOperation(f tusk.Filter, c tusk.Change, count string) (tusk.Operation, error) {
	pace, expected := 0, int64(0)
	if text := v.r.PostFormValue("per_second"); text != "" {
		var err error
		if pace, err = strconv.Atoi(text); err != nil || pace < 1 || pace > 1000000 {
			return tusk.Operation{}, failure(http.StatusUnprocessableEntity,
				"The pace is a number from 1 to 1,000,000 tasks a second.")
		}
	}
	if n, err := strconv.ParseInt(count, 10, 64); err == nil { // unknown if counting ended early
		expected = n
	}
	return v.client.StartOperation(v.r.Context(), f, c, &tusk.OperationOptions{
		PerSecond: pace, Expected: expected, Owner: v.who.ID, By: v.who.Name, Via: v.who.Via, Queues: v.who.Queues,
		Tenants: v.who.Tenants})
}

func operations(v *visit) (answer, error) {
	all, err := v.client.Operations(v.r.Context())
	if err != nil {
		return answer{}, err
	}
	var seen []tusk.Operation
	for _, o := range all {
		if v.who.Knows(o.Owner) {
			seen = append(seen, o)
		}
	}
	return answer{page: "bulk", title: "Bulk operations", section: "bulk", data: seen}, nil
}

// operation returns the operation in the path if the visitor may see it.
func (v *visit) operation() (tusk.Operation, error) {
	v.target = v.r.PathValue("id")
	id, err := tusk.ParseID(v.target)
	if err != nil {
		return tusk.Operation{}, tusk.ErrNotFound
	}
	o, err := v.client.Operation(v.r.Context(), id)
	if err == nil && !v.who.Knows(o.Owner) {
		err = tusk.ErrNotFound
	}
	return o, err
}

type operationData struct {
	tusk.Operation
	Words string // the filter and the change in words
	Query string // the filter as a query of the task list
}

// Stops reports, for templates, whether the operation can be cancelled.
func (d operationData) Stops() bool { return !d.Ended() && !d.CancelRequested }

// Stopping reports, for templates, whether the operation was cancelled and is at its last page.
func (d operationData) Stopping() bool { return !d.Ended() && d.CancelRequested }

func operation(v *visit) (answer, error) {
	a := answer{title: "Bulk operation", section: "bulk"}
	if part, is := v.partOfID(); is {
		id, err := query.FindOperation(v.r.Context(), v.client, v.who.Knows, part)
		return goTo("/bulk/" + id.String()), err
	}
	o, err := v.operation()
	if err != nil {
		return a, err
	}
	q := query.Of(o.Filter)
	a.page, a.data = "operation", operationData{o, filterWords(q) + changeWords(o.Change), q.Values().Encode()}
	if !o.Ended() {
		a.watch = v.url("bulk", o.ID, "live")
	}
	return a, nil
}

func cancelBulk(v *visit) (answer, error) {
	o, err := v.operation()
	if err != nil {
		return answer{}, err
	}
	return goTo("/bulk/"+o.ID.String(), "stopping"), v.client.CancelOperation(v.r.Context(), o.ID)
}
