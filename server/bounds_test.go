package server_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/server"
	"github.com/tuskqueue/tusk/server/access"
)

// TestAListOfLargeTasksComesInPages lists tasks of 64 MB in total: no page has more than about 8 MB of them, none is
// missing, and the memory used is limited.
func TestAListOfLargeTasksComesInPages(t *testing.T) {
	if testing.Short() {
		t.Skip("stores 64 MB")
	}
	s := startOn(t, newClient(t, engines["sqlite"](t)))
	const n, size = 300, 220 << 10
	for part := range 10 {
		tasks := make([]tusk.NewTask, n/10)
		for i := range tasks {
			tasks[i].Args = tusk.RawArgs{Name: "k", JSON: fmt.Appendf(nil, `{"n":%d,"text":%q}`, part*30+i,
				bytes.Repeat([]byte("x"), size))}
		}
		if _, err := s.client.EnqueueMany(t.Context(), tasks); err != nil {
			t.Fatal(err)
		}
	}
	runtime.GC()
	var before, now runtime.MemStats
	runtime.ReadMemStats(&before)
	ctx, stop := context.WithCancel(t.Context())
	var most uint64
	var watch sync.WaitGroup
	watch.Go(func() {
		for ctx.Err() == nil {
			if runtime.ReadMemStats(&now); now.HeapAlloc > most {
				most = now.HeapAlloc
			}
			time.Sleep(time.Millisecond)
		}
	})
	seen, cursor := 0, ""
	for {
		body, next := s.largePage(t, cursor)
		if body > 10<<20 {
			t.Errorf("a page of %d bytes", body)
		}
		seen += strings.Count(next.ids, "k")
		if cursor = next.cursor; cursor == "" {
			break
		}
	}
	stop()
	watch.Wait()
	if seen != n {
		t.Errorf("saw %d of %d", seen, n)
	}
	if took := int64(most) - int64(before.HeapAlloc); took > 96<<20 {
		t.Errorf("took %d MiB", took>>20)
	} else {
		t.Logf("took %d MiB", took>>20)
	}
}

type pageEnd struct{ ids, cursor string }

// largePage reads a page without keeping it, because the test's own memory must not be measured.
func (s *site) largePage(t *testing.T, cursor string) (size int64, end pageEnd) {
	request, err := http.NewRequest("GET", s.URL+"/api/v1/tasks?limit=1000&cursor="+cursor, nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+s.token)
	a, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Body.Close()
	var tail []byte
	part := make([]byte, 64<<10)
	for {
		n, err := a.Body.Read(part)
		size += int64(n)
		text := append(tail, part[:n]...)
		end.ids += strings.Repeat("k", bytes.Count(text, []byte(`"kind":"k"`))-bytes.Count(tail, []byte(`"kind":"k"`)))
		if _, cursor, found := bytes.Cut(text, []byte(`"next":"`)); found {
			cursor, _, _ = bytes.Cut(cursor, []byte(`"`))
			end.cursor = string(cursor)
		}
		if tail = bytes.Clone(text[max(0, len(text)-100):]); err == io.EOF {
			return size, end
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestOneTokenLeavesPlacesToOthers(t *testing.T) {
	s := start(t)
	worker := s.tokenFor(access.Token{Name: "w", Role: access.Worker, Queues: []string{"a.*"}})
	other := s.tokenFor(access.Token{Name: "w", Role: access.Worker, Queues: []string{"b.*"}})
	ctx, stop := context.WithCancel(t.Context())
	var waits sync.WaitGroup
	defer waits.Wait()
	defer stop()
	var refused sync.Once
	full := make(chan struct{})
	for range 300 {
		waits.Go(func() {
			request, err := http.NewRequestWithContext(ctx, "POST", s.URL+"/api/v1/lease",
				strings.NewReader(`{"queues":["a.x"],"wait":20}`))
			if err != nil {
				t.Error(err)
				return
			}
			request.Header.Set("Authorization", "Bearer "+worker)
			request.Header.Set("Content-Type", "application/json")
			a, err := http.DefaultClient.Do(request)
			if err != nil {
				return // the test is over
			}
			defer a.Body.Close()
			if a.StatusCode == http.StatusServiceUnavailable {
				refused.Do(func() { close(full) })
			}
		})
	}
	<-full
	s.as(other, "POST", "/api/v1/lease", object{"queues": []string{"b.x"}}).want(t, 200, new(server.LeasedTasks))
}

// The number of tasks and the end of a page reveal as much as the tasks themselves.
func TestNoCountAndNoCursorTellsOfAnothersTasks(t *testing.T) {
	s := start(t)
	ids := map[string]bool{}
	for i := range 30 {
		ids[s.enqueue(object{"kind": "bill", "tenant": "umbrella", "key": fmt.Sprint("inv-", i)})] = true
	}
	s.enqueue(object{"kind": "bill", "tenant": "acme", "key": "inv-1"})
	for name, token := range map[string]access.Token{
		"by a name":      {Name: "acme", Role: access.Viewer, Tenants: []string{"acme"}},
		"by a beginning": {Name: "acme too", Role: access.Viewer, Tenants: []string{"ac*"}},
	} {
		who := s.tokenFor(token)
		look := func(query string) (p server.TaskPage) {
			s.as(who, "GET", "/api/v1/tasks?"+query, nil).want(t, 200, &p)
			return p
		}
		for _, query := range []string{"tenant=umbrella&key=inv-7&from=24h&args=zzz", "key=inv-7&from=24h&args=zzz"} {
			if p := look(query); p.Looked != 0 {
				t.Errorf("bound %s, %s: looked at %d tasks", name, query, p.Looked)
			}
		}
		if p := look("from=24h&args=zzz"); p.Looked != 1 {
			t.Errorf("bound %s: looked at %d tasks, want acme's one", name, p.Looked)
		}
		for _, query := range []string{"tenant=umbrella&limit=1", "tenant=umbrella&tenant=acme&limit=1"} {
			page := look(query)
			raw, err := base64.RawURLEncoding.DecodeString(page.Next)
			if err == nil && len(raw) >= 16 && ids[tusk.ID(raw[:16]).String()] {
				t.Errorf("bound %s, %s: the cursor has the id of umbrella's task", name, query)
			}
		}
		var tenants server.TenantList
		s.as(who, "GET", "/api/v1/tenants", nil).want(t, 200, &tenants)
		if tenants.Looked != 1 {
			t.Errorf("bound %s: tenants: looked at %d tasks, want acme's one", name, tenants.Looked)
		}
		var flows server.WorkflowList
		s.as(who, "GET", "/api/v1/workflows", nil).want(t, 200, &flows)
		if flows.Looked != 1 {
			t.Errorf("bound %s: workflows: looked at %d tasks, want acme's one", name, flows.Looked)
		}
	}
}
