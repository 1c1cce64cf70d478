package server_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"gocloud.dev/blob"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/archive"
	"github.com/tuskqueue/tusk/archive/place"
	"github.com/tuskqueue/tusk/server"
	"github.com/tuskqueue/tusk/server/access"
	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/memory"
)

// keeping is a site that keeps large args and outputs in a folder.
type keeping struct {
	*site
	bucket *blob.Bucket
	dir    string
}

func startKeeping(t *testing.T, s store.Store) keeping {
	t.Helper()
	dir := t.TempDir()
	bucket, err := place.Open(t.Context(), "file://"+filepath.ToSlash(dir))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { bucket.Close() })
	return keeping{startOn(t, keeper(t, s, bucket)), bucket, dir}
}

// keeper returns a client that keeps large args and outputs in a bucket.
func keeper(t *testing.T, s store.Store, bucket *blob.Bucket) *tusk.Client {
	t.Helper()
	client, err := tusk.NewClient(s, &tusk.ClientConfig{Logger: slog.New(slog.DiscardHandler),
		Payloads: archive.NewPayloads(s, bucket, tusk.NewID)})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func sumOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// put uploads a part.
func (k keeping) put(token, at, id, part string) answer {
	k.t.Helper()
	return k.as(token, "PUT", "/api/v1"+at+"/"+id+"/"+sumOf(part), part, "Content-Type", "application/octet-stream")
}

// uploaded uploads a text in parts, and returns the upload's description.
func (k keeping) uploaded(token, at, text string, size int) object {
	k.t.Helper()
	id, sums := tusk.NewID().String(), []string{}
	for rest := text; rest != ""; {
		part := rest[:min(size, len(rest))]
		rest = rest[len(part):]
		var kept server.Part
		k.put(token, at, id, part).want(k.t, 201, &kept)
		if kept.Bytes != int64(len(part)) {
			k.t.Errorf("%+v", kept)
		}
		sums = append(sums, sumOf(part))
	}
	return object{"id": id, "parts": sums, "sha256": sumOf(text)}
}

// objects returns how many objects with args or outputs there are, and how many parts.
func (k keeping) objects() (whole, parts int) {
	k.t.Helper()
	for all := k.bucket.List(&blob.ListOptions{Prefix: "_tusk/payloads/"}); ; {
		o, err := all.Next(k.t.Context())
		if err == io.EOF {
			return whole, parts
		}
		if err != nil {
			k.t.Fatal(err)
		}
		if strings.Contains(o.Key, "/uploads/") {
			parts++
		} else {
			whole++
		}
	}
}

func TestLargeArgsAndOutputsGoInPartsByHTTPOnEveryEngine(t *testing.T) {
	for name, open := range engines {
		t.Run(name, func(t *testing.T) {
			db := open(t)
			k := startKeeping(t, db)
			producer := k.tokenFor(access.Token{Name: "p", Role: access.Producer})
			worker := k.tokenFor(access.Token{Name: "w", Role: access.Worker})
			args, output := `{"a":"`+strings.Repeat("many words ", 90<<10)+`"}`, `["`+strings.Repeat("other words ", 60<<10)+`"]`
			var e server.EnqueuedTask
			k.as(producer, "POST", "/api/v1/tasks/large",
				object{"task": object{"kind": "k"}, "upload": k.uploaded(producer, "/uploads", args, 300<<10)}).want(t, 201, &e)
			var leased server.LeasedTasks
			k.as(worker, "POST", "/api/v1/lease", object{"queues": []string{"default"}, "wait": "10s"}).want(t, 200, &leased)
			if len(leased.Tasks) != 1 || leased.Tasks[0].Large == nil || leased.Tasks[0].Large.Bytes != int64(len(args)) ||
				leased.Tasks[0].Large.SHA256 != sumOf(args) {
				t.Fatalf("%+v", leased)
			}
			lease := leased.Tasks[0].LeaseID
			get := func(asked string, status int) answer {
				return k.as(worker, "GET", "/api/v1/lease/args", nil, "Lease-Id", lease, "Range", asked).want(t, status, nil)
			}
			if a := get("", 200); a.body != args {
				t.Errorf("%d bytes", len(a.body))
			}
			for asked, want := range map[string]string{"bytes=0-0": args[:1], "bytes=700000-": args[700000:],
				"bytes=-3": args[len(args)-3:], "bytes=5-9": args[5:10]} {
				if a := get(asked, 206); a.body != want ||
					!strings.HasSuffix(a.header.Get("Content-Range"), fmt.Sprint("/", len(args))) {
					t.Errorf("%s: %d bytes, %s", asked, len(a.body), a.header.Get("Content-Range"))
				}
			}
			k.as(worker, "GET", "/api/v1/lease/args", nil, "Lease-Id", lease, "Range", "bytes=99999999-").problem(t, 416,
				"range_not_satisfiable")
			complete := object{"lease_id": lease, "upload": k.uploaded(worker, "/lease/uploads", output, 300<<10)}
			k.as(worker, "POST", "/api/v1/lease/complete/large", complete).want(t, 200, nil)
			k.as(worker, "POST", "/api/v1/lease/complete/large", complete).want(t, 200, nil) // the answer was lost
			k.as(worker, "GET", "/api/v1/lease/args", nil, "Lease-Id", lease).problem(t, 409, "lease_lost")
			for path, want := range map[string]string{"args": args, "output": output} {
				if a := k.do("GET", "/api/v1/tasks/"+e.ID+"/"+path, nil).want(t, 200, nil); a.body != want {
					t.Errorf("%s has %d bytes", path, len(a.body))
				}
			}
			// The sweep deletes the parts, and nothing that the task refers to.
			r, err := archive.NewRunner(archive.Options{Store: db, Bucket: k.bucket, ID: tusk.NewID(), NewID: tusk.NewID,
				Dir: t.TempDir(), Every: time.Nanosecond, Patience: time.Nanosecond, Grace: time.Nanosecond,
				Keep: func(context.Context) (store.Retention, error) { return store.Retention{}, nil }})
			if err != nil {
				t.Fatal(err)
			}
			eventually(t, func() bool {
				if _, err := r.Step(t.Context()); err != nil {
					t.Fatal(err)
				}
				whole, parts := k.objects()
				if whole < 2 {
					t.Fatalf("%d objects are left", whole)
				}
				return parts == 0
			})
			k.do("GET", "/api/v1/tasks/"+e.ID+"/output", nil).want(t, 200, nil)
		})
	}
}

func TestPartsThatAreWrongAreRefused(t *testing.T) {
	k := startKeeping(t, memory.New())
	id := tusk.NewID().String()
	at := "/api/v1/uploads/" + id + "/"
	bytes := []string{"Content-Type", "application/octet-stream"}
	k.do("PUT", at+sumOf("a"), "b", bytes...).problem(t, 422, "checksum_mismatch")
	k.do("PUT", at+"A", "b", bytes...).problem(t, 400, "invalid_checksum")
	k.do("PUT", at+sumOf("a"), "a").problem(t, 415, "unsupported_media_type")
	if p := k.do("PUT", at+sumOf("a"), strings.Repeat("a", tusk.MaxPartBytes+1), bytes...).problem(t, 413,
		"body_too_large"); !strings.Contains(p.Detail, "16777216") {
		t.Error(p)
	}
	k.do("GET", at+sumOf("a"), nil).problem(t, 404, "not_found")
	k.do("PUT", at+sumOf("1"), "1", bytes...).want(t, 201, nil)
	k.do("PUT", at+sumOf("1"), "1", bytes...).want(t, 201, nil)
	k.do("GET", at+sumOf("1"), nil).want(t, 200, nil)
	large := func(sum string, parts ...string) answer {
		return k.do("POST", "/api/v1/tasks/large",
			object{"task": object{"kind": "k"}, "upload": object{"id": id, "parts": parts, "sha256": sum}})
	}
	large(sumOf("12"), sumOf("1"), sumOf("2")).problem(t, 409, "part_missing")
	large(sumOf("12"), sumOf("1")).problem(t, 422, "checksum_mismatch")
	k.do("PUT", at+sumOf("x"), "x", bytes...).want(t, 201, nil)
	large(sumOf("x"), sumOf("x")).problem(t, 422, "invalid_json")
	large(sumOf("11"), sumOf("1"), sumOf("1")).want(t, 201, nil)
	k.do("POST", "/api/v1/tasks/large", object{"task": object{"kind": "k", "args": 1},
		"upload": object{"id": id, "parts": []string{sumOf("1")}, "sha256": sumOf("1")}}).problem(t, 422, "args_twice")
	for _, header := range [][]string{{"Lease-Id", "\u00e9"}, {"Range", strings.Repeat("0", 65)}, {"Range", "\u00e9"}} {
		k.do("GET", "/api/v1/lease/args", nil, header...).problem(t, 400, "invalid_header")
	}
	without := start(t)
	without.do("PUT", at+sumOf("a"), "a", bytes...).problem(t, 404, "no_payloads")
	without.do("GET", at+sumOf("a"), nil).problem(t, 404, "no_payloads")
}

func TestNoTokenReachesThePayloadsOfAnother(t *testing.T) {
	k := startKeeping(t, memory.New())
	acme := k.tokenFor(access.Token{Name: "a", Role: access.Producer, Tenants: []string{"acme"}})
	bolt := k.tokenFor(access.Token{Name: "b", Role: access.Producer, Tenants: []string{"bolt"}})
	text := `{"a":"` + strings.Repeat("x", 400<<10) + `"}`
	upload := k.uploaded(acme, "/uploads", text, 300<<10)
	k.as(bolt, "GET", fmt.Sprint("/api/v1/uploads/", upload["id"], "/", upload["parts"].([]string)[0]), nil).problem(t,
		404, "not_found")
	k.as(bolt, "POST", "/api/v1/tasks/large",
		object{"task": object{"kind": "k", "tenant": "bolt"}, "upload": upload}).problem(t, 409, "part_missing")
	k.as(bolt, "POST", "/api/v1/tasks/large",
		object{"task": object{"kind": "k", "tenant": "acme"}, "upload": upload}).problem(t, 403, "forbidden")
	var e server.EnqueuedTask
	k.as(acme, "POST", "/api/v1/tasks/large", object{"task": object{"kind": "k", "tenant": "acme", "queue": "mine"},
		"upload": upload}).want(t, 201, &e)
	for role, status := range map[access.Role]int{access.Producer: 403, access.Worker: 403, access.Viewer: 403,
		access.Operator: 403, access.Admins: 403} {
		token := k.tokenFor(access.Token{Name: string(role), Role: role, Queues: []string{"theirs"}})
		k.as(token, "GET", "/api/v1/tasks/"+e.ID+"/args", nil).want(t, status, nil)
	}
	var leased server.LeasedTasks
	k.do("POST", "/api/v1/lease", object{"queues": []string{"mine"}, "wait": "10s"}).want(t, 200, &leased)
	other := k.tokenFor(access.Token{Name: "w", Role: access.Worker, Queues: []string{"theirs"}})
	k.as(other, "GET", "/api/v1/lease/args", nil, "Lease-Id", leased.Tasks[0].LeaseID).problem(t, 403, "forbidden")
	k.as(other, "POST", "/api/v1/lease/complete/large",
		object{"lease_id": leased.Tasks[0].LeaseID, "upload": upload}).problem(t, 403, "forbidden")
	k.do("GET", "/api/v1/lease/args", nil, "Lease-Id", e.ID+"."+strings.Repeat("0", 32)).problem(t, 409, "lease_lost")
	k.do("GET", "/api/v1/tasks/"+e.ID+"/args", nil).want(t, 200, nil)
	entries, err := k.server.Book().Entries(t.Context(), access.EntryFilter{})
	if err != nil || !strings.Contains(fmt.Sprint(entries), "tasks.args") {
		t.Error(entries, err)
	}
}

// ones is a part whose bytes are generated while they are sent, so that the test keeps none.
type ones struct{ left int }

func (z *ones) Read(p []byte) (int, error) {
	if z.left == 0 {
		return 0, io.EOF
	}
	n := min(len(p), z.left)
	for i := range n {
		p[i] = '1'
	}
	z.left -= n
	return n, nil
}

func TestALargeUploadCostsLittleMemory(t *testing.T) {
	k := startKeeping(t, memory.New())
	const size, n = 8 << 20, 8
	sum, whole := sha256.New(), sha256.New()
	_, _ = io.Copy(sum, &ones{size})
	for range n {
		_, _ = io.Copy(whole, &ones{size})
	}
	part := hex.EncodeToString(sum.Sum(nil))
	id := tusk.NewID().String()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	sums := []string{}
	for range n {
		r, err := http.NewRequest("PUT", k.URL+"/api/v1/uploads/"+id+"/"+part, &ones{size})
		if err != nil {
			t.Fatal(err)
		}
		r.ContentLength = size
		r.Header.Set("Authorization", "Bearer "+k.token)
		r.Header.Set("Content-Type", "application/octet-stream")
		a, err := http.DefaultClient.Do(r)
		if err != nil || a.StatusCode != 201 {
			t.Fatal(a, err)
		}
		a.Body.Close()
		sums = append(sums, part)
	}
	k.do("POST", "/api/v1/tasks/large", object{"task": object{"kind": "k"},
		"upload": object{"id": id, "parts": sums, "sha256": hex.EncodeToString(whole.Sum(nil))}}).want(t, 201, nil)
	runtime.ReadMemStats(&after)
	took := after.TotalAlloc - before.TotalAlloc
	t.Logf("%d KiB were allocated for %d MiB that came and were put together", took>>10, n*size>>20)
	if took > 16<<20 {
		t.Errorf("%d MiB were allocated", took>>20)
	}
}
