package couchbase

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"slices"
	"unicode/utf8"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/rules"
)

// task is the document of a task. The fields avl, due, turn, held, run, fin, doom and todo, which have indexes, exist
// only under a condition, so that the indexes stay small.
type task struct {
	ID string `json:"-"`
	head

	Queue     string          `json:"q"`
	Priority  int16           `json:"p"`
	Kind      string          `json:"k"`
	Tenant    string          `json:"tn"`
	Tags      []string        `json:"tags,omitempty"`
	Key       string          `json:"key,omitempty"`
	Workflow  string          `json:"wf,omitempty"`
	Args      json.RawMessage `json:"args,omitempty"` // nil if JSON would not return them byte for byte
	Raw       []byte          `json:"raw,omitempty"`  // the args in that case
	Settings  []byte          `json:"set"`
	Turns     bool            `json:"turns,omitempty"` // it runs in turns
	Partition string          `json:"pt"`

	State string `json:"st"`
	N     int    `json:"n"` // 1; of a sheet, how many tasks are available
	// Lap grows each time the task becomes available. Entries of lanes name it.
	Lap      int    `json:"lap"`
	Since    int64  `json:"since"` // when it entered its state
	Written  int64  `json:"wr"`    // the engine's clock when the rules last changed it
	RunAt    int64  `json:"at"`
	Enqueued int64  `json:"enq"`
	Expires  int64  `json:"exp,omitempty"`
	Claimed  int64  `json:"cl,omitempty"`
	Attempt  int    `json:"a,omitempty"`
	Crashes  int    `json:"cr,omitempty"`
	Reason   string `json:"why,omitempty"`

	Available int64   `json:"avl,omitempty"`  // the run time, while it can be claimed
	Due       int64   `json:"due,omitempty"`  // the run time, while it waits for that time
	InLine    int64   `json:"turn,omitempty"` // its place among the tasks that wait for their turn
	Held      bool    `json:"held,omitempty"` // it has a turn
	Finished  int64   `json:"fin,omitempty"`
	Run       []lease `json:"run,omitempty"`  // its open lease; of a sheet, the leases of its tasks
	Stop      *string `json:"stop,omitempty"` // why it should stop
	Doom      int64   `json:"doom,omitempty"` // since when a task that it needs may have failed

	Needs []need   `json:"needs,omitempty"`
	Kids  []string `json:"kids,omitempty"` // the tasks that need it
	// It was restored, so tasks that are not in Kids may need it. The index knows them.
	Back   bool `json:"back,omitempty"`
	Awaits bool `json:"wait,omitempty"` // it waits for the running task of its key

	Past        []past          `json:"past,omitempty"`
	Output      []byte          `json:"out,omitempty"`
	Progress    *store.Progress `json:"prog,omitempty"`
	Logs        []store.LogLine `json:"logs,omitempty"`
	Changed     int64           `json:"chg,omitempty"` // when it was last changed while it waited
	How         store.How       `json:"how,omitempty"`
	Fingerprint string          `json:"fp,omitempty"`

	Damage string `json:"damage,omitempty"` // the error, if a part of it could not be read

	inSheet bool   // it is stored in a sheet
	first   string // for a new sheet: its first task
}

type lease struct {
	Worker string `json:"w"`
	Token  string `json:"t"`
}

type need struct {
	Task store.ID        `json:"t"`
	On   store.OnFailure `json:"f,omitempty"`
	Open bool            `json:"o,omitempty"`
}

type past struct {
	Number      int    `json:"n"`
	Worker      string `json:"w"`
	Started     int64  `json:"s"`
	Ended       int64  `json:"e"`
	State       string `json:"st"`
	Error       string `json:"err,omitempty"`
	Trace       string `json:"tr,omitempty"`
	Fingerprint string `json:"fp,omitempty"`
}

func taskRef(id store.ID) ref { return ref{inTask, id.String()} }

