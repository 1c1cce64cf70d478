//go:build unix

package storm

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strings"
	"time"

	"gocloud.dev/blob"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/archive"
	"github.com/tuskqueue/tusk/archive/place"
	"github.com/tuskqueue/tusk/internal/payload"
	"github.com/tuskqueue/tusk/store"
)

// This file has args and outputs that are stored beside the archive. A load determines the contents of a large task
// to the byte.

const (
	largeFrom = 1 << 10 // bytes of args that do not fit into the database in these tests
	// Longer than a producer's transaction stays open and its requests are delayed.
	orphanAge = 45 * time.Second
)

// bulk is the type of large args.
type bulk struct {
	load
	Text string `json:"text"`
}

// Kind implements tusk.Args.
func (bulk) Kind() string { return doLarge }

// bulk makes the args for a load, with l.Part KiB of text.
func (l load) bulk() bulk {
	r := rand.New(rand.NewPCG(uint64(l.Version), uint64(l.Part)))
	var text strings.Builder
	for text.Len() < l.Part<<10 {
		fmt.Fprintf(&text, "%016x", r.Uint64())
	}
	return bulk{l, text.String()}
}

// intact reports whether JSON is the args of a load, to the byte.
func intact(text []byte) (l load, ok bool) {
	if json.Unmarshal(text, &l) != nil {
		return l, false
	}
	want, err := json.Marshal(l.bulk())
	return l, err == nil && bytes.Equal(text, want)
}

// config returns the client configuration of the storm. If there is a place, large args go there. The returned
// function closes it.
func (p part) config(ctx context.Context, s store.Store) (*tusk.ClientConfig, func(), error) {
	c := &tusk.ClientConfig{Logger: quiet}
	if p.Place == "" {
		return c, func() {}, nil
	}
	bucket, err := place.Open(ctx, p.Place)
	if err != nil {
		return nil, nil, err
	}
	c.MaxArgsBytes, c.Payloads = largeFrom, archive.NewPayloads(s, bucket, tusk.NewID)
	return c, func() { _ = bucket.Close() }, nil
}

// largely reports whether large args may be enqueued: an old worker has no handler for them.
func (p part) largely() bool { return p.Place != "" && os.Getenv(envOld) == "" }

// bulky makes large args for a task and records them. The output of one in five is large too.
func (a *producer) bulky(id tusk.ID) bulk {
	l := load{Version: time.Now().UnixNano(), Part: 1 + a.random.IntN(40)}
	if a.random.IntN(5) == 0 {
		l.Part = 300
	}
	a.log.write(event{Op: opLarge, Items: []item{{ID: id, Version: l.Version}}})
	return l.bulk()
}

// large enqueues tasks with large args, some as a stream, some with a key, so that a task may get the args of
// another.
func (a *producer) large(ctx context.Context) error {
	if !a.part.largely() {
		return a.keyed(ctx)
	}
	var tasks []tusk.NewTask
	for range 1 + a.random.IntN(2) {
		o := a.options([]string{queueOpen, queueOpen, queueKept}[a.random.IntN(3)])
		o.ID = tusk.NewID()
		if a.random.IntN(3) == 0 {
			o.Queue, o.Key = queueKeyed, fmt.Sprint("large", a.random.IntN(producerKeys))
			o.OnConflict = []tusk.OnConflict{tusk.Skip, tusk.Replace}[a.random.IntN(2)]
		}
		args := a.bulky(o.ID)
		task := tusk.NewTask{Args: args, Options: o}
		if a.random.IntN(3) == 0 {
			text, err := json.Marshal(args)
			if err != nil {
				return err
			}
			task.Args = tusk.StreamArgs{Name: doLarge, JSON: bytes.NewReader(text)}
		}
		tasks = append(tasks, task)
	}
	return a.enqueue(ctx, tasks)
}

// large reads its args and returns them as its output. It waits while the place is unavailable.
func (h *hands) large(ctx context.Context, t *tusk.Task[tusk.Content]) error {
	text, err := t.Args.Bytes(ctx)
	if err == nil {
		if _, ok := intact(text); !ok {
			h.log.write(event{Op: opFault, Err: "I23", Items: []item{{ID: t.ID, Token: t.Lease.String()}},
				Text: fmt.Sprintf("task %s was given other args than it was enqueued with: %d bytes, %.80s", t.ID,
					len(text), text)})
		}
		err = t.StreamOutput(ctx, bytes.NewReader(text))
	}
	if err != nil {
		quiet.Warn("large", "task", t.ID, "error", err)
		return tusk.Snooze(300 * time.Millisecond)
	}
	return nil
}

