package archive

import (
	"time"
	"unsafe"

	"github.com/tuskqueue/tusk/store"
)

// SchemaVersion is the version of Row. Columns may be added without changing it. A change in the
// meaning of a column raises it.
const SchemaVersion = 1

// Row is a task in a file. Its columns are the schema. Queue and day are in the file's path, where
// readers expect the columns by which an archive is partitioned. Instants are microseconds since
// 1970 in UTC; missing ones are null.
type Row struct {
	ID         string    `parquet:"id"`
	Kind       string    `parquet:"kind,dict"`
	State      string    `parquet:"state,dict"`
	Tenant     string    `parquet:"tenant,optional,dict"`
	Priority   int32     `parquet:"priority"`
	Key        string    `parquet:"key,optional"`
	Args       string    `parquet:"args,json"`
	Output     *string   `parquet:"output,json"`
	Tags       []string  `parquet:"tags,list"`
	Workflow   string    `parquet:"workflow,optional"`
	Needs      []Need    `parquet:"needs,list"`
	Turn       bool      `parquet:"turn"`
	Partition  string    `parquet:"turn_partition,optional"`
	Settings   []byte    `parquet:"settings,optional"`
	EnqueuedAt int64     `parquet:"enqueued_at,timestamp(microsecond)"`
	RunAt      int64     `parquet:"run_at,optional,timestamp(microsecond)"`
	ExpiresAt  int64     `parquet:"expires_at,optional,timestamp(microsecond)"`
	ClaimedAt  int64     `parquet:"claimed_at,optional,timestamp(microsecond)"`
	FinishedAt int64     `parquet:"finished_at,timestamp(microsecond)"`
	ChangedAt  int64     `parquet:"changed_at,optional,timestamp(microsecond)"` // when it was changed while it waited
	Changed    string    `parquet:"changed,optional,dict"`
	RanUS      int64     `parquet:"ran_us"` // total of all stored attempts, in microseconds
	Attempt    int32     `parquet:"attempt"`
	Crashes    int32     `parquet:"crashes"`
	Reason     string    `parquet:"reason,optional"`
	Error      string    `parquet:"error,optional"`            // of the latest failed attempt
	ErrorGroup string    `parquet:"error_group,optional,dict"` // the error's fingerprint
	Attempts   []Attempt `parquet:"attempts,list"`
	Logs       []Log     `parquet:"logs,list"`
	Percent    float64   `parquet:"progress_percent,optional"`
	Message    string    `parquet:"progress_message,optional"`
	Damage     string    `parquet:"damage,optional"` // what could not be read of the task
}

// Need is another task that this one had to wait for.
type Need struct {
	Task      string `parquet:"task"`
	OnFailure int32  `parquet:"on_failure"`
	State     string `parquet:"state,optional"`
}

// Attempt is an ended run of a task. A row has each failed attempt and the latest one.
type Attempt struct {
	Number    int32  `parquet:"number"`
	Worker    string `parquet:"worker"`
	StartedAt int64  `parquet:"started_at,timestamp(microsecond)"`
	EndedAt   int64  `parquet:"ended_at,timestamp(microsecond)"`
	Outcome   string `parquet:"outcome,dict"`
	Error     string `parquet:"error,optional"`
	Trace     string `parquet:"trace,optional"`
	Group     string `parquet:"error_group,optional"`
}

// Log is a line that a handler logged.
type Log struct {
	At      int64  `parquet:"at,timestamp(microsecond)"`
	Attempt int32  `parquet:"attempt"`
	Level   string `parquet:"level"`
	Text    string `parquet:"text"`
}

// rowOf returns a finished task as a row. The row shares the task's args, which must not change.
func rowOf(t *store.Task) Row {
	r := Row{
		ID: t.ID.String(), Kind: t.Kind, State: t.State.String(), Tenant: t.Tenant, Priority: int32(t.Priority), Key: t.Key,
		Args: unsafe.String(unsafe.SliceData(t.Args), len(t.Args)), Tags: t.Tags, Workflow: idText(t.Workflow), Turn: t.Turn,
		Partition: t.Partition, Settings: t.Settings,
		EnqueuedAt: micros(t.EnqueuedAt), RunAt: micros(t.RunAt), ExpiresAt: micros(t.ExpiresAt),
		ClaimedAt:  micros(t.ClaimedAt),
		FinishedAt: micros(t.FinishedAt), Attempt: int32(t.Attempt), Crashes: int32(t.Crashes), Reason: t.Reason,
		Damage: t.Damage,
	}
	d := t.Detail
	if d == nil {
		return r
	}
	if d.Output != nil {
		output := string(d.Output)
		r.Output = &output
	}
	for _, n := range d.Needs {
		need := Need{Task: n.Task.String(), OnFailure: int32(n.OnFailure)}
		if n.State != 0 {
			need.State = n.State.String()
		}
		r.Needs = append(r.Needs, need)
	}
	if len(d.Attempts) > 0 {
		r.Attempts = make([]Attempt, len(d.Attempts))
	}
	for i, a := range d.Attempts {
		r.Attempts[i] = Attempt{int32(a.Number), a.Worker.String(), micros(a.StartedAt), micros(a.EndedAt),
			a.Outcome.String(), a.Error, a.Trace, a.Fingerprint}
		r.RanUS += micros(a.EndedAt) - micros(a.StartedAt)
		if a.Error != "" {
			r.Error, r.ErrorGroup = a.Error, a.Fingerprint
		}
	}
	for _, l := range d.Logs {
		r.Logs = append(r.Logs, Log{micros(l.At), int32(l.Attempt), l.Level, l.Text})
	}
	if d.Changed != nil {
		r.ChangedAt, r.Changed = micros(d.Changed.At), string(d.Changed.How)
	}
	if d.Progress != nil {
		r.Percent, r.Message = d.Progress.Percent, d.Progress.Message
	}
	return r
}