// deleted is the state that the children of a deleted task are told.
const deleted = "-"

var letters = map[store.State]string{0: deleted, store.Scheduled: "s", store.Pending: "p", store.Available: "a",
	store.Running: "r", store.Retryable: "y", store.Completed: "c", store.Cancelled: "x", store.Discarded: "d"}

var states = func() map[string]store.State {
	of := map[string]store.State{}
	for state, letter := range letters {
		of[letter] = state
	}
	return of
}()

func (t *task) state() store.State { return states[t.State] }

// setArgs stores args as JSON if they come back byte for byte, and as bytes otherwise.
func (t *task) setArgs(args []byte) {
	var compact bytes.Buffer
	t.Args, t.Raw = nil, bytes.Clone(args)
	if utf8.Valid(args) && json.Compact(&compact, args) == nil && bytes.Equal(compact.Bytes(), args) {
		t.Args, t.Raw = t.Raw, nil
	}
}

func (t *task) args() []byte {
	if t.Args != nil {
		return bytes.Clone(t.Args)
	}
	return bytes.Clone(t.Raw)
}

// holds reports whether the task runs under the token.
func (t *task) holds(token store.Token) bool {
	return t.State == "r" && len(t.Run) == 1 && t.Run[0].Token == token.String()
}

// row returns the task as the rules see it.
func (t *task) row() *rules.Row {
	r := &rules.Row{Task: t.answer(false), Needs: len(t.Needs) > 0, Needed: len(t.Kids) > 0 || t.Back, Awaits: t.Awaits,
		HasTurn: t.Held, Stopping: t.Stop != nil}
	if t.Stop != nil {
		r.StopReason = *t.Stop
	}
	for _, n := range t.Needs {
		if n.Open {
			r.Open++
		}
	}
	return r
}

// answer returns the task as the contract shows it.
func (t *task) answer(detail bool) store.Task {
	a := store.Task{
		ID: idOf(t.ID), Kind: t.Kind, Queue: t.Queue, Tenant: t.Tenant, Priority: t.Priority,
		Args: t.args(), Tags: slices.Clone(t.Tags),
		Key: t.Key, Workflow: idOf(t.Workflow), Settings: bytes.Clone(t.Settings), Turn: t.Turns, Partition: t.Partition,
		State: t.state(), Attempt: t.Attempt, Crashes: t.Crashes, Reason: t.Reason, EnqueuedAt: instant(t.Enqueued),
		RunAt: instant(t.RunAt), ExpiresAt: instant(t.Expires), ClaimedAt: instant(t.Claimed),
		FinishedAt: instant(t.Finished), Damage: t.Damage,
	}
	if len(t.Run) == 1 {
		a.Lease, a.Worker = tokenOf(t.Run[0].Token), idOf(t.Run[0].Worker)
	}
	if detail {
		a.Detail = t.detail()
	}
	return a
}

func (t *task) detail() *store.Detail {
	d := &store.Detail{Progress: t.Progress, Logs: rules.Lines(t.Logs), Output: bytes.Clone(t.Output),
		CancelRequested: t.Stop != nil}
	if t.Changed != 0 {
		d.Changed = &store.LastChange{At: instant(t.Changed), How: t.How}
	}
	for _, p := range t.Past {
		d.Attempts = append(d.Attempts, store.Attempt{Number: p.Number, Worker: idOf(p.Worker), StartedAt: instant(p.Started),
			EndedAt: instant(p.Ended), Outcome: states[p.State], Error: p.Error, Trace: p.Trace, Fingerprint: p.Fingerprint})
	}
	return d
}

