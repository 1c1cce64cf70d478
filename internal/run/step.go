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
	bytes int
	users int // calls of ReadSteps without one of LeaveSteps

	waiting map[store.LogLine]*stepResult // that are not stored yet
}

type stepResult struct {
	text   []byte
	stored chan struct{} // closed once it is stored
}

// ReadSteps calls read for the log of the task, unless it has been read in this attempt. After an error, do not call
// LeaveSteps.
func (a *Attempt) ReadSteps(read func() ([]store.LogLine, error)) error {
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
	lines, err := read()
	if err != nil {
		a.LeaveSteps()
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	of.known = map[string]*stepResult{}
	stored := make(chan struct{})
	close(stored)
	for _, line := range lines {
		switch name, result, _ := strings.Cut(line.Text, " "); {
		case line.Level != store.LevelStep:
		case line.Text == store.StepsEnd:
			clear(of.known)
		default:
			of.known[name] = &stepResult{[]byte(result), stored}
		}
	}
	for name, result := range of.known {
		of.bytes += len(name) + len(result.text)
		s.stepped = true
	}
	return nil
}

// LeaveSteps lets the attempt forget its steps. They will be read again.
func (a *Attempt) LeaveSteps() {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.said.steps
	if s.users--; s.users == 0 && len(s.waiting) == 0 {
		a.said.steps = nil
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
