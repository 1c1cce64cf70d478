package builtin

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/tuskqueue/tusk"
)

// maxChildren is the maximum size in bytes of the file that TUSK_CHILDREN names.
const maxChildren = 64 << 20

// spawn spawns the children that a command has listed in a file, one a line, and reports whether the command waits for
// them. A list that is not valid discards the task: the same command would write it again.
func (o *CommandOptions) spawn(
	ctx context.Context, t *tusk.Task[json.RawMessage], name string,
) (waits bool, err error) {
	list, err := written("TUSK_CHILDREN", name)
	if err != nil {
		return false, err
	}
	defer list.Close()
	limited := &io.LimitedReader{R: list, N: maxChildren + 1}
	lines := bufio.NewScanner(limited)
	lines.Buffer(nil, maxChildren+2)
	spawned := 0
	for n := 1; lines.Scan(); n++ {
		line := bytes.TrimSpace(lines.Bytes())
		if len(line) == 0 {
			continue
		}
		wait, err := o.spawnLine(ctx, t, line)
		if errors.Is(err, tusk.ErrInvalid) {
			return false, tusk.Discard(fmt.Errorf("TUSK_CHILDREN: line %d: %w", n, err))
		}
		if err != nil {
			return false, fmt.Errorf("TUSK_CHILDREN: line %d: %w", n, err)
		}
		if wait {
			waits = true
		} else {
			spawned++
		}
	}
	switch err := lines.Err(); {
	case limited.N == 0:
		return false, tusk.Discard(fmt.Errorf("TUSK_CHILDREN: the file has more than %d bytes", maxChildren))
	case err != nil:
		return false, err
	case waits && spawned == 0:
		return false, tusk.Discard(errors.New("TUSK_CHILDREN: asks to wait, but lists no child"))
	}
	return waits, nil
}

// spawnLine spawns the child of a line, or reports that the line is a wait.
func (o *CommandOptions) spawnLine(
	ctx context.Context, t *tusk.Task[json.RawMessage], line []byte,
) (wait bool, err error) {
	var fields map[string]any
	if err := json.Unmarshal(line, &fields); err == nil && len(fields) == 1 && fields["wait"] == true {
		return true, nil
	}
	args, options, err := tusk.ParseChild(line)
	if err != nil {
		return false, err
	}
	// Another worker may allow the queue, so this is a failure like any other.
	if queue := cmp.Or(options.Queue, tusk.DefaultQueue); !slices.Contains(o.ChildQueues, queue) {
		return false, fmt.Errorf("this worker does not let commands spawn children into the queue %q; "+
			"allow it with --exec-children or, in Go, ChildQueues", queue)
	}
	_, err = t.Spawn(ctx, args, options)
	return false, err
}
