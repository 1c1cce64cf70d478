package harness

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"
)

// Sample is the measured result of one run.
type Sample struct {
	Result
	ServerCPU    time.Duration `json:"server_cpu"`
	Statements   int64         `json:"statements,omitempty"` // of an everyday run, if the server counts them
	WAL          int64         `json:"wal"`                  // bytes of log or journal; -1 if unknown
	Dead         int64         `json:"dead_rows"`            // at the end of the run
	Growth       int64         `json:"growth"`               // how many bytes its tables and indexes grew
	ClientCPU    time.Duration `json:"client_cpu"`
	ClientMemory int64         `json:"client_memory"` // the most it held, in bytes
	Void         string        `json:"void,omitempty"`
}

// Counters are what a server has used so far.
type Counters struct {
	CPU time.Duration
	// CPU before the meter was read, if reading it costs the server something; otherwise 0.
	Before time.Duration
	WAL    int64
	Dead   int64
	Size   int64
	// Statements that the server has executed; 0 if it does not count them.
	Statements int64
}

// Meter reads a server's counters.
type Meter interface {
	Read(ctx context.Context) (Counters, error)
}

// Surroundings sets up what goes on around a run. It is called when the measurement is about to
// begin.
type Surroundings func(ctx context.Context) (end func(), err error)

// Run starts a runner, takes it through the plan and measures it. A run is void, and says why, if
// it did not end well, lost tasks, or ran tasks twice without reason. An error is a failure of the
// harness itself.
func Run(ctx context.Context, command []string, p Plan, m Meter, around Surroundings) (Sample, error) {
	var s Sample
	process := exec.CommandContext(ctx, command[0], command[1:]...)
	process.WaitDelay = 5 * time.Second
	var complaints bytes.Buffer
	process.Stderr = &complaints
	in, err := process.StdinPipe()
	if err != nil {
		return s, err
	}
	out, err := process.StdoutPipe()
	if err != nil {
		return s, err
	}
	if err := process.Start(); err != nil {
		return s, fmt.Errorf("start %s: %w", command[0], err)
	}
	w := watch{ctx: ctx, meter: m, around: around, plan: p, pid: process.Process.Pid}
	defer w.leave()
	last, err := w.follow(in, bufio.NewReader(out))
	if err != nil {
		_ = process.Process.Kill() // it is no longer needed
		return s, errors.Join(err, process.Wait(), tail(&complaints))
	}
	in.Close()
	err = process.Wait()
	s.ClientCPU = process.ProcessState.UserTime() + process.ProcessState.SystemTime() - w.clientCPU
	s.ClientMemory = w.clientMemory
	switch {
	case last.Result == nil && ctx.Err() != nil:
		s.Void = "gave up: it took too long"
	case last.Result == nil:
		fmt.Fprintln(os.Stderr, tail(&complaints)) // a trace of this machine is for the user's eyes, not for a report
		s.Void = fmt.Sprint("ended without a result: ", err)
	default:
		s.Result = *last.Result
		s.Void = verdict(p, s.Result, last.Error)
	}
	after, err := m.Read(context.WithoutCancel(ctx))
	if err != nil {
		return s, fmt.Errorf("meter: %w", err)
	}
	if w.after != nil { // workers were still there
		s.ClientCPU, after = w.clientCPU, *w.after
		s.Statements = after.Statements - w.before.Statements
	}
	s.ServerCPU, s.Dead, s.Growth = cmp.Or(after.Before, after.CPU)-w.before.CPU, after.Dead, after.Size-w.size
	if s.WAL = after.WAL - w.before.WAL; after.WAL < 0 {
		s.WAL = -1
	}
	return s, nil
}

// verdict returns why a run is void, or "".
func verdict(p Plan, r Result, complaint string) string {
	switch {
	case complaint != "":
		return complaint
	case r.Stored != p.Tasks:
		return fmt.Sprintf("stored %d of %d tasks", r.Stored, p.Tasks)
	case r.Tasks < p.Tasks:
		return fmt.Sprintf("lost %d of %d tasks", p.Tasks-r.Tasks, p.Tasks)
	case r.Tasks > p.Tasks:
		return fmt.Sprintf("has %d tasks for %d that were enqueued", r.Tasks, p.Tasks)
	}
	return ""
}

func tail(b *bytes.Buffer) error {
	text := strings.TrimSpace(b.String())
	if text == "" {
		return nil
	}
	return errors.New(text[max(0, len(text)-600):])
}

// watch follows a runner.
type watch struct {
	ctx    context.Context
	meter  Meter
	around Surroundings
	plan   Plan
	pid    int

	before       Counters
	after        *Counters // nil if there was no such stage
	size         int64     // before anything was enqueued
	end          func()
	clientCPU    time.Duration
	clientMemory int64
}

// follow reads the runner's lines until its result or its end.
func (w *watch) follow(in io.Writer, out *bufio.Reader) (last message, err error) {
	first, err := json.Marshal(w.plan)
	if err != nil {
		return last, err
	}
	if _, err := in.Write(append(first, '\n')); err != nil {
		return last, nil // it has ended; its standard error says why
	}
	for {
		line, err := out.ReadBytes('\n')
		var m message
		if json.Unmarshal(line, &m) != nil {
			m = message{}
		}
		switch {
		case m.Result != nil:
			w.clientMemory = peakMemory(w.pid)
			return m, nil
		case err != nil:
			return last, nil
		case m.Stage != "":
			if err := w.stage(m.Stage); err != nil {
				return last, err
			}
			if _, err := io.WriteString(in, "go\n"); err != nil {
				return last, nil
			}
		}
	}
}

// stage reads the counters before the measured part begins or, at Measured, after it.
func (w *watch) stage(name string) (err error) {
	if name == Measured {
		after, err := w.meter.Read(w.ctx)
		w.after, w.clientCPU = &after, processCPU(w.pid)-w.clientCPU
		return err
	}
	if w.before, err = w.meter.Read(w.ctx); err != nil {
		return fmt.Errorf("meter: %w", err)
	}
	if name == Ready {
		w.size = w.before.Size
	}
	if w.around != nil && (name == Enqueued) == (w.plan.Order == Backlog) {
		if w.end, err = w.around(w.ctx); err != nil {
			return fmt.Errorf("surroundings: %w", err)
		}
	}
	resetPeakMemory(w.pid)
	w.clientCPU = processCPU(w.pid)
	return nil
}

func (w *watch) leave() {
	if w.end != nil {
		w.end()
	}
}