// Task returns the row as a task of a queue.
func (r *Row) Task(queue string) (t store.Task, err error) {
	t = store.Task{
		Kind: r.Kind, Queue: queue, Tenant: r.Tenant, Priority: int16(r.Priority), Key: r.Key, Args: []byte(r.Args),
		Tags:     r.Tags,
		Settings: r.Settings, Turn: r.Turn, Partition: r.Partition, Attempt: int(r.Attempt), Crashes: int(r.Crashes),
		Reason:     r.Reason,
		EnqueuedAt: instant(r.EnqueuedAt), RunAt: instant(r.RunAt), ExpiresAt: instant(r.ExpiresAt),
		ClaimedAt:  instant(r.ClaimedAt),
		FinishedAt: instant(r.FinishedAt), Damage: r.Damage,
	}
	p := parser{}
	t.ID, t.Workflow, t.State = p.id(r.ID), p.id(r.Workflow), p.state(r.State)
	d := &store.Detail{}
	t.Detail = d
	if r.Output != nil {
		d.Output = []byte(*r.Output)
	}
	if len(t.Settings) == 0 {
		t.Settings = nil
	}
	if len(t.Tags) == 0 {
		t.Tags = nil
	}
	for _, n := range r.Needs {
		d.Needs = append(d.Needs, store.NeedState{
			Need: store.Need{Task: p.id(n.Task), OnFailure: store.OnFailure(n.OnFailure)}, State: p.state(n.State)})
	}
	for _, a := range r.Attempts {
		d.Attempts = append(d.Attempts, store.Attempt{Number: int(a.Number), Worker: p.id(a.Worker),
			StartedAt: instant(a.StartedAt), EndedAt: instant(a.EndedAt), Outcome: p.state(a.Outcome), Error: a.Error,
			Trace: a.Trace, Fingerprint: a.Group})
	}
	for _, l := range r.Logs {
		d.Logs = append(d.Logs, store.LogLine{At: instant(l.At), Attempt: int(l.Attempt), Level: l.Level, Text: l.Text})
	}
	if r.ChangedAt != 0 {
		d.Changed = &store.LastChange{At: instant(r.ChangedAt), How: store.How(r.Changed)}
	}
	if r.Percent != 0 || r.Message != "" {
		d.Progress = &store.Progress{Percent: r.Percent, Message: r.Message}
	}
	return t, p.err
}

// parser parses names, and remembers the first error.
type parser struct{ err error }

func (p *parser) id(text string) store.ID {
	if text == "" {
		return store.ID{}
	}
	id, err := store.ParseID(text)
	p.note(err)
	return id
}

func (p *parser) state(text string) store.State {
	if text == "" {
		return 0
	}
	state, err := store.ParseState(text)
	p.note(err)
	return state
}

func (p *parser) note(err error) {
	if p.err == nil {
		p.err = err
	}
}

// rowSize is how many bytes a row takes in memory without its variable texts: itself, its ids and
// one attempt.
const rowSize = int(unsafe.Sizeof(Row{})+unsafe.Sizeof(Attempt{})) + 150

// size returns roughly how many bytes a row takes in memory.
func (r *Row) size() int {
	n := rowSize + len(r.Args) + len(r.Settings) + len(r.Reason) + len(r.Error) + len(r.Key)
	if r.Output != nil {
		n += len(*r.Output)
	}
	for i := range r.Attempts {
		n += 100 + len(r.Attempts[i].Error) + len(r.Attempts[i].Trace)
	}
	for i := range r.Logs {
		n += 60 + len(r.Logs[i].Text)
	}
	return n
}

func idText(id store.ID) string {
	if id.IsZero() {
		return ""
	}
	return id.String()
}

func micros(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

func instant(us int64) time.Time {
	if us == 0 {
		return time.Time{}
	}
	return time.UnixMicro(us).UTC()
}
