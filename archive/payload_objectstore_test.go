package archive

import (
	"bytes"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tuskqueue/tusk"
	places "github.com/tuskqueue/tusk/archive/place"
	"github.com/tuskqueue/tusk/archive/place/placetest"
	"github.com/tuskqueue/tusk/store/memory"
)

// A real object store is killed while large args are written to it. What was stored can be read,
// and nothing refers to what was not. A sweep at the same time deletes nothing that is needed.
func TestAnObjectStoreThatIsKilledLosesNoArgs(t *testing.T) {
	placetest.Each(t, killedWhileItTakesArgs)
}

func killedWhileItTakesArgs(t *testing.T, server *placetest.Server) {
	b, err := places.Open(t.Context(), server.URL("large"))
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	d := newDepot(t, memory.New(), b)
	d.runner.o.Grace = time.Minute
	stop := make(chan struct{})
	var sweeping sync.WaitGroup
	sweeping.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				_ = d.runner.tidy(t.Context())
			}
		}
	})
	const size = 20 << 20
	text := func(n int) string { return `"` + strings.Repeat(string(rune('a'+n)), size) + `"` }
	var kept []tusk.ID
	var texts []string
	for n := range 4 {
		args := &placetest.Trip{R: strings.NewReader(text(n)), Left: size / 2}
		if n%2 == 1 {
			args.Do = func() {
				server.Kill()
				if err := server.Again(); err != nil {
					t.Error(err)
				}
			}
		}
		e, err := d.client.Enqueue(t.Context(), tusk.StreamArgs{Name: "k", JSON: args}, nil)
		if err == nil {
			kept, texts = append(kept, e.ID), append(texts, text(n))
		} else if n%2 == 0 {
			t.Error(err)
		}
	}
	close(stop)
	sweeping.Wait()
	if stored, err := d.client.List(t.Context(), tusk.Filter{}); err != nil || len(stored) != len(kept) {
		t.Errorf("%d tasks are stored of %d: %v", len(stored), len(kept), err)
	}
	finish(t, d.store, d.worker, "default")
	drain(t, d.runner)
	d.runner.o.Grace = time.Nanosecond
	time.Sleep(time.Second) // the object store's clock counts seconds
	if left := d.sweep(); len(left) != len(kept) {
		t.Errorf("%d tasks have objects, want %d", len(left), len(kept))
	}
	a := New(b, t.TempDir())
	for i, id := range kept {
		row, err := a.Find(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		info := d.client.Describe(row)
		content, err := d.client.ArgsOf(&info)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := content.Bytes(t.Context()); err != nil || !bytes.Equal(got, []byte(texts[i])) {
			t.Errorf("task %d has %d bytes of args: %v", i, len(got), err)
		}
		r, err := content.OpenAt(t.Context(), size-1)
		if err != nil {
			t.Fatal(err)
		}
		if end, err := io.ReadAll(r); err != nil || string(end) != texts[i][size-1:] {
			t.Errorf("the end is %q: %v", end, err)
		}
		r.Close()
	}
	if v, err := a.Verify(t.Context(), nil); err != nil || len(v.Problems) != 0 {
		t.Error(v, err)
	}
	e, err := RequestErasure(t.Context(), d.store, tusk.NewID(), "", "")
	if err != nil {
		t.Fatal(err)
	}
	if e, err = d.runner.Erase(t.Context(), e, nil); err != nil || e.State != ErasureDone || e.Tasks != int64(len(kept)) {
		t.Errorf("%+v, %v", e, err)
	}
	if left := d.objects(); len(left) != 0 {
		t.Errorf("%d tasks have objects after the erasure", len(left))
	}
}
