package tusk

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/tuskqueue/tusk/internal/duration"
)

// WorkflowTask is the JSON form of a task of a workflow.
type WorkflowTask struct {
	Name      string          `json:"name"`
	Kind      string          `json:"kind"`
	Args      json.RawMessage `json:"args,omitempty"`
	After     []string        `json:"after,omitempty"`
	OnFailure string          `json:"on_failure,omitempty"` // cancel, continue or wait
	// Last puts the task after all that are not last: a callback, on success or, with continue, in any case.
	Last         bool              `json:"last,omitempty"`
	Queue        string            `json:"queue,omitempty"`
	Tenant       string            `json:"tenant,omitempty"`
	Partition    string            `json:"partition,omitempty"`
	Priority     int16             `json:"priority,omitempty"`
	Tags         []string          `json:"tags,omitempty"`
	Metadata     map[string]string `json:"metadata,omitempty"`
	MaxAttempts  int               `json:"max_attempts,omitempty"`
	Timeout      DurationText      `json:"timeout,omitempty"` // for example 30s
	StallTimeout DurationText      `json:"stall_timeout,omitempty"`
	Backoff      *StageBackoff     `json:"backoff,omitempty"`
	Delay        DurationText      `json:"delay,omitempty"`
	ExpiresIn    DurationText      `json:"expires_in,omitempty"`
	Deadline     time.Time         `json:"deadline,omitzero"`
	DeadlineIn   DurationText      `json:"deadline_in,omitempty"`
	Weight       int               `json:"weight,omitempty"`
	Ephemeral    bool              `json:"ephemeral,omitempty"` // no effect: tasks of workflows are always kept
}

// DurationText is a duration as text, such as 90s or 1h30m; that of a time.Duration is DurationText(d.String()). JSON
// may contain a number of seconds instead.
type DurationText string

// UnmarshalJSON implements json.Unmarshaler.
func (d *DurationText) UnmarshalJSON(text []byte) error {
	if text[0] == '"' {
		return json.Unmarshal(text, (*string)(d))
	}
	var seconds float64
	if err := json.Unmarshal(text, &seconds); err != nil {
		return fmt.Errorf("is %s: want %s", cutText(string(text)), duration.Form)
	}
	*d = DurationText(strconv.FormatFloat(seconds, 'f', -1, 64) + "s")
	return nil
}

// textOf formats a duration. Zero means the default and becomes "".
func textOf(d time.Duration) DurationText {
	if d == 0 {
		return ""
	}
	return DurationText(duration.Hours(d))
}

// durationTexts maps field names to their text and to where their durations go.
type durationTexts map[string]durationField

type durationField struct {
	text DurationText
	to   *time.Duration
}

func (t durationTexts) parse() error {
	for _, name := range slices.Sorted(maps.Keys(t)) {
		if t[name].text == "" {
			continue
		}
		d, err := duration.Parse(string(t[name].text))
		if err != nil {
			return invalid(name, "invalid_duration", "%q: %v", cutText(string(t[name].text)), err)
		}
		*t[name].to = d
	}
	return nil
}

// ParseWorkflow parses a workflow from JSON: {"tasks":[{"name":…,"kind":…,"after":[…]},…]}. Tasks may be referred
// to before they are defined.
//
// The error is an *InvalidError that names the invalid task.
func ParseWorkflow(text []byte) (*Workflow, error) {
	var doc struct {
		Tasks []WorkflowTask `json:"tasks"`
	}
	if err := readForm("workflow", text, &doc); err != nil {
		return nil, err
	}
	if len(doc.Tasks) > MaxWorkflow {
		return nil, invalid("workflow", "too_large", "has %d tasks, at most %d are allowed", len(doc.Tasks), MaxWorkflow)
	}
	w := NewWorkflow()
	for _, t := range doc.Tasks {
		o, policy, err := t.options()
		if err != nil {
			return nil, fmt.Errorf("task %s: %w", cutText(t.Name), err)
		}
		n := w.Task(t.Name, RawArgs{t.Kind, t.Args}, o).OnFailure(policy)
		if n.last = t.Last; t.Last && len(t.After) > 0 {
			return nil, invalid("workflow", "not_for_last", "task %q comes last: leave out what it comes after", cutText(t.Name))
		}
	}
	for _, t := range doc.Tasks {
		for _, parent := range t.After {
			if w.names[parent] == nil {
				return nil, invalid("workflow", "unknown_parent", "task %q comes after %q, which is not in it", cutText(t.Name),
					cutText(parent))
			}
			w.names[t.Name].After(w.names[parent])
		}
	}
	_, err := w.sorted()
	return w, err
}

func (t *WorkflowTask) options() (*Options, OnFailure, error) {
	o := &Options{Queue: t.Queue, Tenant: t.Tenant, Partition: t.Partition, Priority: t.Priority, Tags: t.Tags,
		Metadata:    t.Metadata,
		MaxAttempts: t.MaxAttempts, Deadline: t.Deadline, Weight: t.Weight, Ephemeral: t.Ephemeral}
	texts := durationTexts{"timeout": {t.Timeout, &o.Timeout}, "stall_timeout": {t.StallTimeout, &o.StallTimeout},
		"delay":      {t.Delay, &o.Delay},
		"expires_in": {t.ExpiresIn, &o.ExpiresIn}, "deadline_in": {t.DeadlineIn, &o.DeadlineIn}}
	t.Backoff.into(&o.Backoff, texts)
	if err := texts.parse(); err != nil {
		return nil, 0, err
	}
	switch t.OnFailure {
	case "", "cancel":
		return o, CancelOnFailure, nil
	case "continue":
		return o, ContinueOnFailure, nil
	case "wait":
		return o, WaitOnFailure, nil
	}
	return nil, 0, invalid("on_failure", "invalid_policy", "is %q, want cancel, continue or wait", cutText(t.OnFailure))
}
