package server

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/store"
)

// The API for workers in any language: lease tasks, then complete, fail, extend or release each of them. If a lease
// is neither ended nor extended in time, the attempt has failed.

type leaseInput struct {
	Body LeaseRequest
}

// LeaseRequest requests tasks.
type LeaseRequest struct {
	Queues []string `json:"queues" rule:"name" minItems:"1" maxItems:"100"`
	Max    int      `json:"max,omitempty" minimum:"0" maximum:"1000" doc:"0: the default, 1; a response has at most about 8 MiB of args"`
	Lease  Duration `json:"lease,omitempty" doc:"how long the lease lasts unless it is extended, 1s to 12h; default: 30s"`
	Wait   Duration `json:"wait,omitempty" doc:"how long to wait for the first task, up to 20s"`
}

// LeasedTask is a task that the caller has leased.
type LeasedTask struct {
	LeaseID    string            `json:"lease_id" doc:"keep it secret: whoever has it can end the task"`
	LeaseUntil time.Time         `json:"lease_until"`
	ID         string            `json:"id"`
	Kind       string            `json:"kind"`
	Queue      string            `json:"queue"`
	Tenant     string            `json:"tenant,omitempty"`
	Args       json.RawMessage   `json:"args"`
	Large      *LargeContent     `json:"large_args,omitempty" doc:"the args are kept outside the database, and args is a reference: GET /lease/args has them"`
	Attempt    int               `json:"attempt"`
	Max        int               `json:"max_attempts"`
	Tags       []string          `json:"tags,omitempty"`
	Key        string            `json:"key,omitempty"`
	Metadata   map[string]string `json:"metadata,omitempty"`
	Timeout    Duration          `json:"timeout,omitempty"`
	Deadline   time.Time         `json:"deadline,omitzero" doc:"when it must have ended; after that, it is not retried"`
	Schedule   string            `json:"schedule,omitempty"`
	Tick       time.Time         `json:"tick,omitzero"`
	EnqueuedAt time.Time         `json:"enqueued_at"`
}

// LeasedTasks are the tasks leased by a request. It is no error if there are none.
type LeasedTasks struct {
	Tasks []LeasedTask `json:"tasks"`
}

func leaseTasks(c *call, in leaseInput) (LeasedTasks, error) {
	out := LeasedTasks{Tasks: []LeasedTask{}}
	if err := c.mayLease(in.Body.Queues); err != nil {
		return out, err
	}
	wait := time.Duration(in.Body.Wait)
	if wait > tusk.MaxPullWait { // it bounds how long this caller waits for its turn, too
		return out, fieldProblem(http.StatusUnprocessableEntity, "out_of_range", "wait", "want 0s to %v",
			tusk.MaxPullWait)
	}
	waiting, err := c.rooms.waiting.enter(c.r.Context(), c.who.ID, 1)
	if err != nil {
		return out, err
	}
	defer waiting.leave()
	control := http.NewResponseController(c.w)
	_ = control.SetReadDeadline(time.Time{})
	_ = control.SetWriteDeadline(time.Now().Add(wait + 30*time.Second))
	lent, err := c.lend(tusk.Pull{Queues: in.Body.Queues, Limit: in.Body.Max, Lease: time.Duration(in.Body.Lease)}, wait)
	if len(lent) > 0 {
		c.unsent = func() { c.handBack(lent) }
		if err := errors.Join(c.admit(), c.mayLease(in.Body.Queues)); err != nil { // it may have been revoked meanwhile
			return LeasedTasks{Tasks: []LeasedTask{}}, err
		}
	}
	for _, l := range lent {
		args := json.RawMessage(l.Args)
		if len(args) == 0 {
			args = json.RawMessage("{}")
		}
		out.Tasks = append(out.Tasks, LeasedTask{LeaseID: l.Receipt.String(), LeaseUntil: utc(l.Until), ID: l.ID.String(),
			Kind: l.Kind, Queue: l.Queue, Tenant: l.Tenant, Args: args, Large: c.largeArgs(&l), Attempt: l.Attempt,
			Max: l.MaxAttempts, Tags: l.Tags, Key: l.Key, Metadata: l.Metadata, Timeout: Duration(l.Timeout),
			Deadline: utc(l.Deadline), Schedule: l.Schedule, Tick: utc(l.Tick), EnqueuedAt: utc(l.EnqueuedAt)})
	}
	return out, err
}

// mayLease reports whether the caller may work on queues.
func (c *call) mayLease(queues []string) error {
	if !c.who.SeesAllTenants() {
		return problem(http.StatusForbidden, "forbidden", "your %s is bound to tenants, and a lease takes tasks of all "+
			"tenants: use one that is bound to queues only", c.who.Via)
	}
	for _, q := range queues {
		if !c.who.SeesQueue(q) {
			return problem(http.StatusForbidden, "forbidden", "your %s may not work on the queue %s: it is not among its queues",
				c.who.Via, short(q))
		}
	}
	return nil
}

