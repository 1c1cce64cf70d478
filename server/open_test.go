package server

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/store/memory"
)

// nowhere is a response that is thrown away.
type nowhere struct{ head http.Header }

func (n nowhere) Header() http.Header         { return n.head }
func (n nowhere) WriteHeader(int)             {}
func (n nowhere) Write(b []byte) (int, error) { return len(b), nil }

// Anybody may send these requests, so they may cost neither memory nor connections to the database.
func TestWhatNeedsNoLoginIsCheap(t *testing.T) {
	var looks atomic.Int64
	client, err := tusk.NewClient(memory.New(), nil)
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(client, Config{Logger: slog.New(slog.DiscardHandler), Ready: func(context.Context) error {
		looks.Add(1)
		time.Sleep(50 * time.Millisecond)
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	ask := func(path string, w http.ResponseWriter) {
		s.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "http://localhost"+path, nil))
	}
	var work sync.WaitGroup
	begun := time.Now()
	for range 50 {
		work.Go(func() { ask("/readyz", nowhere{http.Header{}}) })
	}
	work.Wait()
	// On a slow machine, an answer may get too old meanwhile.
	if n, most := looks.Load(), 1+int64(time.Since(begun)/readyFor); n < 1 || n > most {
		t.Errorf("50 requests looked at the database %d times", n)
	}

	w := httptest.NewRecorder()
	ask("/openapi.json", w)
	if text, err := OpenAPI(); err != nil || !bytes.Equal(w.Body.Bytes(), text) {
		t.Errorf("the description is not the one that is documented: %d bytes, %v", w.Body.Len(), err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	const requests = 20
	for range requests {
		ask("/openapi.json", nowhere{http.Header{}})
	}
	runtime.ReadMemStats(&after)
	if each := (after.TotalAlloc - before.TotalAlloc) / requests; each > 50<<10 {
		t.Errorf("a request for the description takes %d bytes", each)
	}
}
