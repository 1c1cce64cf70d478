package server

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/tuskqueue/tusk"
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
	Workflow   string            `json:"workflow,omitempty" doc:"the workflow, pipeline run or parent that it belongs to; GET /lease/inputs has the outputs of what it needed"`
	Name       string            `json:"name,omitempty" doc:"its name in the workflow"`
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
	wait, err := waitOf(in.Body.Wait) // it bounds how long this caller waits for its turn, too
	if err != nil {
		return out, err
	}
	waiting, err := c.wait(wait)
	if err != nil {
		return out, err
	}
	defer waiting.leave()
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
			Deadline: utc(l.Deadline), Schedule: l.Schedule, Tick: utc(l.Tick), Workflow: idText(l.Workflow), Name: l.Node,
			EnqueuedAt: utc(l.EnqueuedAt)})
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
			return notIts(c.who, "queue", q)
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