// lend looks once in the caller's turn, for which it waits as long as for a task. Then it waits, without a turn, for
// one task. It returns more only if there are memory and a place at once, because the first lease is already running.
func (c *call) lend(p tusk.Pull, wait time.Duration) ([]tusk.Lent, error) {
	until := time.Now().Add(wait)
	turn, cancel := context.WithTimeout(c.r.Context(), cmp.Or(wait, longest))
	defer cancel()
	lent, err := c.lendNow(turn, p)
	left := time.Until(until)
	if err != nil || len(lent) > 0 || left <= 0 {
		return lent, err
	}
	c.text = nil // many requests wait, and the body is not needed any more
	one := p
	one.Limit, one.Wait = 1, left
	if lent, err = c.puller.Claim(c.r.Context(), one); err != nil || len(lent) == 0 || p.Limit <= 1 {
		return lent, err
	}
	p.Limit--
	cancel()                      // no more waiting: only take what is free at once
	more, _ := c.lendNow(turn, p) // the caller must learn about the leased task, whatever happens to the rest
	return append(lent, more...), nil
}

// handBack releases leased tasks whose response was not sent. The response may have arrived all the same if the
// connection broke late. Then the worker's calls are refused with lease_lost, as after a lease has expired.
func (c *call) handBack(lent []tusk.Lent) {
	verdicts := make([]tusk.Verdict, len(lent))
	for i, l := range lent {
		verdicts[i] = tusk.Verdict{Receipt: l.Receipt, Err: tusk.ErrShutdown}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.r.Context()), 5*time.Second)
	defer cancel()
	if _, err := c.puller.Finish(ctx, verdicts); err != nil {
		c.log.Warn("leases that nobody was told of run until they are over", "tasks", len(lent), "error", err)
	}
}

// lendNow looks once. It waits for memory and a place until turn ends.
func (c *call) lendNow(turn context.Context, p tusk.Pull) ([]tusk.Lent, error) {
	if p.Limit > 1 {
		if err := c.takeWithin(turn, min(p.Limit*copies*tusk.MaxArgsBytes, answerCost)); err != nil {
			return nil, err
		}
	}
	if err := c.workWithin(turn); err != nil {
		return nil, err
	}
	lent, err := c.puller.Claim(c.r.Context(), p)
	if c.rest(); len(lent) == 0 {
		c.keep(0)
	}
	return lent, err
}

// copies is how many copies of a task's args exist while a response is made.
const copies = 4

// LeaseAction is what to do with one leased task.
type LeaseAction struct {
	Action string `json:"action" doc:"complete, fail, extend or release; any other is this item's error invalid_action"`
	LeaseActionInput
}

// LeaseActionInput has the fields of all four actions. No text or number makes the whole request invalid: a bad item
// fails alone.
type LeaseActionInput struct {
	LeaseID  string          `json:"lease_id" doc:"a malformed one is this item's error invalid_id"`
	Output   json.RawMessage `json:"output,omitempty" doc:"complete: the output of the task"`
	GoTo     *string         `json:"go_to,omitempty" doc:"complete: the next stage of its pipeline; a malformed name is this item's error invalid_name"`
	Error    string          `json:"error,omitempty" doc:"fail: what went wrong"`
	Trace    string          `json:"trace,omitempty" doc:"fail: the stack trace"`
	RetryIn  *Duration       `json:"retry_in,omitempty" doc:"fail: instead of the task's own backoff"`
	Discard  bool            `json:"discard,omitempty" doc:"fail: a retry would not help"`
	Lease    Duration        `json:"lease,omitempty" doc:"extend: from now; default: 30s"`
	Progress *LeaseProgress  `json:"progress,omitempty" doc:"extend: the progress"`
	Logs     []string        `json:"logs,omitempty" doc:"extend: log lines to keep with the task"`
	Delay    Duration        `json:"delay,omitempty" doc:"release: the earliest time to run again"`
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
		GoTo *string `json:"go_to,omitempty" rule:"optional-name" doc:"the next stage of its pipeline; empty: the run ends; default: the stage that follows"`
	}
}

func completeLease(c *call, in completeInput) (LeaseResult, error) {
	return c.one("complete", LeaseActionInput{LeaseID: in.Body.LeaseID, Output: in.Body.Output, GoTo: in.Body.GoTo})
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
	for i, item := range items {
		r := &results[i]
		if r.Code != "" {
			continue
		}
		if t := tasks[i]; t != nil && !c.who.Sees(t.Queue, t.Tenant) {
			r.refuse(problem(http.StatusForbidden, "forbidden", "your %s may not work on this queue", c.who.Via))
			continue
		}
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
		r.Code, r.Detail = r.problem.Code, r.problem.Detail
	}
}

func (a LeaseAction) verdict(r tusk.Receipt) (tusk.Verdict, error) {
	v := tusk.Verdict{Receipt: r, Output: a.Output}
	switch a.Action {
	case "complete":
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
	case "fail":
	default:
		return v, fieldProblem(http.StatusUnprocessableEntity, "invalid_action", "action",
			"want complete, fail, extend or release")
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
