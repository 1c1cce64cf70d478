package server

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/server/access"
	"github.com/tuskqueue/tusk/store"
)

// LeaseAction is what to do with one leased task.
type LeaseAction struct {
	Action string `json:"action" doc:"complete, wait, fail, extend or release; any other is this item's error invalid_action"`
	LeaseActionInput
}

// LeaseActionInput has the fields of all five actions. No text or number makes the whole request invalid, except in
// children: a bad item fails alone.
type LeaseActionInput struct {
	LeaseID  string           `json:"lease_id" doc:"a malformed one is this item's error invalid_id"`
	Output   json.RawMessage  `json:"output,omitempty" doc:"complete: the output of the task; with another action it is this item's error not_for_action"`
	GoTo     *string          `json:"go_to,omitempty" doc:"complete: the next stage of its pipeline; a malformed name is this item's error invalid_name"`
	Children []tusk.ChildTask `json:"children,omitempty" doc:"complete and wait: tasks to enqueue, up to 10000 in a request"`
	Error    string           `json:"error,omitempty" doc:"fail: what went wrong"`
	Trace    string           `json:"trace,omitempty" doc:"fail: the stack trace"`
	RetryIn  *Duration        `json:"retry_in,omitempty" doc:"fail: instead of the task's own backoff"`
	Discard  bool             `json:"discard,omitempty" doc:"fail: a retry would not help"`
	Lease    Duration         `json:"lease,omitempty" doc:"extend: from now; default: 30s"`
	Progress *LeaseProgress   `json:"progress,omitempty" doc:"extend: the progress"`
	Logs     []string         `json:"logs,omitempty" doc:"extend: log lines to keep with the task"`
	Delay    Duration         `json:"delay,omitempty" doc:"release: the earliest time to run again"`
}

// LeaseProgress is the progress of an item's task.
type LeaseProgress struct {
	Percent float64 `json:"percent" doc:"0 to 100; another is this item's error out_of_range"`
	Message string  `json:"message,omitempty"`
}

// LeaseResult says what became of one leased task.
type LeaseResult struct {
	LeaseID         string    `json:"lease_id"`
	OK              bool      `json:"ok"`
	Code            string    `json:"code,omitempty" doc:"if ok is false: lease_lost, lent_elsewhere, or another code"`
	Field           string    `json:"field,omitempty" doc:"what the error is about, such as children[2].queue"`
	Detail          string    `json:"detail,omitempty"`
	LeaseUntil      time.Time `json:"lease_until,omitzero"`
	CancelRequested bool      `json:"cancel_requested,omitempty" doc:"the task was cancelled: stop, and fail or release it"`

	problem *Problem // nil if OK
}

type completeInput struct {
	Body struct {
		LeaseID string `json:"lease_id" rule:"lease"`
		Output  json.
			RawMessage `json:"output,omitempty" doc:"the output of the task, up to 256 KiB, more with /lease/complete/large; for a pipeline stage, the input of the next stage"`
		GoTo     *string          `json:"go_to,omitempty" rule:"optional-name" doc:"the next stage of its pipeline; empty: the run ends; default: the stage that follows"`
		Children []tusk.ChildTask `json:"children,omitempty" maxItems:"10000" doc:"tasks to enqueue, which nothing waits for; needs the permission enqueue too"`
	}
}

func completeLease(c *call, in completeInput) (LeaseResult, error) {
	return c.one("complete", LeaseActionInput{LeaseID: in.Body.LeaseID, Output: in.Body.Output, GoTo: in.Body.GoTo,
		Children: in.Body.Children})
}

type waitInput struct {
	Body struct {
		LeaseID  string           `json:"lease_id" rule:"lease"`
		Children []tusk.ChildTask `json:"children" minItems:"1" maxItems:"10000" doc:"tasks to enqueue and wait for; needs the permission enqueue too"`
	}
}

func waitLease(c *call, in waitInput) (LeaseResult, error) {
	return c.one("wait", LeaseActionInput{LeaseID: in.Body.LeaseID, Children: in.Body.Children})
}

type failInput struct {
	Body struct {
		LeaseID string    `json:"lease_id" rule:"lease"`
		Error   string    `json:"error" rule:"error" doc:"what went wrong"`
		Trace   string    `json:"trace,omitempty" doc:"the stack trace"`
		RetryIn *Duration `json:"retry_in,omitempty" doc:"instead of the task's own backoff"`
		Discard bool      `json:"discard,omitempty" doc:"a retry would not help"`
	}
}

