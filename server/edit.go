package server

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/server/access"
	"github.com/tuskqueue/tusk/server/query"
	"github.com/tuskqueue/tusk/store"
)

// ChangeInput is one thing to do to tasks.
type ChangeInput struct {
	Action   string   `json:"action" enum:"cancel,retry,delete,reprioritize,move,reschedule"`
	Reason   string   `json:"reason,omitempty" rule:"reason" doc:"for cancel"`
	Priority *int16   `json:"priority,omitempty" rule:"priority" doc:"for reprioritize"`
	Queue    string   `json:"queue,omitempty" rule:"optional-name" doc:"for move"`
	Create   bool     `json:"create,omitempty" doc:"for move: accept an unknown queue"`
	RunAt    *Instant `json:"run_at,omitempty" doc:"for retry and reschedule"`
	Delay    Duration `json:"delay,omitempty" doc:"for retry and reschedule; not together with run_at"`
}

const maxReason = 1024 // bytes of the reason of a cancellation

func (in ChangeInput) change(c *call) (tusk.Change, error) {
	out := tusk.Change{Reason: in.Reason, RunAt: instant(in.RunAt), Delay: time.Duration(in.Delay)}
	for op := tusk.OpCancel; op <= tusk.OpReschedule; op++ {
		if op.String() == in.Action {
			out.Op = op
		}
	}
	switch out.Op {
	case 0:
		return out, fieldProblem(http.StatusUnprocessableEntity, "invalid_action", "action",
			"want cancel, retry, delete, reprioritize, move or reschedule")
	case tusk.OpReprioritize:
		if in.Priority == nil {
			return out, fieldProblem(http.StatusUnprocessableEntity, "missing_field", "priority", "is missing")
		}
		out.Priority = *in.Priority
	case tusk.OpMove:
		if in.Queue == "" {
			return out, fieldProblem(http.StatusUnprocessableEntity, "missing_field", "queue", "is missing")
		}
		if err := tusk.ValidateName("queue", in.Queue); err != nil {
			return out, err
		}
		if !c.who.SeesQueue(in.Queue) {
			return out, notIts(c.who, "queue", in.Queue)
		}
		if out.Queue = in.Queue; !in.Create {
			if err := c.known(in.Queue, `say "create": true`); err != nil {
				return out, err
			}
		}
	}
	if len(in.Reason) > maxReason {
		return out, fieldProblem(http.StatusUnprocessableEntity, "too_long", "reason", "has more than %d bytes", maxReason)
	}
	return out, nil
}

// Edited says what an edit did to one task.
type Edited struct {
	ID     string `json:"id"`
	Result string `json:"result" enum:"changed,requested,refused,missing,key taken"`
	State  string `json:"state,omitempty" doc:"the state after the edit, or the state that prevented it"`
}

func viewEdited(e tusk.Edited) Edited {
	v := Edited{ID: e.ID.String(), Result: e.Result.String()}
	if e.State != 0 {
		v.State = e.State.String()
	}
	return v
}

// edit changes one task. If the task does not allow the change, that is a problem.
func (c *call) edit(id tusk.ID, in ChangeInput) (Edited, error) {
	if _, err := c.visible(id); err != nil {
		return Edited{}, err
	}
	change, err := in.change(c)
	if err != nil {
		return Edited{}, err
	}
	edited, err := c.client.Edit(c.r.Context(), []tusk.ID{id}, change)
	if err != nil {
		return Edited{}, err
	}
	switch e := edited[0]; e.Result {
	case store.Missing:
		return Edited{}, problem(http.StatusNotFound, "not_found", "task %s: not found", id)
	case store.Refused:
		return Edited{}, problem(http.StatusConflict, "invalid_state", "a task that is %v cannot be changed so: %s",
			e.State, in.Action)
	case store.KeyTaken:
		return Edited{}, problem(http.StatusConflict, "key_taken", "another unfinished task has its key")
	default:
		return viewEdited(e), nil
	}
}

type cancelInput struct {
	byID
	Body *struct {
		Reason string `json:"reason,omitempty" rule:"reason"`
	}
}

func cancelTask(c *call, in cancelInput) (Edited, error) {
	change := ChangeInput{Action: "cancel"}
	if in.Body != nil {
		change.Reason = in.Body.Reason
	}
	return c.edit(in.ID, change)
}

// WhenInput is when something should happen; empty means now.
type WhenInput struct {
	RunAt *Instant `json:"run_at,omitempty"`
	Delay Duration `json:"delay,omitempty" doc:"not together with run_at"`
}

type retryInput struct {
	byID
	Body *WhenInput
}

