package tusk

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/tuskqueue/tusk/internal/lifecycle"
	"github.com/tuskqueue/tusk/internal/run"
	"github.com/tuskqueue/tusk/store"
)

// How workers that are not Go programs spawn children.

// ChildTask is the JSON form of a child of a running task. The child belongs to the workflow and the tenant of its
// parent, and has no key.
type ChildTask struct {
	Kind         string            `json:"kind"`
	Args         json.RawMessage   `json:"args,omitempty"`
	Queue        string            `json:"queue,omitempty"`
	Partition    string            `json:"partition,omitempty"`
	Priority     int16             `json:"priority,omitempty"`
	Tags         []string          `json:"tags,omitempty"`
	Metadata     map[string]string `json:"metadata,omitempty"`
	RunAt        *time.Time        `json:"run_at,omitempty"`
	Delay        DurationText      `json:"delay,omitempty"` // for example 30s
	ExpiresAt    *time.Time        `json:"expires_at,omitempty"`
	ExpiresIn    DurationText      `json:"expires_in,omitempty"`
	Deadline     *time.Time        `json:"deadline,omitempty"`
	DeadlineIn   DurationText      `json:"deadline_in,omitempty"`
	MaxAttempts  int               `json:"max_attempts,omitempty"`
	Timeout      DurationText      `json:"timeout,omitempty"`
	StallTimeout DurationText      `json:"stall_timeout,omitempty"`
	Backoff      *StageBackoff     `json:"backoff,omitempty"`
	Weight       int               `json:"weight,omitempty"`
}

// ParseChild parses a child from JSON, such as {"kind":"resize","args":{"width":100}}, for Task.Spawn.
//
// The error is an *InvalidError.
func ParseChild(text []byte) (Args, *Options, error) {
	var c ChildTask
	if err := readForm("child", text, &c); err != nil {
		return nil, nil, err
	}
	o, err := c.options()
	return c.args(), o, err
}

func (c *ChildTask) args() Args { return RawArgs{c.Kind, c.Args} }

func (c *ChildTask) options() (*Options, error) {
	o := &Options{Queue: c.Queue, Partition: c.Partition, Priority: c.Priority, Tags: c.Tags, Metadata: c.Metadata,
		RunAt: setTime(c.RunAt), ExpiresAt: setTime(c.ExpiresAt), Deadline: setTime(c.Deadline), MaxAttempts: c.MaxAttempts,
		Weight: c.Weight}
	texts := durationTexts{"delay": {c.Delay, &o.Delay}, "expires_in": {c.ExpiresIn, &o.ExpiresIn},
		"deadline_in": {c.DeadlineIn, &o.DeadlineIn}, "timeout": {c.Timeout, &o.Timeout},
		"stall_timeout": {c.StallTimeout, &o.StallTimeout}}
	c.Backoff.into(&o.Backoff, texts)
	return o, texts.parse()
}

// setTime returns a time for a field of Options, where the zero time means that it is not set.
func setTime(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return At(*t)
}

// addChildren adds the children of a verdict to an attempt. Repeating the verdict creates the same children.
func (p *Puller) addChildren(ctx context.Context, a *run.Attempt, parent *TaskInfo, v Verdict) error {
	switch n := len(v.Children); {
	case n > MaxWorkflow:
		return tooManyChildren(n)
	case n == 0 && errors.Is(v.Err, lifecycle.ErrWait):
		return invalid("children", "missing_field", "are missing: a task waits for its children")
	}
	seed := sha256.Sum256([]byte(v.Receipt.String() + " " + said(v)))
	children := make([]store.NewTask, len(v.Children))
	for i := range v.Children {
		child := &v.Children[i]
		o, err := child.options()
		if err == nil {
			o.ID = childID(parent.ClaimedAt, seed, i)
			children[i], err = p.client.child(ctx, parent, child.args(), o)
		}
		if bad := (*InvalidError)(nil); errors.As(err, &bad) {
			return &InvalidError{fmt.Sprintf("children[%d]: %s", i, bad.Field), bad.Code, bad.Text}
		} else if err != nil {
			return err
		}
	}
	if len(children) == 0 {
		return nil
	}
	if err := p.client.prepareChildren(ctx, parent, children); err != nil {
		return err
	}
	for _, child := range children {
		a.AddChild(child)
	}
	return nil
}

// childID returns the id of a child. Like those of a block, the ids of a verdict's children are consecutive, 256 at a
// time. The time in an id is that of the parent's claim, which a repeated verdict knows too.
func childID(claimed time.Time, seed [sha256.Size]byte, i int) (id ID) {
	binary.BigEndian.PutUint64(id[:], uint64(claimed.UnixMilli())<<16|7<<12|uint64(i>>8))
	binary.BigEndian.PutUint64(id[8:], 2<<62|binary.BigEndian.Uint64(seed[:])>>2)
	id[len(id)-1] = byte(i)
	return id
}
