//go:build unix

package storm

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"sync"
	"sync/atomic"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/store"
)

// event is one line of a history. A call that changes something is recorded before it is made, and again when its
// answer has arrived. A call with an unknown answer, or none, may or may not have happened.
type event struct {
	// At is in nanoseconds, by the machine's clock, which is the same for all processes.
	At    int64  `json:"at"`
	Op    string `json:"op"`
	Call  int64  `json:"call,omitempty"` // connects a call and its answer within a process
	Err   string `json:"err,omitempty"`
	Text  string `json:"text,omitempty"`
	Term  int64  `json:"term,omitempty"`
	Who   string `json:"who,omitempty"` // worker or candidate
	Token string `json:"token,omitempty"`
	Asked int64  `json:"asked,omitempty"` // when the question was asked, if it has no line of its own
	Items []item `json:"items,omitempty"`

	file int // which process wrote it
}

// item is a task in a line of history.
type item struct {
	ID    tusk.ID `json:"id"`
	Token string  `json:"t,omitempty"`
	// State is where an outcome puts the task, or the result of an enqueue or edit.
	State    string    `json:"s,omitempty"`
	Kind     string    `json:"k,omitempty"`
	Queue    string    `json:"q,omitempty"`
	Key      string    `json:"key,omitempty"`
	Part     string    `json:"p,omitempty"`
	Version  int64     `json:"v,omitempty"` // source time
	Attempt  int       `json:"a,omitempty"`
	Crashes  int       `json:"c,omitempty"`
	Needs    []tusk.ID `json:"n,omitempty"`
	Due      int64     `json:"due,omitempty"`     // times by the engine's clock, in nanoseconds
	Claimed  int64     `json:"claimed,omitempty"` //
	Enqueued int64     `json:"enq,omitempty"`     //
	Delay    int64     `json:"delay,omitempty"`   //
	Rescue   bool      `json:"r,omitempty"`       // the outcome of a dead worker's attempt
	Conflict int8      `json:"on,omitempty"`
}

// Types of lines in a history. Each question has a type for its answer.
const (
	opEnqueue, opEnqueued = "enqueue", "enqueued"
	opClaim, opClaimed    = "claim", "claimed"
	opFinish, opFinished  = "finish", "finished"
	opLead, opLed         = "lead", "led"
	opChore, opChored     = "chore", "chored"
	opEdit, opEdited      = "edit", "edited"
	opBegin, opEnd        = "begin", "end" // of a handler
	opEffect              = "effect"       // outside of the database
	// A step runs; its result, of the attempt Part, is said to be stored.
	opStep, opStepped = "step", "stepped"
	opFault, opCalm   = "fault", "calm"
	opVitals          = "vitals"
	opBeat            = "beat" // an answered beat
	// Since Asked, users' transactions were open; Term is how slow the machine was.
	opHeld = "held"
	// The version of a task's large args.
	opLarge = "large"
	// How far the server's clock is set ahead of the machine's.
	opClock = "clock"
)

// errNone says that a call wrote nothing.
const errNone = "none"

// history is the file that one process writes.
type history struct {
	file  *os.File
	mu    sync.Mutex
	calls atomic.Int64
}

func openHistory(name string) (*history, error) {
	f, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	return &history{file: f}, err
}

// write appends one line. Lines of a killed process are kept, because the kernel has them. A process that cannot
// record its history must not continue.
func (h *history) write(e event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	e.At = instant()
	line, err := json.Marshal(e)
	if err == nil {
		_, err = h.file.Write(append(line, '\n'))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "history:", err)
		os.Exit(3)
	}
}

// call records a question and returns the number for its answer.
func (h *history) call(e event) int64 {
	e.Call = h.calls.Add(1)
	h.write(e)
	return e.Call
}

// readHistory returns the lines of all processes in order of time. The last line of a killed process may be
// incomplete.
func readHistory(dir string) ([]event, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.history"))
	if err != nil {
		return nil, err
	}
	var all []event
	for n, name := range files {
		f, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		lines := bufio.NewReaderSize(f, 1<<20)
		for {
			line, err := lines.ReadBytes('\n')
			if err != nil {
				break // the end, or an incomplete line
			}
			var e event
			if err := json.Unmarshal(bytes.TrimSpace(line), &e); err != nil {
				f.Close()
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			e.file = n
			all = append(all, e)
		}
		f.Close()
	}
	sort.SliceStable(all, func(i, j int) bool { return all[i].At < all[j].At })
	return all, nil
}

func itemOfNew(n *store.NewTask) item {
	i := item{ID: n.ID, Kind: n.Kind, Queue: n.Queue, Key: n.Key, Delay: int64(n.Delay), Conflict: int8(n.OnConflict)}
	if n.Turn {
		i.Part = n.Partition
	}
	if !n.SourceTime.IsZero() {
		i.Version = n.SourceTime.UnixNano()
	}
	for _, need := range n.Needs {
		i.Needs = append(i.Needs, need.Task)
	}
	return i
}

func itemOfClaimed(t *store.Task) item {
	return item{ID: t.ID, Kind: t.Kind, Queue: t.Queue, Key: t.Key, Part: t.Partition, Attempt: t.Attempt,
		Crashes: t.Crashes,
		Due:     t.RunAt.UnixNano(), Claimed: t.ClaimedAt.UnixNano(), Enqueued: t.EnqueuedAt.UnixNano()}
}