func retryTask(c *call, in retryInput) (Edited, error) {
	change := ChangeInput{Action: "retry"}
	if in.Body != nil {
		change.RunAt, change.Delay = in.Body.RunAt, in.Body.Delay
	}
	return c.edit(in.ID, change)
}

type rescheduleInput struct {
	byID
	Body WhenInput
}

func rescheduleTask(c *call, in rescheduleInput) (Edited, error) {
	return c.edit(in.ID, ChangeInput{Action: "reschedule", RunAt: in.Body.RunAt, Delay: in.Body.Delay})
}

type reprioritizeInput struct {
	byID
	Body struct {
		Priority *int16 `json:"priority" rule:"priority" doc:"lower runs sooner"`
	}
}

func reprioritizeTask(c *call, in reprioritizeInput) (Edited, error) {
	c.detail = "priority"
	return c.edit(in.ID, ChangeInput{Action: "reprioritize", Priority: in.Body.Priority})
}

type moveInput struct {
	byID
	Body struct {
		Queue  string `json:"queue" rule:"name"`
		Create bool   `json:"create,omitempty" doc:"accept an unknown queue"`
	}
}

func moveTask(c *call, in moveInput) (Edited, error) {
	c.detail = "to " + short(in.Body.Queue)
	return c.edit(in.ID, ChangeInput{Action: "move", Queue: in.Body.Queue, Create: in.Body.Create})
}

func deleteTask(c *call, in byID) (Edited, error) {
	return c.edit(in.ID, ChangeInput{Action: "delete"})
}

type editManyInput struct {
	Body EditInput
}

// EditInput is one change to many tasks.
type EditInput struct {
	IDs []tusk.ID `json:"ids" minItems:"1" maxItems:"1000"`
	ChangeInput
}

// EditResults says what became of each task, in the same order.
type EditResults struct {
	Results []Edited `json:"results"`
}

func editTasks(c *call, in editManyInput) (EditResults, error) {
	ids := in.Body.IDs
	c.target, c.detail = plural(len(ids), "task"), in.Body.Action
	change, err := in.Body.change(c)
	if err != nil {
		return EditResults{}, err
	}
	seen, err := c.visibleIDs(ids)
	if err != nil {
		return EditResults{}, err
	}
	var mine []tusk.ID
	for _, id := range ids {
		if seen[id] {
			mine = append(mine, id)
		}
	}
	edited, err := c.client.Edit(c.r.Context(), mine, change)
	if err != nil {
		return EditResults{}, err
	}
	out := EditResults{Results: make([]Edited, len(ids))}
	for i, id := range ids {
		if out.Results[i] = (Edited{ID: id.String(), Result: store.Missing.String()}); seen[id] {
			out.Results[i], edited = viewEdited(edited[0]), edited[1:]
		}
	}
	return out, nil
}

type bulkInput struct {
	Body BulkInput
}

// BulkInput is one change to all tasks that match.
type BulkInput struct {
	Filter    query.Tasks `json:"filter" doc:"which tasks; for all tasks it is empty, and all is true"`
	All       bool        `json:"all,omitempty" doc:"confirms an empty filter: every task is changed"`
	PerSecond int         `json:"per_second,omitempty" minimum:"0" maximum:"1000000" doc:"default: no limit"`
	ChangeInput
}

// BulkPage is a list of bulk operations.
type BulkPage struct {
	Operations []Bulk `json:"operations"`
}

// Bulk is a bulk operation as the API shows it.
type Bulk struct {
	ID              string      `json:"id"`
	State           string      `json:"state" enum:"running,done,cancelled"`
	Action          string      `json:"action"`
	By              string      `json:"by"`
	Filter          query.Tasks `json:"filter" doc:"which tasks it changes, of those that existed when it began"`
	PerSecond       int         `json:"per_second,omitempty" doc:"the maximum number of tasks that it changes per second"`
	Expected        int64       `json:"expected,omitempty" doc:"the expected number of tasks; absent: unknown"`
	Seen            int64       `json:"seen" doc:"tasks looked at"`
	Changed         int64       `json:"changed"`
	Requested       int64       `json:"requested" doc:"running tasks that were told to stop"`
	Refused         int64       `json:"refused" doc:"tasks whose state did not allow the change"`
	KeyTaken        int64       `json:"key_taken" doc:"tasks whose key another unfinished task has"`
	Left            []Edited    `json:"left,omitempty" doc:"the first tasks that were skipped, at most 20, and why"`
	StartedAt       time.Time   `json:"started_at"`
	FinishedAt      time.Time   `json:"finished_at,omitzero"`
	CancelRequested bool        `json:"cancel_requested,omitempty"`
	Error           string      `json:"error,omitempty" doc:"the error of its latest page, which is retried"`
}

