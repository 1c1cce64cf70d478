package harness

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
)

// message is a line that a runner prints. A runner reads the plan as its first line of input. At
// each stage, it prints a line and waits for one. At the end it prints a result, and lives until
// its input ends. Other lines are ignored.
type message struct {
	Stage  string  `json:"stage,omitempty"`
	Result *Result `json:"result,omitempty"`
	Error  string  `json:"error,omitempty"`
}

// Serve is the runner's side of a run. It reads a plan, finds the peer and drives it.
func Serve(ctx context.Context, in io.Reader, out io.Writer, find func(Plan) (Peer, error)) error {
	lines := bufio.NewReader(in)
	first, err := lines.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("plan: %w", err)
	}
	var p Plan
	if err := json.Unmarshal(first, &p); err != nil {
		return fmt.Errorf("plan: %w", err)
	}
	peer, err := find(p)
	if err != nil {
		return err
	}
	print := json.NewEncoder(out)
	pause := func(stage string) error {
		if err := print.Encode(message{Stage: stage}); err != nil {
			return err
		}
		_, err := lines.ReadBytes('\n')
		return err
	}
	result, err := Drive(ctx, peer, p, pause)
	m := message{Result: &result}
	if err != nil {
		m.Error = err.Error()
	}
	if err := print.Encode(m); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, lines) // the harness examines this process until it closes its input
	return err
}
