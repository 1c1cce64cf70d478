// Package builtin provides handlers for work that needs no Go code: running a command, sending an
// HTTP request, echoing args.
//
// It may use package tusk, processes and the network, but no database.
//
// A task of kind exec runs any command that its producer chooses, with the rights of the worker.
// Register exec only if everyone who may enqueue tasks may also run any command. A task of kind
// http reaches only public addresses, and hosts that are explicitly allowed.
package builtin

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/internal/words"
)

// The kinds of tasks.
const (
	KindEcho = "echo"
	KindExec = "exec"
	KindHTTP = "http"
)

// Echo registers the handler of kind echo: a task's output is its args.
func Echo(m *tusk.Mux) {
	tusk.HandleKind(m, KindEcho, func(_ context.Context, t *tusk.Task[json.RawMessage]) error {
		t.Logger().Info("echo", "attempt", t.Attempt)
		return t.RecordOutput(t.Args)
	})
}

// decodeArgs decodes args into v and refuses unknown fields. A task whose args do not fit is
// discarded, since they will not fit next time either.
func decodeArgs(args json.RawMessage, v any) error {
	d := json.NewDecoder(strings.NewReader(string(args)))
	d.DisallowUnknownFields()
	err := d.Decode(v)
	if err == nil {
		return nil
	}
	var wrong *json.UnmarshalTypeError
	if errors.As(err, &wrong) {
		text := fmt.Sprintf("want %s, not %s", formOf[wrong.Type.Kind()], cmp.Or(formIn[wrong.Value], wrong.Value))
		if wrong.Field != "" {
			text = wrong.Field + ": " + text
		}
		return badArgs(text)
	}
	text := strings.TrimPrefix(err.Error(), "json: ")
	if name, unknown := strings.CutPrefix(text, "unknown field "); unknown {
		text = words.Hinted(text, strings.Trim(name, `"`), fieldsOf(reflect.TypeOf(v).Elem()))
	}
	return badArgs(text)
}

// formOf names the form that a type has in JSON, for the types of args.
var formOf = map[reflect.Kind]string{reflect.String: "a string", reflect.Int: "a whole number", reflect.Slice: "a list",
	reflect.Map: "an object", reflect.Struct: "an object"}

// formIn does the same for the words of package json.
var formIn = map[string]string{"string": "a string", "number": "a number", "bool": "true or false", "array": "a list",
	"object": "an object"}

// fieldsOf returns the names that the fields of a type have in JSON.
func fieldsOf(t reflect.Type) (names []string) {
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		names = append(names, name)
	}
	return names
}

// badArgs is a failure that no retry can fix.
func badArgs(problem string) error { return tusk.Discard(argsError("args: " + problem)) }

type argsError string

func (e argsError) Error() string { return string(e) }

// asOutput turns what a program or a server sent into JSON that every engine can store. JSON stays
// as it is. Anything else becomes a string, which is cut if it is too long.
func asOutput(text []byte, limit int) (output json.RawMessage, cut bool) {
	if !bytes.Contains(text, []byte(`\u0000`)) {
		if output, err := json.Marshal(json.RawMessage(text)); err == nil && len(output) <= limit {
			return output, false
		}
	}
	clean := strings.ReplaceAll(strings.ToValidUTF8(string(text), "\uFFFD"), "\x00", "\uFFFD")
	for {
		output, _ = json.Marshal(clean) // encoding a string never fails
		if len(output) <= limit {
			return output, cut
		}
		clean, cut = strings.ToValidUTF8(clean[:len(clean)*limit/len(output)], ""), true
	}
}

// record stores output. It logs to the task if the output was cut or cannot be stored.
func record[T any](t *tusk.Task[T], output json.RawMessage, cut bool) {
	if cut {
		t.Logger().Warn("output was cut", "kept_bytes", len(output))
	}
	if err := t.RecordOutput(output); err != nil {
		t.Logger().Warn("output is not kept", "error", err)
	}
}