func viewBulk(o tusk.Operation) Bulk {
	v := Bulk{ID: o.ID.String(), State: string(o.State), Action: o.Change.Op.String(), By: o.By,
		Filter:    query.Of(o.Filter),
		PerSecond: o.PerSecond, Expected: o.Expected, Seen: o.Seen, Changed: o.Changed, Requested: o.Requested,
		Refused: o.Refused, KeyTaken: o.KeyTaken, StartedAt: utc(o.StartedAt), FinishedAt: utc(o.FinishedAt),
		CancelRequested: o.CancelRequested, Error: o.Error}
	for _, e := range o.Left {
		v.Left = append(v.Left, viewEdited(e))
	}
	return v
}

// boundsOf returns the options that an operation takes from the identity that starts it.
func boundsOf(who access.Identity) tusk.OperationOptions {
	return tusk.OperationOptions{Owner: who.ID, By: who.Name, Via: who.Via, Queues: who.Queues, Tenants: who.Tenants}
}

func startBulk(c *call, in bulkInput) (Bulk, error) {
	f, err := in.Body.Filter.Filter()
	if err = errors.Join(err, in.Body.Filter.Indexed()); err != nil {
		return Bulk{}, err
	}
	if in.Body.All != in.Body.Filter.IsZero() {
		return Bulk{}, fieldProblem(http.StatusUnprocessableEntity, "all_or_filter", "all",
			"say which tasks in the filter, or that all of them are meant: an empty filter with \"all\": true")
	}
	change, err := in.Body.change(c)
	if err != nil {
		return Bulk{}, err
	}
	c.detail = fmt.Sprintf("%s where %s", in.Body.Action, in.Body.Filter.Values().Encode())
	with := boundsOf(c.who)
	with.PerSecond = in.Body.PerSecond
	o, err := c.client.StartOperation(c.r.Context(), f, change, &with)
	if err != nil {
		return Bulk{}, err
	}
	c.target = o.ID.String()
	return viewBulk(o), nil
}

type retryErrorsInput struct {
	Fingerprint string `path:"fingerprint" rule:"value"`
	Body        *struct {
		WhenInput
		PerSecond int `json:"per_second,omitempty" minimum:"0" maximum:"1000000" doc:"default: no limit"`
	}
}

func retryErrors(c *call, in retryErrorsInput) (Bulk, error) {
	f := tusk.Filter{Fingerprint: in.Fingerprint, States: []tusk.State{tusk.StateRetryable, tusk.StateDiscarded}}
	c.target = short(in.Fingerprint)
	if err := query.HasError(c.r.Context(), c.client, c.who, in.Fingerprint); err != nil {
		return Bulk{}, fmt.Errorf("%w (GET /api/v1/errors lists the groups)", err)
	}
	with, change := boundsOf(c.who), tusk.Change{Op: tusk.OpRetry}
	if in.Body != nil {
		change.RunAt, change.Delay = instant(in.Body.RunAt), time.Duration(in.Body.Delay)
		with.PerSecond = in.Body.PerSecond
	}
	o, err := c.client.StartOperation(c.r.Context(), f, change, &with)
	if err != nil {
		return Bulk{}, err
	}
	return viewBulk(o), nil
}

type byOperation struct {
	ID tusk.ID `path:"id"`
}

// ownBulk returns an operation that the caller may see: its own, or any if the caller has no bounds.
func (c *call) ownBulk(id tusk.ID) (tusk.Operation, error) {
	c.target = id.String()
	o, err := c.client.Operation(c.r.Context(), id)
	if err == nil && !c.who.Knows(o.Owner) {
		err = tusk.ErrNotFound
	}
	return o, err
}

func listBulk(c *call, _ struct{}) (BulkPage, error) {
	page := BulkPage{Operations: []Bulk{}}
	operations, err := c.client.Operations(c.r.Context())
	for _, o := range operations {
		if c.who.Knows(o.Owner) {
			page.Operations = append(page.Operations, viewBulk(o))
		}
	}
	return page, err
}

func getBulk(c *call, in byOperation) (Bulk, error) {
	o, err := c.ownBulk(in.ID)
	return viewBulk(o), err
}

func cancelBulk(c *call, in byOperation) (Bulk, error) {
	if _, err := c.ownBulk(in.ID); err != nil {
		return Bulk{}, err
	}
	if err := c.client.CancelOperation(c.r.Context(), in.ID); err != nil {
		return Bulk{}, err
	}
	return getBulk(c, in)
}
