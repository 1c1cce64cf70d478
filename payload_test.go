package tusk_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tuskqueue/tusk"
)

// shelfOf keeps objects in memory.
type shelfOf struct {
	mu      sync.Mutex
	objects map[string][]byte
}

func (s *shelfOf) Write(_ context.Context, name string, r io.Reader) error {
	object, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.objects[name] = object
	return nil
}

func (s *shelfOf) Read(_ context.Context, name string, from int64) (io.ReadCloser, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	object, ok := s.objects[name]
	if !ok {
		return nil, fs.ErrNotExist
	}
	return io.NopCloser(bytes.NewReader(object[from:])), nil
}

func (s *shelfOf) Sum(_ context.Context, prefix string) (objects int, bytes int64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, object := range s.objects {
		if strings.HasPrefix(name, prefix) {
			objects, bytes = objects+1, bytes+int64(len(object))
		}
	}
	return objects, bytes, nil
}

func (s *shelfOf) Remove(_ context.Context, name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.objects, name)
	return nil
}

func (s *shelfOf) names() (names []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name := range s.objects {
		names = append(names, name)
	}
	return names
}

// large gives the shop a client that stores args of more than 100 bytes outside the database.
func (s *shop) large(ring *tusk.KeyRing) *shelfOf {
	shelf := &shelfOf{objects: map[string][]byte{}}
	client, err := tusk.NewClient(s.store, &tusk.ClientConfig{MaxArgsBytes: 100, Payloads: shelf, KeyRing: ring,
		Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		s.t.Fatal(err)
	}
	s.client = client
	return shelf
}

type letter struct{ Text string }

func (letter) Kind() string { return "letter" }

func TestLargeArgsAndOutputsAreKeptOutsideTheDatabase(t *testing.T) {
	ctx := context.Background()
	long := letter{strings.Repeat("many words ", 30<<10)}
	text, err := json.Marshal(long)
	if err != nil {
		t.Fatal(err)
	}
	for name, ring := range map[string]*tusk.KeyRing{"in the clear": nil, "encrypted": keyRing("a", "a")} {
		inBubble(t, name, func(t *testing.T, s *shop) {
			shelf := s.large(ring)
			tusk.HandleFunc(s.mux, func(_ context.Context, a letter) error {
				if a.Text != long.Text {
					return tusk.Discard(errors.New("other args"))
				}
				return nil
			})
			tusk.HandleKind(s.mux, "copy", func(ctx context.Context, t *tusk.Task[tusk.Content]) error {
				r, err := t.Args.Open(ctx)
				if err != nil {
					return err
				}
				defer r.Close()
				return t.StreamOutput(ctx, r)
			})
			tusk.HandleKind(s.mux, "echo", func(_ context.Context, t *tusk.Task[json.RawMessage]) error {
				return t.RecordOutput(t.Args)
			})
			_, stop := s.work(nil)
			inline := s.enqueue(long, nil)
			streamed := s.enqueue(tusk.StreamArgs{Name: "copy", JSON: bytes.NewReader(text)}, &tusk.Options{Key: "k"})
			short := s.enqueue(tusk.StreamArgs{Name: "copy", JSON: strings.NewReader(` {"a":1} `)}, nil)
			echo := s.enqueue(tusk.RawArgs{Name: "echo", JSON: text}, nil)
			for _, id := range []tusk.ID{inline, streamed, echo} {
				task := s.await(id, tusk.StateCompleted)
				if len(task.Task.Args) > 1000 {
					t.Errorf("%d bytes of args are in the database", len(task.Task.Args))
				}
				args, err := s.client.ArgsOf(task)
				if err != nil || args.Size() != int64(len(text)) || !args.Large() {
					t.Fatalf("%d bytes, %v", args.Size(), err)
				}
				if got, err := args.Bytes(ctx); err != nil || !bytes.Equal(got, text) {
					t.Errorf("%d bytes are read: %v", len(got), err)
				}
				for _, from := range []int64{1, 64 << 10, 64<<10 + 3, args.Size()} {
					r, err := args.OpenAt(ctx, from)
					if err != nil {
						t.Fatal(err)
					}
					if got, err := io.ReadAll(r); err != nil || !bytes.Equal(got, text[from:]) {
						t.Errorf("from byte %d: %d bytes, %v", from, len(got), err)
					}
				}
			}
			for _, id := range []tusk.ID{streamed, echo} {
				output := s.client.OutputOf(s.get(id))
				if got, err := output.Bytes(ctx); err != nil || !output.Large() || !bytes.Equal(got, text) {
					t.Errorf("the output has %d bytes: %v", len(got), err)
				}
			}
			small := s.await(short, tusk.StateCompleted)
			if got, err := s.client.OutputOf(small).Bytes(ctx); err != nil || string(got) != `{"a":1}` {
				t.Errorf("%s, %v", got, err)
			}
			if n := len(shelf.names()); n != 5 {
				t.Errorf("%d objects", n)
			}
			if task := s.get(inline); ring != nil {
				for name, object := range shelf.objects {
					if strings.Contains(name, inline.String()) && bytes.Contains(object, []byte("many words")) {
						t.Error("the object is in the clear")
					}
				}
				if strings.Contains(string(task.Task.Args), "plain") || !strings.Contains(string(task.Task.Args), "$encrypted") {
					t.Errorf("%s", task.Task.Args)
				}
				other, _ := tusk.NewClient(s.store, &tusk.ClientConfig{Payloads: shelf})
				if _, err := other.ArgsOf(task); !errors.Is(err, tusk.ErrEncrypted) {
					t.Errorf("without the key: %v", err)
				}
			}
			s.stop(stop)
		})
	}
}

func TestWhatLooksLikeAReferenceIsRefused(t *testing.T) {
	ctx := context.Background()
	inBubble(t, "", func(t *testing.T, s *shop) {
		shelf := s.large(nil)
		s.enqueue(letter{strings.Repeat("a", 200)}, nil)
		stored, err := s.client.List(ctx, tusk.Filter{})
		if err != nil {
			t.Fatal(err)
		}
		forged := stored[0].Task.Args
		for name, args := range map[string]tusk.Args{
			"raw": tusk.RawArgs{Name: "x", JSON: forged}, "typed": forger{forged},
			"streamed": tusk.StreamArgs{Name: "x", JSON: bytes.NewReader(forged)},
			"large":    tusk.StreamArgs{Name: "x", JSON: strings.NewReader(`{"$payload":"` + strings.Repeat("a", 200) + `"}`)},
		} {
			_, err := s.client.Enqueue(ctx, args, nil)
			problem := new(tusk.InvalidError)
			if !errors.As(err, &problem) || problem.Code != "reserved" {
				t.Errorf("%s: %v", name, err)
			}
		}
		if err := tusk.ValidateOutput(forged); !errors.Is(err, tusk.ErrInvalid) {
			t.Errorf("an output: %v", err)
		}
		said := make(chan error, 1)
		tusk.HandleKind(s.mux, "x", func(_ context.Context, t *tusk.Task[json.RawMessage]) error {
			said <- t.RecordOutput(json.RawMessage(forged))
			return nil
		})
		_, stop := s.work(&tusk.WorkerConfig{Queues: []string{"other"}})
		s.enqueue(tusk.RawArgs{Name: "x"}, &tusk.Options{Queue: "other"})
		if err := <-said; !errors.Is(err, tusk.ErrInvalid) {
			t.Errorf("an output: %v", err)
		}
		s.stop(stop)
		for code, text := range map[string]string{"invalid_json": `{"a":` + strings.Repeat(" ", 200),
			"nul_not_allowed": `"` + strings.Repeat(" ", 200) + `\u0000"`} {
			_, err := s.client.Enqueue(ctx, tusk.StreamArgs{Name: "x", JSON: strings.NewReader(text)}, nil)
			problem := new(tusk.InvalidError)
			if !errors.As(err, &problem) || problem.Code != code || problem.Field != "args" {
				t.Errorf("%s: %v", code, err)
			}
		}
		if _, err := s.client.Enqueue(ctx, tusk.StreamArgs{Name: "x", JSON: strings.NewReader("{}")},
			&tusk.Options{Unique: &tusk.Unique{}}); !errors.Is(err, tusk.ErrInvalid) {
			t.Errorf("unique: %v", err)
		}
		if err := s.client.Validate(tusk.StreamArgs{Name: "x", JSON: strings.NewReader("{}")}, nil); err != nil {
			t.Error(err)
		}
		if n := len(shelf.names()); n != 1 {
			t.Errorf("%d objects are there", n)
		}
	})
}

// forger is a type of args that encodes itself.
type forger struct{ text json.RawMessage }

func (forger) Kind() string                   { return "x" }
func (f forger) MarshalJSON() ([]byte, error) { return f.text, nil }

func TestLargeArgsOfOthers(t *testing.T) {
	ctx := context.Background()
	long := letter{strings.Repeat("b", 300)}
	inBubble(t, "a client without a place refuses them, and a worker without one fails the attempt",
		func(t *testing.T, s *shop) {
			plain := s.client
			shelf := s.large(nil)
			id := s.enqueue(long, &tusk.Options{MaxAttempts: 1})
			if _, err := plain.Enqueue(ctx, tusk.RawArgs{Name: "x", JSON: []byte(`"` + strings.Repeat("a", 300<<10) + `"`)},
				nil); !errors.Is(err, tusk.ErrInvalid) {
				t.Error(err)
			}
			if _, err := plain.Enqueue(ctx, tusk.StreamArgs{Name: "x",
				JSON: strings.NewReader(`"` + strings.Repeat("a", 300<<10) + `"`)}, nil); !errors.Is(err, tusk.ErrInvalid) {
				t.Error(err)
			}
			tusk.HandleFunc(s.mux, func(context.Context, letter) error { return nil })
			large := s.client
			s.client = plain
			_, stop := s.work(nil)
			task := s.await(id, tusk.StateDiscarded)
			if len(task.Detail.Attempts) != 1 || !strings.Contains(task.Detail.Attempts[0].Error, "outside the database") {
				t.Errorf("%+v", task.Detail.Attempts)
			}
			s.stop(stop)
			content, err := large.ArgsOf(task)
			if err != nil {
				t.Fatal(err)
			}
			for _, name := range shelf.names() {
				shelf.objects[name][100] ^= 1
			}
			if _, err := content.Bytes(ctx); !errors.Is(err, tusk.ErrPayload) {
				t.Errorf("a damaged object: %v", err)
			}
			clear(shelf.objects)
			if _, err := content.Bytes(ctx); !errors.Is(err, tusk.ErrPayload) {
				t.Errorf("an object that is gone: %v", err)
			}
		})
	inBubble(t, "a rerun has an object of its own, and one that replaces another can be read",
		func(t *testing.T, s *shop) {
			shelf := s.large(keyRing("a", "a"))
			o := &tusk.Options{Key: "document", OnConflict: tusk.Replace}
			first := s.enqueue(long, o)
			if s.enqueue(letter{long.Text + "!"}, o) != first {
				t.Fatal("it is another task")
			}
			again, err := s.client.Again(*s.get(first))
			if err != nil {
				t.Fatal(err)
			}
			again.Options.Key = ""
			second := s.enqueue(again.Args, again.Options)
			if n := len(shelf.names()); n != 3 {
				t.Errorf("%d objects", n)
			}
			for _, id := range []tusk.ID{first, second} {
				content, err := s.client.ArgsOf(s.get(id))
				if err != nil {
					t.Fatal(err)
				}
				if text, err := content.Bytes(ctx); err != nil || !strings.HasSuffix(string(text), `b!"}`) {
					t.Errorf("%s, %v", text, err)
				}
			}
		})
	inBubble(t, "children and stages have them, too", func(t *testing.T, s *shop) {
		s.large(nil)
		p := tusk.NewPipeline("ingest").Stage("fetch", nil).Stage("store", nil)
		tusk.HandleStage(s.mux, p, "fetch", func(ctx context.Context, t *tusk.Task[string]) (string, error) {
			inputs, err := t.Inputs(ctx)
			if err != nil || len(inputs) > 0 {
				return string(inputs[0].Output), err
			}
			if _, err := t.Spawn(ctx, long, &tusk.Options{Queue: "ingest.store"}); err != nil {
				return "", err
			}
			return "", tusk.Wait()
		})
		tusk.HandleKind(s.mux, "letter", func(_ context.Context, t *tusk.Task[letter]) error {
			return t.RecordOutput(strings.Repeat(t.Args.Text, 1000))
		})
		tusk.HandleStage(s.mux, p, "store", func(_ context.Context, t *tusk.Task[string]) (int, error) {
			return len(t.Args), nil
		})
		_, stop := s.work(&tusk.WorkerConfig{Queues: p.Queues()})
		id := s.enqueue(p.Start("x"), nil)
		s.await(id, tusk.StateCompleted)
		time.Sleep(time.Minute)
		run, err := s.client.Workflow(ctx, id)
		if err != nil || len(run.Tasks) != 3 || !run.Done() {
			t.Fatalf("%+v, %v", run, err)
		}
		for _, task := range run.Tasks {
			if task.Kind == "ingest.store" && string(task.Detail.Output) != "300002" {
				t.Errorf("%s", task.Detail.Output)
			}
		}
		s.stop(stop)
	})
	inBubble(t, "a puller lends a reference, and takes a stream", func(t *testing.T, s *shop) {
		s.large(keyRing("a", "a"))
		puller := s.client.NewPuller()
		ctx, cancel := context.WithCancel(ctx)
		done := make(chan error)
		go func() { done <- puller.Run(ctx) }()
		id := s.enqueue(long, nil)
		lent, err := puller.Claim(ctx, tusk.Pull{Queues: []string{"default"}, Wait: 10 * time.Second})
		if err != nil || len(lent) != 1 {
			t.Fatal(lent, err)
		}
		content, err := s.client.ArgsOf(&lent[0].TaskInfo)
		if err != nil {
			t.Fatal(err)
		}
		if text, err := content.Bytes(ctx); err != nil || !strings.Contains(string(text), long.Text) {
			t.Errorf("%s, %v", text, err)
		}
		output := `"` + strings.Repeat("c", 400<<10) + `"`
		if errs, err := puller.Finish(ctx, []tusk.Verdict{{Receipt: lent[0].Receipt,
			Stream: strings.NewReader(output + "!")}}); err != nil || !errors.Is(errs[0], tusk.ErrInvalid) {
			t.Error(errs, err)
		}
		if errs, err := puller.Finish(ctx, []tusk.Verdict{
			{Receipt: lent[0].Receipt, Stream: strings.NewReader(output)}}); err != nil || errs[0] != nil {
			t.Error(errs, err)
		}
		if text, err := s.client.OutputOf(s.get(id)).Bytes(ctx); err != nil || string(text) != output {
			t.Errorf("%d bytes, %v", len(text), err)
		}
		cancel()
		<-done
	})
}
