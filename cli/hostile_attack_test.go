package cli

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/store/postgres/pgtest"
)

// playHostile is set in the environment of a test binary that attacks a server: to the server's URL and the tokens.
const playHostile = "PLAY_HOSTILE"

// hostileWays selects ways of attack, to find out what each of them costs. Empty means all.
const hostileWays = "TUSK_TEST_HOSTILE_WAYS"

// attack attacks from a process that leaves the processors to others, because the test measures what the server does,
// not who sends most.
func (sh *shell) attack(url string, tokens []string) (stop func()) {
	cmd := exec.Command("nice", "-n", "19", os.Args[0])
	cmd.Env = append(os.Environ(), playHostile+"="+url+" "+strings.Join(tokens, " "))
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		sh.t.Fatal(err)
	}
	stop = func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	sh.t.Cleanup(stop)
	return stop
}

// attacker sends the worst requests that its tokens allow.
type attacker struct {
	url                      string
	producer, worker, viewer string
	task, workflow           string // of the tenant
	part                     []byte // of an upload
	stored                   atomic.Int64
	client                   *http.Client
	seen                     func(what string, status int, answer []byte) // nil if nobody looks
}

// maxStored limits the bytes that an attack stores, so that it does not fill the disk.
const maxStored = 200 << 20

// way is a way of attack, used by several goroutines at a time.
type way struct {
	hands   int
	do      func(*attacker)
	refused bool // it should be refused: only the cost of the refusal counts
}

var ways = map[string]way{
	"largeBatch": {8, (*attacker).largeBatch, false}, "longKey": {4, (*attacker).longKey, true},
	"wideWorkflow": {4, (*attacker).wideWorkflow, false},
	"manyTasks":    {32, (*attacker).manyTasks, false}, "sameKey": {8, (*attacker).sameKey, false},
	"slowBody": {60, (*attacker).slowBody, true},
	"slowForm": {40, (*attacker).slowForm, true}, "largeForm": {8, (*attacker).largeForm, true},
	"newTask": {4, (*attacker).newTask, false},
	"upload":  {8, (*attacker).upload, false}, "junk": {16, (*attacker).junk, true},
	"waitForTasks": {400, (*attacker).waitForTasks, false}, "leaseAll": {8, (*attacker).leaseAll, false},
	"largeReports": {4, (*attacker).largeReports, false},
	"list":         {16, (*attacker).list, false}, "searchArgs": {8, (*attacker).searchArgs, false},
	"export":     {8, (*attacker).export, false},
	"watchLists": {100, (*attacker).watchLists, false}, "watchTask": {100, (*attacker).watchTask, false},
	"pages": {16, (*attacker).pages, false}, "looks": {16, (*attacker).looks, false},
}

func hostileMain(arguments string) {
	parts := strings.Fields(arguments)
	a := newAttacker(parts[0], parts[1:])
	only := strings.Fields(os.Getenv(hostileWays))
	for name, way := range ways {
		if len(only) > 0 && !slices.Contains(only, name) {
			continue
		}
		for range way.hands {
			go func() {
				for {
					way.do(a)
				}
			}()
		}
	}
	select {} // until the process is killed
}

// newAttacker stores the task and the workflow that it reads.
func newAttacker(url string, tokens []string) *attacker {
	a := &attacker{url: url, producer: tokens[0], worker: tokens[1], viewer: tokens[2],
		client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 2000}, Timeout: time.Minute,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
	a.part = []byte(`"` + strings.Repeat("x", tusk.MaxPartBytes-2) + `"`)
	var made struct{ ID string }
	for _, of := range []struct {
		path, body string
		id         *string
	}{
		{"/tasks", `{"kind":"k","tenant":"acme","queue":"acme.looked"}`, &a.task},
		{"/workflows", `{"tasks":[{"name":"a","kind":"k","tenant":"acme","queue":"acme.looked"}]}`, &a.workflow},
	} {
		_ = json.Unmarshal(a.post(a.producer, of.path, of.body), &made)
		*of.id = made.ID
	}
	return a
}

