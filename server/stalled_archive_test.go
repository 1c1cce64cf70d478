package server_test

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"gocloud.dev/blob"
	"gocloud.dev/blob/driver"
	"gocloud.dev/gcerrors"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/archive"
	"github.com/tuskqueue/tusk/server"
	"github.com/tuskqueue/tusk/server/access"
)

// stalled is an object store that does not answer.
type stalled struct {
	driver.Bucket
	asked atomic.Int32
}

func (s *stalled) wait(ctx context.Context) error {
	s.asked.Add(1)
	<-ctx.Done()
	return ctx.Err()
}

func (s *stalled) Attributes(ctx context.Context, _ string) (*driver.Attributes, error) {
	return nil, s.wait(ctx)
}

func (s *stalled) NewRangeReader(
	ctx context.Context, _ string, _, _ int64, _ *driver.ReaderOptions,
) (driver.Reader, error) {
	return nil, s.wait(ctx)
}

func (s *stalled) ErrorCode(error) gcerrors.ErrorCode { return gcerrors.DeadlineExceeded }
func (s *stalled) Close() error                       { return nil }

// People ask for tasks that left the database long ago. Others can still enqueue.
func TestAnArchiveThatStallsHoldsUpNoEnqueue(t *testing.T) {
	d := &stalled{}
	bucket := blob.NewBucket(d)
	t.Cleanup(func() { bucket.Close() })
	s := start(t, func(c *server.Config) { c.Archive, c.Processors = archive.New(bucket, t.TempDir()), 1 })
	asking, cancel := context.WithCancel(t.Context())
	var work sync.WaitGroup
	defer work.Wait()
	defer cancel()
	for i := range 12 {
		token := s.tokenFor(access.Token{Name: fmt.Sprint("viewer-", i), Role: access.Viewer})
		path := "/api/v1/tasks/"
		if i%2 == 1 {
			path = "/tasks/"
		}
		work.Go(func() {
			r, err := http.NewRequestWithContext(asking, "GET", s.URL+path+tusk.NewID().String(), nil)
			if err != nil {
				t.Error(err)
				return
			}
			r.Header.Set("Authorization", "Bearer "+token)
			if a, err := http.DefaultClient.Do(r); err == nil {
				a.Body.Close()
			}
		})
	}
	for deadline := time.Now().Add(10 * time.Second); d.asked.Load() == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("nobody asks the archive")
		}
	}
	time.Sleep(500 * time.Millisecond) // the others have asked by now
	begun := time.Now()
	s.do("POST", "/api/v1/tasks", `{"kind":"k"}`).want(t, 201, nil)
	if took := time.Since(begun); took > 5*time.Second {
		t.Errorf("an enqueue took %v", took)
	}
}