func failLease(c *call, in failInput) (LeaseResult, error) {
	b := in.Body
	return c.one("fail", LeaseActionInput{LeaseID: b.LeaseID, Error: b.Error, Trace: b.Trace, RetryIn: b.RetryIn,
		Discard: b.Discard})
}

type extendInput struct {
	Body struct {
		LeaseID  string          `json:"lease_id" rule:"lease"`
		Lease    Duration        `json:"lease,omitempty" doc:"from now; default: 30s"`
		Progress *store.Progress `json:"progress,omitempty"`
		Logs     []string        `json:"logs,omitempty" doc:"log lines to keep with the task"`
	}
}

func extendLease(c *call, in extendInput) (LeaseResult, error) {
	b := in.Body
	return c.one("extend", LeaseActionInput{LeaseID: b.LeaseID, Lease: b.Lease, Progress: (*LeaseProgress)(b.Progress),
		Logs: b.Logs})
}

type releaseInput struct {
	Body struct {
		LeaseID string   `json:"lease_id" rule:"lease"`
		Delay   Duration `json:"delay,omitempty" doc:"the earliest time to run again"`
	}
}

func releaseLease(c *call, in releaseInput) (LeaseResult, error) {
	return c.one("release", LeaseActionInput{LeaseID: in.Body.LeaseID, Delay: in.Body.Delay})
}

type leaseBatchInput struct {
	Body struct {
		Items []LeaseAction `json:"items" minItems:"1" maxItems:"1000"`
	}
}

// LeaseResults says what became of each item, in the same order.
type LeaseResults struct {
	Results []LeaseResult `json:"results"`
}

func batchLease(c *call, in leaseBatchInput) (LeaseResults, error) {
	results, err := c.leases(in.Body.Items)
	return LeaseResults{Results: results}, err
}

func (c *call) one(action string, in LeaseActionInput) (LeaseResult, error) {
	results, err := c.leases([]LeaseAction{{action, in}})
	if err != nil {
		return LeaseResult{}, err
	}
	if r := results[0]; r.problem != nil {
		return r, r.problem
	}
	return results[0], nil
}

// leases carries out each item. A bad item fails alone.
func (c *call) leases(items []LeaseAction) ([]LeaseResult, error) {
	results := make([]LeaseResult, len(items))
	receipts := make([]tusk.Receipt, len(items))
	for i, item := range items {
		results[i].LeaseID = short(item.LeaseID)
		var err error
		if receipts[i], err = tusk.ParseReceipt(item.LeaseID); err != nil {
			results[i].refuse(err)
		} else {
			results[i].LeaseID = item.LeaseID
		}
	}
	tasks, err := c.puller.Find(c.r.Context(), receipts)
	if err != nil {
		return nil, err
	}
	var verdicts []tusk.Verdict
	var extensions []tusk.Extension
	var index, extended []int
	children := 0
	for i, item := range items {
		r := &results[i]
		if r.Code != "" {
			continue
		}
		if err := c.mayDo(&item, tasks[i], children); err != nil {
			r.refuse(err)
			continue
		}
		children += len(item.Children)
		if item.Action == "extend" {
			e, err := item.extension(receipts[i])
			if r.refuse(err); err == nil {
				extensions, extended = append(extensions, e), append(extended, i)
			}
			continue
		}
		v, err := item.verdict(receipts[i])
		if r.refuse(err); err == nil {
			verdicts, index = append(verdicts, v), append(index, i)
		}
	}
	for n, answer := range c.puller.Extend(c.r.Context(), extensions...) {
		r := &results[extended[n]]
		r.LeaseUntil, r.CancelRequested = utc(answer.Until), answer.Cancelled
		r.refuse(answer.Err)
	}
	if len(verdicts) == 0 {
		return results, nil
	}
	ends, err := c.puller.Finish(c.r.Context(), verdicts)
	for n, i := range index {
		if err == nil {
			results[i].refuse(ends[n])
		}
	}
	return results, err
}

