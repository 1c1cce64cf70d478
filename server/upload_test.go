package server_test

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/server"
	"github.com/tuskqueue/tusk/server/access"
	"github.com/tuskqueue/tusk/store/memory"
)

// lying creates parts of the given size, owned by the one identity that has sent some. They take no space on the
// disk.
func (k keeping) lying(parts int, bytes int64) (remove func()) {
	k.t.Helper()
	sent, err := filepath.Glob(filepath.Join(k.dir, "_tusk/payloads/uploads/*"))
	if err != nil || len(sent) != 1 {
		k.t.Fatal(sent, err)
	}
	path := func(i int) string { return filepath.Join(sent[0], strconv.Itoa(i)) }
	for i := range parts {
		if err := os.WriteFile(path(i), nil, 0o600); err != nil {
			k.t.Fatal(err)
		}
	}
	if err := os.Truncate(path(0), bytes); err != nil {
		k.t.Fatal(err)
	}
	return func() {
		for i := range parts {
			_ = os.Remove(path(i))
		}
	}
}

// Stored parts count on all servers, and a server that has counted before counts again.
func TestPartsThatAreNotPutTogetherAreBoundedByIdentity(t *testing.T) {
	s := memory.New()
	k := startKeeping(t, s)
	beside := func() keeping { return keeping{startOn(t, keeper(t, s, k.bucket)), k.bucket, k.dir} }
	acme := k.tokenFor(access.Token{Name: "a", Role: access.Producer, Tenants: []string{"acme"}})
	bolt := k.tokenFor(access.Token{Name: "b", Role: access.Producer, Tenants: []string{"bolt"}})
	id := tusk.NewID().String()
	k.put(acme, "/uploads", id, "1").want(t, 201, nil)
	refused := func(k keeping, limit int64) {
		t.Helper()
		p := k.put(acme, "/uploads", tusk.NewID().String(), "2").problem(t, 413, "too_large")
		if !strings.Contains(p.Detail, strconv.FormatInt(limit, 10)) {
			t.Error(p)
		}
	}
	remove := k.lying(1, tusk.MaxUnfinishedBytes-1)
	refused(beside(), tusk.MaxUnfinishedBytes)
	remove()
	remove = k.lying(tusk.MaxUnfinishedParts-1, 0)
	other := beside()
	refused(other, tusk.MaxUnfinishedParts)
	other.put(bolt, "/uploads", id, "2").want(t, 201, nil)
	large := object{"task": object{"kind": "k", "tenant": "acme"},
		"upload": object{"id": id, "parts": []string{sumOf("1")}, "sha256": sumOf("1")}}
	k.as(acme, "POST", "/api/v1/tasks/large", large).want(t, 201, nil) // makes room for one
	eventually(t, func() bool { return other.put(acme, "/uploads", id, "3").status == 201 })
	remove()
}

func TestPartsGoWhenTheirTaskIsStored(t *testing.T) {
	k := startKeeping(t, memory.New())
	p := k.tokenFor(access.Token{Name: "p", Role: access.Producer})
	upload := k.uploaded(p, "/uploads", `"`+strings.Repeat("x", 400<<10)+`"`, 150<<10)
	k.put(p, "/uploads", upload["id"].(string), "of another").want(t, 201, nil)
	send := func(conflict string) answer {
		task := object{"kind": "k", "key": "one", "on_conflict": conflict}
		return k.as(p, "POST", "/api/v1/tasks/large", object{"task": task, "upload": upload})
	}
	var first, again server.EnqueuedTask
	send("skip").want(t, 201, &first)
	if whole, parts := k.objects(); whole != 1 || parts != 1 {
		t.Errorf("%d objects and %d parts are left", whole, parts)
	}
	// As if the answer had been lost.
	for _, conflict := range []string{"skip", "once"} {
		if send(conflict).want(t, 200, &again); again.ID != first.ID || !again.Duplicate {
			t.Errorf("%s: %+v, want %s", conflict, again, first.ID)
		}
	}
	send("replace").problem(t, 409, "part_missing")
	k.do("POST", "/api/v1/tasks/"+first.ID+"/cancel", nil).want(t, 200, nil)
	send("skip").problem(t, 409, "part_missing")
	send("once").want(t, 200, nil)
}

func TestUploadsAtOnceAreBoundedByIdentity(t *testing.T) {
	k := startKeeping(t, memory.New())
	many := k.tokenFor(access.Token{Name: "many", Role: access.Producer})
	few := k.tokenFor(access.Token{Name: "few", Role: access.Producer})
	const most = 16
	answers := make(chan *http.Response, most+1)
	body, end := io.Pipe()
	defer end.Close()
	go func() { // keeps bodies that are read from being too slow
		for text := make([]byte, 64<<10); ; time.Sleep(20 * time.Millisecond) {
			if _, err := end.Write(text); err != nil {
				return
			}
		}
	}()
	for range most + 1 {
		r, err := http.NewRequest("PUT", k.URL+"/api/v1/uploads/"+tusk.NewID().String()+"/"+sumOf("1"), io.NopCloser(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+many)
		r.Header.Set("Content-Type", "application/octet-stream")
		go func() {
			a, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Error(err)
			}
			answers <- a
		}()
	}
	a := <-answers
	if a == nil {
		t.Fatal("no answer")
	}
	text, _ := io.ReadAll(a.Body)
	a.Body.Close()
	if a.StatusCode != 429 || !strings.Contains(string(text), `"too_many_uploads"`) ||
		!strings.Contains(string(text), "you have 16 uploads in progress") || a.Header.Get("Retry-After") == "" {
		t.Fatalf("%d %s", a.StatusCode, text)
	}
	k.put(few, "/uploads", tusk.NewID().String(), "1").want(t, 201, nil)
	end.Close()
	for range most {
		if a := <-answers; a != nil {
			a.Body.Close()
		}
	}
	k.put(many, "/uploads", tusk.NewID().String(), "1").want(t, 201, nil)
}
