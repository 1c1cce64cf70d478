package run

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// Limits on the steps of a task.
const (
	MaxSteps     = 1000
	MaxStepBytes = 256 << 10 // names and results
)

// Errors of BeginStep and EndStep.
var (
	ErrStepTwice = errors.New("begins for the second time in this attempt")
	ErrStepInTx  = errors.New("follows CompleteTx")
	errStepsFull = errors.New("exceeds the limits on steps")
)

// steps are the steps that an attempt knows of.
type steps struct {
	read  sync.Mutex             // held while the results of earlier attempts are read
	known map[string]*stepResult // by name; nil until they are read
	begun map[string]bool        // in this attempt
	anew  bool                   // the log has results of a run that has completed, and does not say so
	bytes int
	users int // calls of ReadSteps without one of LeaveSteps

	waiting map[store.LogLine]*stepResult // that are not stored yet
}

type stepResult struct {
	text   []byte
	stored chan struct{} // closed once it is stored
}

// ReadSteps calls read for the details of the task, unless they have been read in this attempt. After an error, do not
// call LeaveSteps.
func (a *Attempt) ReadSteps(read func() (*store.Detail, error)) error {
	a.mu.Lock()
	s := a.say()
	if s.steps == nil {
		s.steps = &steps{begun: map[string]bool{}, waiting: map[store.LogLine]*stepResult{}}
	}
	of := s.steps
	of.users++
	a.mu.Unlock()
	of.read.Lock()
	defer of.read.Unlock()
	if of.known != nil {
		return nil
	}
	detail, err := read()
	if err != nil {
		a.LeaveSteps()
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	of.known = map[string]*stepResult{}
	results := Results(detail.Logs)
	if n := len(detail.Attempts); n > 0 && detail.Attempts[n-1].Outcome == store.Completed {
		of.anew = len(results) > 0 // the process that completed the task did not know of the steps
		clear(results)
	}
	stored := make(chan struct{})
	close(stored)
	for name, result := range results {
		of.known[name] = &stepResult{result, stored}
		of.bytes += len(name) + len(result)
		s.stepped = true
	}
	return nil
}

// Results returns the results of steps in the log of a task, by name.
func Results(log []store.LogLine) map[string][]byte {
	results := map[string][]byte{}
	for _, line := range log {
		switch name, result, _ := strings.Cut(line.Text, " "); {
		case line.Level != store.LevelStep:
		case line.Text == store.StepsEnd:
			clear(results)
		default:
			results[name] = []byte(result)
		}
	}
	return results
}

// LeaveSteps lets the attempt forget its steps. They will be read again.
func (a *Attempt) LeaveSteps() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.said.steps.users--
	a.said.forgetSteps()
}

// forgetSteps forgets steps that nobody uses and that are all stored. The lock must be held.
func (s *said) forgetSteps() {
	if s.steps != nil && s.steps.users == 0 && len(s.steps.waiting) == 0 {
		s.steps = nil
	}
}

// BeginStep returns the result of a step and a channel that is closed once it is stored, or nil if the step has to run.
// Each step begins once in an attempt. The steps must have been read.
func (a *Attempt) BeginStep(name string) (text []byte, stored <-chan struct{}, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.signOfLife()
	s := a.said.steps
	switch {
	case s.begun[name]:
		return nil, nil, ErrStepTwice
	case a.inTx:
		return nil, nil, ErrStepInTx
	case s.known[name] == nil && len(s.known) == MaxSteps:
		return nil, nil, errStepsFull
	}
	s.begun[name] = true
	if result := s.known[name]; result != nil {
		return result.text, result.stored, nil
	}
	return nil, nil, nil
}

// FailStep says that a step has no result. It may begin again.
func (a *Attempt) FailStep(name string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.said.steps.begun, name)
}

// EndStep records the result of a step, unless it has one, and returns the one that counts. The channel is closed once
// that is stored. The steps must have been read.
func (a *Attempt) EndStep(name string, text []byte) (first []byte, stored <-chan struct{}, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.signOfLife()
	s := a.said.steps
	if known := s.known[name]; known != nil {
		return known.text, known.stored, nil
	}
	switch {
	case a.inTx:
		return nil, nil, ErrStepInTx
	case len(s.known) == MaxSteps || s.bytes+len(name)+len(text) > MaxStepBytes:
		return nil, nil, errStepsFull
	}
	a.said.stepped = true
	if s.anew {
		a.said.logs, s.anew = append(a.said.logs, a.line(time.Now(), store.LevelStep, store.StepsEnd)), false
	}
	result := &stepResult{text, make(chan struct{})}
	s.known[name], s.bytes = result, s.bytes+len(name)+len(text)
	line := a.line(time.Now(), store.LevelStep, name+" "+string(text))
	a.said.logs, s.waiting[line] = append(a.said.logs, line), result
	if a.claim != nil && a.claim.note != nil {
		a.claim.note()
	}
	return text, result.stored, nil
}

// Steps returns the results of all steps. The steps must have been read.
func (a *Attempt) Steps() map[string]json.RawMessage {
	a.mu.Lock()
	defer a.mu.Unlock()
	all := map[string]json.RawMessage{}
	for name, result := range a.said.steps.known {
		all[name] = result.text
	}
	return all
}

// noted says that log lines are stored.
func (s *steps) noted(lines []store.LogLine) {
	for _, line := range lines {
		if result := s.waiting[line]; result != nil {
			close(result.stored)
			delete(s.waiting, line)
		}
	}
}

// Completing is Final for an outcome that completes the task. A later run of the task begins with the first step.
func (a *Attempt) Completing() *store.Note {
	note := a.Final()
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.said == nil || !a.said.stepped {
		return note
	}
	if note == nil {
		note = &store.Note{}
	}
	note.Logs = append(slices.Clone(note.Logs), a.line(time.Now(), store.LevelStep, store.StepsEnd))
	return note
}