// mayDo refuses an invalid item, and one that the caller may not carry out. children counts those of the items before.
func (c *call) mayDo(a *LeaseAction, t *store.Task, children int) error {
	if t != nil && !c.who.Sees(t.Queue, t.Tenant) {
		return problem(http.StatusForbidden, "forbidden", "your %s may not work on this queue", c.who.Via)
	}
	if err := a.check(); err != nil {
		return err
	}
	if err := c.maySpawn(a); err != nil {
		return err
	}
	if n := children + len(a.Children); n > tusk.MaxWorkflow {
		return fieldProblem(http.StatusUnprocessableEntity, "too_many", "children",
			"are %d with those of the items before, at most %d are allowed in a request", n, tusk.MaxWorkflow)
	}
	return nil
}

func (a *LeaseAction) extension(r tusk.Receipt) (e tusk.Extension, err error) {
	if p := a.Progress; p != nil && (p.Percent < 0 || p.Percent > 100) {
		return e, fieldProblem(http.StatusUnprocessableEntity, "out_of_range", "progress.percent", "want 0 to 100")
	}
	return tusk.Extension{Receipt: r, Lease: time.Duration(a.Lease), Progress: (*store.Progress)(a.Progress),
		Logs: a.Logs}, nil
}

// refuse records an error; nil means success.
func (r *LeaseResult) refuse(err error) {
	if r.OK = err == nil; !r.OK {
		r.problem = problemOf(err)
		r.Code, r.Field, r.Detail = r.problem.Code, r.problem.Field, r.problem.Detail
	}
}

// check refuses an action that does not exist, and fields that the action does not take although leaving them out would
// lose data.
func (a *LeaseAction) check() error {
	switch a.Action {
	case "complete", "wait", "fail", "extend", "release":
	default:
		return fieldProblem(http.StatusUnprocessableEntity, "invalid_action", "action",
			"want complete, wait, fail, extend or release")
	}
	if len(a.Children) > 0 && a.Action != "complete" && a.Action != "wait" {
		return fieldProblem(http.StatusUnprocessableEntity, "not_for_action", "children", "go only with complete and wait")
	}
	if len(a.Output) > 0 && string(a.Output) != "null" && a.Action != "complete" {
		return fieldProblem(http.StatusUnprocessableEntity, "not_for_action", "output", "goes only with complete")
	}
	return nil
}

// maySpawn reports whether the caller may enqueue the children of an item. Their tenant is that of their parent, which
// the caller may work on.
func (c *call) maySpawn(a *LeaseAction) error {
	if len(a.Children) == 0 {
		return nil
	}
	if !c.who.May(access.Enqueue) {
		return fieldProblem(http.StatusForbidden, "forbidden", "children", "the role %s may not enqueue tasks, and so no "+
			"children: use a token with the role %s", c.who.Role, access.Service)
	}
	for i, child := range a.Children {
		if queue := cmp.Or(child.Queue, tusk.DefaultQueue); !c.who.SeesQueue(queue) {
			p := notIts(c.who, "queue", queue)
			p.Field = fmt.Sprintf("children[%d].queue", i)
			return p
		}
	}
	return nil
}

func (a LeaseAction) verdict(r tusk.Receipt) (tusk.Verdict, error) {
	v := tusk.Verdict{Receipt: r, Children: a.Children}
	switch a.Action {
	case "wait":
		v.Err = tusk.Wait()
		return v, nil
	case "complete":
		v.Output = a.Output
		if a.GoTo != nil {
			if *a.GoTo != "" {
				if err := tusk.ValidateName("go_to", *a.GoTo); err != nil {
					return v, err
				}
			}
			v.Err = tusk.GoTo(*a.GoTo)
		}
		if len(a.Output) == 0 {
			return v, nil
		}
		return v, tusk.ValidateOutput(a.Output)
	case "release":
		if v.Err = tusk.ErrShutdown; a.Delay > 0 {
			v.Err = tusk.Snooze(min(time.Duration(a.Delay), tusk.MaxAhead))
		}
		return v, nil
	}
	if a.Error == "" {
		return v, fieldProblem(http.StatusUnprocessableEntity, "missing_field", "error",
			"is missing: say what went wrong")
	}
	v.Trace = a.Trace
	switch v.Err = errors.New(a.Error); {
	case a.Discard:
		v.Err = tusk.Discard(v.Err)
	case a.RetryIn != nil:
		v.Err = tusk.RetryAfter(min(time.Duration(*a.RetryIn), tusk.MaxAhead), v.Err)
	}
	return v, nil
}
