package cli

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"time"
)

// playHostile is set in the environment of a test binary that is to attack a server:
// its URL and the tokens.
const playHostile = "PLAY_HOSTILE"

// attack attacks from a process that leaves processors to others: what is measured is
// what the server does, not who sends most.
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

// attacker sends the worst that its tokens can.
type attacker struct {
	url                      string
	producer, worker, viewer string
	stored                   atomic.Int64
	client                   *http.Client
}

// maxStored is how many bytes an attack stores, so that the test's disk is not what it fills.
const maxStored = 200 << 20

func hostileMain(arguments string) {
	parts := strings.Fields(arguments)
	a := &attacker{url: parts[0], producer: parts[1], worker: parts[2], viewer: parts[3],
		client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 2000}, Timeout: time.Minute}}
	for _, way := range []struct {
		hands int
		do    func()
	}{
		{8, a.largeBatch}, {4, a.longKey}, {4, a.wideWorkflow}, {32, a.manyTasks}, {8, a.sameKey}, {100, a.slowBody}, {16, a.junk},
		{400, a.waitForTasks}, {8, a.leaseAll}, {4, a.largeReports},
		{16, a.list}, {8, a.searchArgs}, {8, a.export}, {200, a.watch}, {16, a.pages},
	} {
		for range way.hands {
			go func() {
				for {
					way.do()
				}
			}()
		}
	}
	select {} // until it is killed
}

func (a *attacker) send(token, method, path string, body io.Reader) {
	request, err := http.NewRequest(method, a.url+path, body)
	if err != nil {
		panic(err)
	}
	request.Header.Set("Authorization", "Bearer "+token)
	if method != "GET" {
		request.Header.Set("Content-Type", "application/json")
	}
	answer, err := a.client.Do(request)
	if err != nil {
		time.Sleep(10 * time.Millisecond)
		return
	}
	defer answer.Body.Close()
	_, _ = io.Copy(io.Discard, answer.Body)
}

func (a *attacker) post(token, path, body string) {
	a.send(token, "POST", "/api/v1"+path, strings.NewReader(body))
}

func (a *attacker) get(path string) { a.send(a.viewer, "GET", path, nil) }

// largeBatch has as many bytes as a body may. When enough is stored, its last task is bad.
func (a *attacker) largeBatch() {
	tasks := strings.Repeat(`{"kind":"k","tenant":"acme","queue":"acme.x","args":{"x":"`+strings.Repeat("x", 250<<10)+`"}},`, 31)
	last := `{"kind":"k","tenant":"acme","queue":"acme.x"}`
	if a.stored.Add(int64(len(tasks))) > maxStored {
		last = `{"kind":"","tenant":"acme"}`
	}
	a.post(a.producer, "/tasks/batch", `{"tasks":[`+tasks+last+`]}`)
}

func (a *attacker) longKey() {
	a.post(a.producer, "/tasks", `{"kind":"k","tenant":"acme","args":{"`+strings.Repeat("a", 4<<20)+`":[1`+strings.Repeat(",1", 1<<20)+`]}}`)
}

func (a *attacker) wideWorkflow() {
	var tasks strings.Builder
	for i := range 400 {
		needs := make([]string, min(i, 100))
		for n := range needs {
			needs[n] = fmt.Sprintf("%q", fmt.Sprint("t", n))
		}
		fmt.Fprintf(&tasks, `,{"name":"t%d","kind":"k","tenant":"acme","queue":"acme.x","after":[%s]}`, i, strings.Join(needs, ","))
	}
	if a.stored.Add(int64(tasks.Len())) > maxStored {
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

// slowBody sends a byte a second.
func (a *attacker) slowBody() {
	read, write := io.Pipe()
	go func() {
		for {
			if _, err := write.Write([]byte(" ")); err != nil {
				return
			}
			time.Sleep(time.Second)
		}
	}()
	a.send(a.producer, "POST", "/api/v1/tasks", read)
	_ = read.Close()
}

func (a *attacker) junk() {
	a.post(a.producer, "/tasks", strings.Repeat("[", 100000))
	a.post(a.producer, "/tasks", `{"kind":"k","tenant":"umbrella"}`)
	a.post(a.producer, "/bulk", `{"action":"delete","all":true}`)
	a.post(a.producer, "/workflows", `{"tasks":[`+strings.Repeat(`{},`, 50000)+`{}]}`)
}

func (a *attacker) waitForTasks() {
	a.post(a.worker, "/lease", `{"queues":["acme.none"],"wait":20}`)
}

func (a *attacker) leaseAll() {
	a.post(a.worker, "/lease", `{"queues":["acme.x","acme.y"],"max":1000,"lease":1}`)
}

func (a *attacker) largeReports() {
	const id = "0199f000-0000-7000-8000-000000000000.1.0199f000-0000-7000-8000-000000000000"
	item := `{"action":"fail","lease_id":"` + id + `","error":"` + strings.Repeat("e", 7000) + `"}`
	a.post(a.worker, "/lease/batch", `{"items":[`+strings.Repeat(item+",", 999)+item+`]}`)
}

func (a *attacker) list() { a.get("/api/v1/tasks?limit=1000") }

func (a *attacker) searchArgs() { a.get("/api/v1/tasks?limit=1000&from=24h&args=nothing") }

func (a *attacker) export() { a.get("/api/v1/tasks/export?format=csv") }

func (a *attacker) watch() { a.get("/live") }

func (a *attacker) pages() {
	a.get("/tasks")
	a.get("/workflows")
	a.get("/api/v1/workflows?limit=100")
	a.get("/")
}
