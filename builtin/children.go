package builtin

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/tuskqueue/tusk"
)

// maxChildren is the maximum size in bytes of the file that TUSK_CHILDREN names.
const maxChildren = 64 << 20

// spawn spawns the children that a command has listed, one a line. It returns tusk.Wait if the command waits for them.
// A list that is not valid discards the task: the same command would write it again.
func spawn(ctx context.Context, t *tusk.Task[json.RawMessage], list io.Reader) error {
	limited := &io.LimitedReader{R: list, N: maxChildren + 1}
	lines := bufio.NewScanner(limited)
	lines.Buffer(nil, maxChildren+2)
	spawned, waits := 0, false
	for n := 1; lines.Scan(); n++ {
		line := bytes.TrimSpace(lines.Bytes())
		if len(line) == 0 {
			continue
		}
		wait, err := spawnLine(ctx, t, line)
		if errors.Is(err, tusk.ErrInvalid) {
			return tusk.Discard(fmt.Errorf("TUSK_CHILDREN: line %d: %w", n, err))
		}
		if err != nil {
			return fmt.Errorf("child: %w", err)
		}
		if wait {
			waits = true
		} else {
			spawned++
		}
	}
	switch err := lines.Err(); {
	case limited.N == 0:
		return tusk.Discard(fmt.Errorf("TUSK_CHILDREN: the file has more than %d bytes", maxChildren))
	case err != nil:
		return err
	case waits && spawned == 0:
		return tusk.Discard(errors.New("TUSK_CHILDREN: asks to wait, but lists no child"))
	case waits:
		return tusk.Wait()
	}
	return nil
}

// spawnLine spawns the child of a line, or reports that the line is a wait.
func spawnLine(ctx context.Context, t *tusk.Task[json.RawMessage], line []byte) (wait bool, err error) {
	var fields map[string]any
	if err := json.Unmarshal(line, &fields); err == nil && len(fields) == 1 && fields["wait"] == true {
		return true, nil
	}
	args, options, err := tusk.ParseChild(line)
	if err != nil {
		return false, err
	}
	_, err = t.Spawn(ctx, args, options)
	return false, err
}
