package builtin

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/tuskqueue/tusk"
)

const (
	maxInputs = 1 << 30         // bytes of the file that TUSK_INPUTS names
	readAgain = 5 * time.Second // after inputs that could not be read
)

// input is a task that the task of a command needed, without its output.
type input struct {
	ID    string      `json:"id"`
	Name  string      `json:"name,omitempty"`
	Kind  string      `json:"kind,omitempty"`
	State *tusk.State `json:"state,omitempty"` // nil if it was deleted
}

// inputsFile writes what the task needed to a temporary file, as a JSON array, and returns the file's name. The name is
// empty if the task needed nothing.
func inputsFile(ctx context.Context, t *tusk.Task[json.RawMessage]) (name string, err error) {
	file := &lateFile{}
	err = writeInputs(ctx, file, t)
	if file.File == nil {
		return "", err
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return "", errors.Join(err, os.Remove(file.Name()))
	}
	return file.Name(), nil
}

// lateFile is a temporary file that the first write creates.
type lateFile struct{ *os.File }

func (f *lateFile) Write(p []byte) (n int, err error) {
	if f.File == nil {
		if f.File, err = os.CreateTemp("", "tusk-inputs-"); err != nil {
			return 0, err
		}
	}
	return f.File.Write(p)
}

// writeInputs writes what the task needed. It writes nothing if the task needed nothing.
func writeInputs(ctx context.Context, w io.Writer, t *tusk.Task[json.RawMessage]) error {
	out, size := bufio.NewWriter(w), int64(0)
	before := "["
	for in, err := range t.EachInput(ctx) {
		if err != nil {
			return unread(ctx, t, err)
		}
		if size += in.Content.Size(); size > maxInputs {
			return tusk.Discard(fmt.Errorf("the tasks that it needed have more than %d bytes of output", maxInputs))
		}
		_, _ = out.WriteString(before) // the Writer keeps its first error
		if err := writeInput(ctx, out, in); err != nil {
			return err
		}
		before = ",\n"
	}
	if before == "[" {
		return nil
	}
	_, _ = out.WriteString("]\n")
	return out.Flush()
}

// unread returns the end of an attempt whose inputs could not be read. The task is not at fault, so
// the attempt does not count.
func unread(ctx context.Context, t *tusk.Task[json.RawMessage], err error) error {
	if ctx.Err() != nil {
		return err
	}
	t.Logger().Warn("inputs cannot be read", "error", err)
	return tusk.Snooze(readAgain)
}

// writeInput writes an input as a JSON object, without holding its output in memory.
func writeInput(ctx context.Context, out *bufio.Writer, in tusk.Input) error {
	about := input{ID: in.ID.String(), Name: in.Name, Kind: in.Kind}
	if in.State != 0 {
		about.State = &in.State
	}
	text, err := json.Marshal(about)
	if err != nil {
		return err
	}
	if in.Content.Size() == 0 {
		_, err = out.Write(text)
		return err
	}
	_, _ = out.Write(text[:len(text)-1])
	_, _ = out.WriteString(`,"output":`)
	r, err := in.Content.Open(ctx)
	if err != nil {
		return err
	}
	defer r.Close()
	if _, err := io.Copy(out, r); err != nil {
		return err
	}
	return out.WriteByte('}')
}
