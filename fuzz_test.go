package tusk

import (
	"bytes"
	"context"
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/memory"
)

// FuzzEnvelope reads args as a database may hold them: encrypted or not, intact or
// tampered with. An envelope may yield only what was sealed in it.
func FuzzEnvelope(f *testing.F) {
	ring := &KeyRing{Keys: map[string][]byte{"a": bytes.Repeat([]byte{1}, 32)}, Primary: "a"}
	task := store.NewTask{ID: ID{1}, Kind: "k", Args: []byte(`{"card":4111}`)}
	if err := ring.seal(&task); err != nil {
		f.Fatal(err)
	}
	f.Add(task.Args)
	for _, text := range []string{`{}`, `{"$encrypted":{}}`, `{"$encrypted":{"key":"a","nonce":"AAAA","data":""}}`,
		`{"$encrypted":null}`, `{"$encrypted":{"key":"b"}}`, `{"$encrypted`} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, args []byte) {
		clear, err := ring.unseal(args, "k", "", ID{1})
		if err == nil && !bytes.Equal(clear, args) && string(clear) != `{"card":4111}` {
			t.Fatalf("%q opens to %q", args, clear)
		}
		if other, err := ring.unseal(args, "k", "", ID{2}); err == nil && !bytes.Equal(other, args) {
			t.Fatalf("%q opens for another task: %q", args, other)
		}
	})
}

// FuzzDecodeArgs checks that any args are decoded as json.Unmarshal does, even after invalid
// ones.
func FuzzDecodeArgs(f *testing.F) {
	for _, text := range []string{`{"n":1,"text":"a","raw":[1]}`, ` {"n":1} `, `{"n":1}{"n":2}`, `{"n":1} x`,
		`{"n":"x","text":"kept"}`, `{"n":1`, ``, ` `, `7`, `7 8`, `null`, `[]`, `"a`, `{"raw":{"n":2}}`, "{}\n"} {
		f.Add([]byte(text))
	}
	type input struct {
		N    int
		Text string
		Raw  json.RawMessage
		Any  any
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		for range 2 {
			sameArgs[input](t, text)
			sameArgs[int](t, text)
			sameArgs[any](t, text)
		}
	})
}

func sameArgs[T any](t *testing.T, text []byte) {
	var got, want T
	err, expected := decodeArgs(text, &got), json.Unmarshal(text, &want)
	if !reflect.DeepEqual(got, want) || (err == nil) != (expected == nil) || err != nil &&
		!strings.Contains(err.Error(), expected.Error()) {
		t.Errorf("%q: %+v, %v; want %+v, %v", text, got, err, want, expected)
	}
}

func FuzzReceipt(f *testing.F) {
	f.Add(Receipt{ID: NewID(), Lease: store.NewToken()}.String())
	f.Add("x.y")
	f.Add("")
	f.Fuzz(func(t *testing.T, text string) {
		r, err := ParseReceipt(text)
		if err != nil {
			return
		}
		if again, err := ParseReceipt(r.String()); err != nil || again != r {
			t.Fatalf("%q: %v, %v", text, again, err)
		}
	})
}

// FuzzWorkflow enqueues any workflow that can be parsed. It is stored as a whole or refused.
func FuzzWorkflow(f *testing.F) {
	for _, text := range []string{`{"tasks":[{"name":"a","kind":"k"},{"name":"b","kind":"k","after":["a"]}]}`,
		`{"tasks":[{"name":"a","kind":"k","after":["a"]}]}`, `{}`,
		`{"tasks":[{"name":"a","kind":"k","args":{"x":1},"on_failure":"continue"}]}`} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		w, err := ParseWorkflow(text)
		if err != nil {
			return
		}
		client, err := NewClient(memory.New(), nil)
		if err != nil {
			t.Fatal(err)
		}
		run, err := client.EnqueueWorkflow(context.Background(), w)
		if err != nil {
			return
		}
		if info, err := client.Workflow(context.Background(), run.ID); err != nil || len(info.Tasks) != len(run.Tasks) {
			t.Fatalf("%s: %v", text, err)
		}
	})
}