// set gives the document the state of the task after the rules.
func (t *task) set(r *rules.Row, now int64) {
	if r.Values {
		t.Kind, t.Tags, t.Settings, t.Expires = r.Kind, slices.Clone(r.Tags), bytes.Clone(r.Settings), micros(r.ExpiresAt)
		t.setArgs(r.Args)
	}
	if r.Changed != nil {
		t.Changed, t.How = micros(r.Changed.At), r.Changed.How
	}
	t.Queue, t.Priority, t.Attempt, t.Crashes, t.Reason = r.Queue, r.Priority, r.Attempt, r.Crashes, r.Reason
	t.Awaits, t.Held, t.RunAt, t.Finished = r.Awaits, r.HasTurn, micros(r.RunAt), micros(r.FinishedAt)
	if t.Stop = nil; r.Stopping {
		t.Stop = &r.StopReason
	}
	if r.State != store.Running {
		t.Run = nil
	}
	if r.Place > 0 {
		t.Since = now
		if t.InLine = 0; r.State == store.Available {
			t.Lap++
		}
	}
	t.State, t.Written = letters[r.State], now
	t.Available, t.Due = 0, 0
	switch r.State {
	case store.Available:
		t.Available = t.RunAt
	case store.Scheduled, store.Retryable:
		t.Due = t.RunAt
	}
	switch {
	case !r.InLine():
		t.InLine = 0
	case t.InLine == 0:
		t.InLine = now + int64(r.Place) // tasks of one call keep their order
	}
	if r.State != store.Pending {
		t.Doom = 0
	}
}

// newTask returns the document of a new task.
func newTask(r *rules.Row, now int64) *task {
	t := &task{ID: r.ID.String(), Tenant: r.Tenant, Key: r.Key, Enqueued: micros(r.EnqueuedAt), Turns: r.Turn,
		Partition: r.Partition, N: 1, Workflow: textOf(r.Workflow)}
	r.Values = true
	t.set(r, now)
	if r.Restored {
		t.remember(r)
	}
	return t
}

func (t *task) write(n *store.Note) {
	if n.Progress != nil {
		progress := *n.Progress
		t.Progress = &progress
	}
	if n.Output != nil {
		t.Output = bytes.Clone(n.Output)
	}
	t.Logs = append(t.Logs, n.Logs...)
}

func pastOf(a *store.Attempt) past {
	return past{a.Number, a.Worker.String(), micros(a.StartedAt), micros(a.EndedAt), letters[a.Outcome], a.Error, a.Trace,
		a.Fingerprint}
}

// end adds an attempt to the history, which consists of the failed attempts and the latest one.
func (t *task) end(e *rules.End) {
	if n := len(t.Past); n > 0 && t.Past[n-1].Error == "" {
		t.Past = t.Past[:n-1]
	}
	a := &e.Attempt
	t.Past = append(t.Past, pastOf(a))
	if a.Error != "" {
		t.Fingerprint = a.Fingerprint
	}
	if e.Outcome.Note != nil {
		t.write(e.Outcome.Note)
	}
}

// openNeeds returns the needs of the task as the rules see them.
func (t *task) openNeeds() []rules.OpenNeed {
	needs := make([]rules.OpenNeed, len(t.Needs))
	for i, n := range t.Needs {
		needs[i] = rules.OpenNeed{Need: store.Need{Task: n.Task, OnFailure: n.On}, Open: n.Open}
	}
	return needs
}

// idOf and tokenOf parse text that the engine has written. They return the zero value for any other text.
func idOf(text string) store.ID {
	id, _ := store.ParseID(text)
	return id
}

func textOf(id store.ID) string {
	if id.IsZero() {
		return ""
	}
	return id.String()
}

func tokenOf(text string) (token store.Token) {
	if len(text) == hex.EncodedLen(len(token)) {
		_, _ = hex.Decode(token[:], []byte(text))
	}
	return token
}

// bury marks the task as deleted. Its document stays until its children are told.
func (t *task) bury(now int64) {
	t.State, t.Gone, t.Finished = deleted, true, now
	t.Available, t.Due, t.InLine, t.Doom, t.Held, t.Run = 0, 0, 0, 0, false, nil
}
