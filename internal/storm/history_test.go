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

// event is one line of a history. A call that changes something is written down
// before it is made and again when its answer is there: whatever has no answer,
// or an unknown one, may have happened or not.
type event struct {
	At    int64  `json:"at"` // nanoseconds, by the machine's clock, the same for all processes
	Op    string `json:"op"`
	Call  int64  `json:"call,omitempty"` // joins a call and its answer within a process
	Err   string `json:"err,omitempty"`
	Text  string `json:"text,omitempty"`
	Term  int64  `json:"term,omitempty"`
	Who   string `json:"who,omitempty"` // worker or candidate
	Token string `json:"token,omitempty"`
	Asked int64  `json:"asked,omitempty"` // of an answer whose question has no line
	Items []item `json:"items,omitempty"`

	file int // which process wrote it
}

// item is a task in a line of history.
type item struct {
	ID       tusk.ID   `json:"id"`
	Token    string    `json:"t,omitempty"`
	State    string    `json:"s,omitempty"` // where an outcome puts it; what became of an enqueue or edit
	Kind     string    `json:"k,omitempty"`
	Queue    string    `json:"q,omitempty"`
	Key      string    `json:"key,omitempty"`
	Part     string    `json:"p,omitempty"`
	Version  int64     `json:"v,omitempty"` // source time
	Attempt  int       `json:"a,omitempty"`
	Crashes  int       `json:"c,omitempty"`
	Needs    []tusk.ID `json:"n,omitempty"`
	Due      int64     `json:"due,omitempty"`     // the engine's instants, in nanoseconds
	Claimed  int64     `json:"claimed,omitempty"` //
	Enqueued int64     `json:"enq,omitempty"`     //
	Delay    int64     `json:"delay,omitempty"`   //
	Rescue   bool      `json:"r,omitempty"`       // the outcome of a dead worker's attempt
	Conflict int8      `json:"on,omitempty"`
}

// The lines of a history. Each that asks has one that answers.
const (
	opEnqueue, opEnqueued = "enqueue", "enqueued"
	opClaim, opClaimed    = "claim", "claimed"
	opFinish, opFinished  = "finish", "finished"
	opLead, opLed         = "lead", "led"
	opChore, opChored     = "chore", "chored"
	opEdit, opEdited      = "edit", "edited"
	opBegin, opEnd        = "begin", "end" // of a handler
	opEffect              = "effect"       // outside of the database
	opFault, opCalm       = "fault", "calm"
	opVitals              = "vitals"
	opBeat                = "beat"  // was answered
	opHeld                = "held"  // since Asked transactions of users were open, and the machine as slow as Term
	opLarge               = "large" // args that a task is to have
	opClock               = "clock" // of the server: so far ahead of the machine's
)

// errNone says of a call that nothing was written.
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

// write appends one line. What a killed process wrote stays: the file is the
// kernel's. A process that cannot write its history down must not go on.
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

// call writes a question down and returns the number for its answer.
func (h *history) call(e event) int64 {
	e.Call = h.calls.Add(1)
	h.write(e)
	return e.Call
}

// readHistory returns what all processes wrote, in order of time. The last line
// of a killed process may be torn.
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
				break // the end, or what was torn
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