// large checks I23: large args and outputs are what was written, wherever their tasks are, and after orphans are
// swept there are no other objects.
func (c *checker) large() {
	if c.objects == nil {
		return
	}
	ctx := c.t.Context()
	p := part{Place: c.objects.URL("tusk")}
	config, done, err := p.config(ctx, c.client.Store())
	if err != nil {
		c.t.Fatal(err)
	}
	defer done()
	client, err := tusk.NewClient(c.client.Store(), config)
	if err != nil {
		c.t.Fatal(err)
	}
	referred, tasks := map[string]bool{}, 0
	for id, t := range c.stored {
		if t.Kind != doLarge {
			continue
		}
		tasks++
		args, err := client.ArgsOf(t)
		if err != nil {
			c.violation("I23", "task %s: %v", id, err)
			continue
		}
		c.whole(t, "args", args)
		if output := client.OutputOf(t); t.State == tusk.StateCompleted {
			c.whole(t, "output", output)
		}
		for _, text := range [][]byte{t.Args, t.Detail.Output} {
			if ref := payload.Parse(text); ref != nil {
				referred[ref.Object] = true
			}
		}
	}
	left := c.swept(ctx)
	for name := range referred {
		if !left[name] {
			c.violation("I23", "the object %s is gone, though a task refers to it", name)
		}
		delete(left, name)
	}
	for name := range left {
		c.violation("I23", "the object %s is left, though no task refers to it", name)
	}
	c.t.Logf("%d tasks with large args have %d objects", tasks, len(referred))
}

// whole reads and checks the args of a task, or its output, which is the same.
func (c *checker) whole(t *tusk.TaskInfo, what string, content tusk.Content) {
	text, err := content.Bytes(c.t.Context())
	if err != nil {
		c.violation("I23", "the %s of task %s, which is %v, cannot be read: %v", what, t.ID, t.State, err)
		return
	}
	l, ok := intact(text)
	if !ok || t.Key == "" && l.Version != c.larges[t.ID] {
		c.violation("I23", "the %s of task %s are not what was enqueued: %d bytes, %.80s", what, t.ID, len(text), text)
	}
}

// swept has all orphans deleted, whatever their age, and returns the objects that are left.
func (c *checker) swept(ctx context.Context) (left map[string]bool) {
	bucket, err := place.Open(ctx, c.objects.URL("tusk"))
	if err != nil {
		c.t.Fatal(err)
	}
	defer bucket.Close()
	o := runnerOptions(c.client.Store(), bucket, store.Retention{})
	o.Every, o.Grace = time.Hour, time.Nanosecond
	r, err := archive.NewRunner(o)
	if err != nil {
		c.t.Fatal(err)
	}
	before, orphan := len(c.kept(ctx, bucket)), tusk.NewID()
	name := payload.Name(orphan, tusk.NewID(), time.Now())
	line, err := payload.Header{Task: orphan}.Line()
	if err == nil {
		err = bucket.WriteAll(ctx, payload.Prefix+name, line, nil)
	}
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(200 * time.Millisecond) { // small files are merged first
		if err == nil {
			err = archive.RequestPrune(ctx, o.Store)
		}
		if err == nil {
			_, err = r.Step(ctx)
		}
		if left = c.kept(ctx, bucket); !left[name] {
			c.t.Logf("%d orphans were left to be swept", before-len(left))
			return left
		}
		if err != nil || time.Now().After(end) {
			c.violation("I23", "orphans are not swept: %v", err)
			return left
		}
	}
}

// kept lists the objects that hold large args and outputs.
func (c *checker) kept(ctx context.Context, bucket *blob.Bucket) map[string]bool {
	found := map[string]bool{}
	for list := bucket.List(&blob.ListOptions{Prefix: payload.Prefix}); ; {
		o, err := list.Next(ctx)
		if err == io.EOF {
			return found
		}
		if err != nil {
			c.t.Fatal(err)
		}
		found[o.Key[len(payload.Prefix):]] = true
	}
}