// TestHostileTokensReachWhatTheyMeanTo runs each way of attack once, on an idle server: a request that is refused for
// its form is no attack.
func TestHostileTokensReachWhatTheyMeanTo(t *testing.T) {
	if os.Getenv("TUSK_TEST_HOSTILE") == "" {
		t.Skip("make hostile runs it: it takes a minute or two")
	}
	sh := newShell(t)
	sh.env = append(sh.env, "TUSK_DATABASE_URL="+pgtest.DSN(t), "TUSK_ARCHIVE=file://"+t.TempDir())
	sh.must("migrate", "up")
	url := sh.serveBuilt(t).await(`health=(http\S+)/healthz`)
	a := newAttacker(url, sh.hostileTokens())
	a.client.Timeout = 5 * time.Second
	for _, name := range slices.Sorted(maps.Keys(ways)) {
		if ways[name].refused {
			continue
		}
		answers := 0
		a.seen = func(what string, status int, answer []byte) {
			answers++
			busy := status == http.StatusTooManyRequests || status == http.StatusRequestEntityTooLarge
			if status/100 == 4 && !busy || strings.Contains(string(answer), "invalid_id") {
				t.Errorf("%s: %s: %d %.200s", name, what, status, answer)
			}
		}
		ways[name].do(a)
		if answers == 0 && name != "waitForTasks" {
			t.Errorf("%s: no answer", name)
		}
	}
}

// hostileTokens returns tokens of a producer, a worker and a viewer of one tenant.
func (sh *shell) hostileTokens() []string {
	token := func(name string, flags ...string) string {
		return strings.TrimSpace(sh.must(append([]string{"tokens", "create", name, "-q"}, flags...)...))
	}
	return []string{token("hp", "--role", "producer", "--tenant", "acme"),
		token("hw", "--role", "worker", "--queue", "acme.*"),
		token("hv", "--role", "viewer", "--tenant", "acme")}
}

const jsonText, formText, bytesText = "application/json", "application/x-www-form-urlencoded",
	"application/octet-stream"

// send returns the response body, or nil.
func (a *attacker) send(token, method, path, kind string, body io.Reader) []byte {
	request, err := http.NewRequest(method, a.url+path, body)
	if err != nil {
		panic(err)
	}
	request.Header.Set("Authorization", "Bearer "+token)
	if method != "GET" {
		request.Header.Set("Content-Type", kind)
	}
	answer, err := a.client.Do(request)
	if err != nil {
		time.Sleep(10 * time.Millisecond)
		return nil
	}
	defer answer.Body.Close()
	text, _ := io.ReadAll(answer.Body)
	if a.seen != nil {
		a.seen(method+" "+path, answer.StatusCode, text)
	}
	return text
}

func (a *attacker) post(token, path, body string) []byte {
	return a.send(token, "POST", "/api/v1"+path, jsonText, strings.NewReader(body))
}

func (a *attacker) get(path string) { a.send(a.viewer, "GET", path, "", nil) }

// stores reports whether the attack may store this many more bytes.
func (a *attacker) stores(bytes int) bool { return a.stored.Add(int64(bytes)) <= maxStored }

// largeBatch sends the largest allowed body. Once enough is stored, its last task is invalid.
func (a *attacker) largeBatch() {
	tasks := strings.Repeat(`{"kind":"k","tenant":"acme","queue":"acme.x","args":{"x":"`+
		strings.Repeat("x", 250<<10)+`"}},`, 31)
	last := `{"kind":"k","tenant":"acme","queue":"acme.x"}`
	if !a.stores(len(tasks)) {
		last = `{"kind":"","tenant":"acme"}`
	}
	a.post(a.producer, "/tasks/batch", `{"tasks":[`+tasks+last+`]}`)
}

func (a *attacker) longKey() {
	a.post(a.producer, "/tasks", `{"kind":"k","tenant":"acme","args":{"`+strings.Repeat("a", 4<<20)+`":[1`+
		strings.Repeat(",1", 1<<20)+`]}}`)
}

func (a *attacker) wideWorkflow() {
	var tasks strings.Builder
	for i := range 400 {
		needs := make([]string, min(i, 100))
		for n := range needs {
			needs[n] = fmt.Sprintf("%q", fmt.Sprint("t", n))
		}
		fmt.Fprintf(&tasks, `,{"name":"t%d","kind":"k","tenant":"acme","queue":"acme.x","after":[%s]}`, i,
			strings.Join(needs, ","))
	}
	if !a.stores(tasks.Len()) {
		tasks.WriteString(`,{"name":""}`)
	}
	a.post(a.producer, "/workflows", `{"tasks":[`+tasks.String()[1:]+`]}`)
}

func (a *attacker) manyTasks() {
	a.post(a.producer, "/tasks", `{"kind":"k","tenant":"acme","queue":"acme.x"}`)
}

func (a *attacker) sameKey() {
	a.post(a.producer, "/tasks", `{"kind":"k","tenant":"acme","queue":"acme.y","key":"one","on_conflict":"replace"}`)
}

// slowBody sends a byte per second.
func (a *attacker) slowBody() { a.slowly("/api/v1/tasks", jsonText, " ") }

func (a *attacker) slowForm() { a.slowly("/tasks/new", formText, "x") }

func (a *attacker) slowly(path, kind, text string) {
	read, write := io.Pipe()
	go func() {
		for {
			if _, err := write.Write([]byte(text)); err != nil {
				return
			}
			time.Sleep(time.Second)
		}
	}()
	a.send(a.producer, "POST", path, kind, read)
	_ = read.Close()
}

// largeForm sends the largest allowed form, which the page shows again.
func (a *attacker) largeForm() { a.form("k", 3900<<10) }

// newTask enqueues a task with a page. Once enough is stored, the task has no kind.
func (a *attacker) newTask() {
	kind := "k"
	if !a.stores(250 << 10) {
		kind = ""
	}
	a.form(kind, 250<<10)
}

func (a *attacker) form(kind string, bytes int) {
	body := "kind=" + kind + "&tenant=acme&queue=acme.x&args=%22" + strings.Repeat("x", bytes) + "%22"
	a.send(a.producer, "POST", "/tasks/new", formText, strings.NewReader(body))
}

// upload sends a part of the largest allowed size, and has it assembled.
func (a *attacker) upload() {
	const id = "0199f000-0000-7000-8000-000000000001"
	sum := fmt.Sprintf("%x", sha256.Sum256(a.part))
	a.send(a.producer, "PUT", "/api/v1/uploads/"+id+"/"+sum, bytesText, bytes.NewReader(a.part))
	a.send(a.producer, "GET", "/api/v1/uploads/"+id+"/"+sum, "", nil)
	if a.stores(len(a.part)) {
		a.post(a.producer, "/tasks/large", `{"task":{"kind":"k","tenant":"acme","queue":"acme.y"},"upload":{"id":"`+id+
			`","parts":["`+sum+`"],"sha256":"`+sum+`"}}`)
	}
}

func (a *attacker) junk() {
	a.post(a.producer, "/tasks", strings.Repeat("[", 100000))
	a.post(a.producer, "/tasks", `{"kind":"k","tenant":"umbrella"}`)
	a.post(a.producer, "/bulk", `{"action":"delete","all":true}`)
	a.post(a.producer, "/workflows", `{"tasks":[`+strings.Repeat(`{},`, 50000)+`{}]}`)
	a.get("/") // of all tenants
	a.get("/live")
}

func (a *attacker) waitForTasks() {
	a.post(a.worker, "/lease", `{"queues":["acme.none"],"wait":20}`)
}

func (a *attacker) leaseAll() {
	a.post(a.worker, "/lease", `{"queues":["acme.x","acme.y"],"max":1000,"lease":1}`)
}

// largeReports fails the largest allowed number of tasks at a time, with the largest allowed errors. Once enough is
// stored, it uses made-up leases.
func (a *attacker) largeReports() {
	const madeUp = "0199f000-0000-7000-8000-000000000000.0199f000000070008000000000000000"
	var lent struct {
		Tasks []struct {
			LeaseID string `json:"lease_id"`
		}
	}
	if a.stores(7000 * 1000) {
		_ = json.Unmarshal(a.post(a.worker, "/lease", `{"queues":["acme.x","acme.y"],"max":1000}`), &lent)
	}
	items := make([]string, 1000)
	for i := range items {
		id := madeUp
		if i < len(lent.Tasks) {
			id = lent.Tasks[i].LeaseID
		}
		items[i] = `{"action":"fail","lease_id":"` + id + `","error":"` + strings.Repeat("e", 7000) + `"}`
	}
	a.post(a.worker, "/lease/batch", `{"items":[`+strings.Join(items, ",")+`]}`)
}

func (a *attacker) list() { a.get("/api/v1/tasks?limit=1000") }

func (a *attacker) searchArgs() { a.get("/api/v1/tasks?limit=1000&from=24h&args=nothing") }

func (a *attacker) export() { a.get("/api/v1/tasks/export?format=csv") }

func (a *attacker) watchLists() { a.get("/live/lists") }

func (a *attacker) watchTask() { a.get("/tasks/" + a.task + "/live") }

// pages requests the pages that a viewer of one tenant may see.
func (a *attacker) pages() {
	for _, path := range []string{"/tasks", "/tasks?from=24h&args=nothing", "/tasks/" + a.task, "/workflows",
		"/workflows/" + a.workflow,
		"/bulk", "/tenants", "/tenants/acme", "/schedules", "/find?q=k", "/archive", "/help"} {
		a.get(path)
	}
}

// looks requests the same from the API.
func (a *attacker) looks() {
	for _, path := range []string{"/tasks/" + a.task, "/tasks/" + a.task + "/why", "/workflows",
		"/workflows/" + a.workflow,
		"/bulk", "/tenants", "/schedules", "/archive/tasks?from=24h", "/archive/reruns", "/me"} {
		a.get("/api/v1" + path)
	}
}
