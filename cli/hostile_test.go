package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tuskqueue/tusk/store/postgres/pgtest"
)

// rounds is how often calm and attack alternate.
const rounds = 8

// Limits on what hostile tokens of one tenant may cost: a factor on the other tenant's slowest requests, and the
// memory of the process.
const (
	maxSlower       = 2
	maxHostileBytes = 256 << 20
)

// TestHostileTokensOfOneTenantCostAnotherLittle lets a producer, a worker and a viewer of one tenant send the worst
// requests that they can to a server that also serves another tenant. It compares how long that tenant's requests
// take with how long they take next to a twin, a peaceful tenant with the same load. The two alternate, so that other
// load on the machine affects both. TUSK_TEST_HOSTILE sets the duration; without it, latency is not judged.
func TestHostileTokensOfOneTenantCostAnotherLittle(t *testing.T) {
	if testing.Short() || runtime.GOOS != "linux" {
		t.Skip("takes 10 s, and /proc")
	}
	long, err := time.ParseDuration(os.Getenv("TUSK_TEST_HOSTILE"))
	judged := err == nil
	if !judged {
		long = 10 * time.Second
	}
	sh := newShell(t)
	sh.env = append(sh.env, "TUSK_DATABASE_URL="+pgtest.DSN(t), "TUSK_ARCHIVE=file://"+t.TempDir())
	sh.must("migrate", "up")
	token := func(name string, flags ...string) string {
		return strings.TrimSpace(sh.must(append([]string{"tokens", "create", name, "-q"}, flags...)...))
	}
	other := tenant{"umbrella", token("p", "--role", "producer", "--tenant", "umbrella"),
		token("v", "--role", "viewer", "--tenant", "umbrella"),
		token("w", "--role", "worker", "--queue", "umbrella.*")}
	twin := tenant{"acme", token("tp", "--role", "producer", "--tenant", "acme"),
		token("tv", "--role", "viewer", "--tenant", "acme"),
		token("tw", "--role", "worker", "--queue", "acme.*")}
	hostile := sh.hostileTokens()
	p := sh.serveBuilt(t)
	url := p.await(`health=(http\S+)/healthz`)

	other.work(t, url, 2*time.Second) // warm-up
	before := peakMemory(t, p.cmd.Process.Pid)
	calm, rough := times{}, times{}
	for round := range rounds {
		quiet := other.beside(t, url, twin, long/rounds/2)
		stop := sh.attack(url, hostile)
		loud := other.work(t, url, long/rounds)
		stop()
		calm.add(quiet)
		rough.add(loud)
		t.Logf("round %d: beside a peaceful twin %v, beside hostile tokens %v", round+1, quiet.all(), loud.all())
	}
	more := peakMemory(t, p.cmd.Process.Pid) - before
	ratio := float64(rough.all().part(99)) / float64(calm.all().part(99))
	load, _ := os.ReadFile("/proc/loadavg")
	t.Logf("p99 is %.1f times as long; %d MiB more than %d; load %s", ratio, more>>20, before>>20, load)
	t.Logf("beside a peaceful twin: %v", calm)
	t.Logf("beside hostile tokens:  %v", rough)
	if more > maxHostileBytes {
		t.Errorf("the process took %d MiB more", more>>20)
	}
	if judged && ratio > maxSlower {
		t.Errorf("the other tenant's p99 is %.1f times as long", ratio)
	}
}

// serveBuilt serves with the command as built for users, because a test binary with the race detector takes several
// times the memory.
func (sh *shell) serveBuilt(t *testing.T) *process { return sh.serveBy(binary(t)) }

func (sh *shell) serveBy(bin string) *process {
	p := &process{t: sh.t, cmd: exec.Command(bin, "serve", "--addr", "127.0.0.1:0", "--log-level", "info")}
	p.cmd.Env = append(os.Environ(), sh.env...)
	p.cmd.Stderr = p
	p.begin()
	return p
}

// peakMemory returns the peak memory of a process.
func peakMemory(t *testing.T, pid int) int64 {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "VmHWM:")
	kib, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return kib << 10
}

// times are how long requests took, by type of request.
type times map[string]durations

func (all times) add(more times) {
	for what, took := range more {
		all[what] = append(all[what], took...)
	}
}

func (all times) all() durations {
	return slices.Concat(slices.Collect(maps.Values(all))...)
}

func (all times) String() string {
	text := all.all().String()
	for _, what := range slices.Sorted(maps.Keys(all)) {
		text += fmt.Sprintf("; %s %v", what, all[what])
	}
	return text
}

type durations []time.Duration

func (d durations) part(percent int) time.Duration {
	d = slices.Sorted(slices.Values(d))
	return d[len(d)*percent/100]
}

func (d durations) String() string {
	round := func(percent int) time.Duration { return d.part(percent).Round(100 * time.Microsecond) }
	return fmt.Sprintf("p50 %v p99 %v (%d)", round(50), round(99), len(d))
}

// tenant is a tenant with an ordinary load.
type tenant struct{ name, producer, viewer, worker string }

// beside runs the load while another tenant works too.
func (o tenant) beside(t *testing.T, url string, twin tenant, long time.Duration) (took times) {
	var both sync.WaitGroup
	both.Go(func() { twin.work(t, url, long) })
	took = o.work(t, url, long)
	both.Wait()
	return took
}

// work enqueues, reads, leases and completes for a time, and returns how long each request took. Each must be
// answered as if nobody else were there.
func (o tenant) work(t *testing.T, url string, long time.Duration) (took times) {
	t.Helper()
	took = times{}
	ctx, cancel := context.WithTimeout(t.Context(), long)
	defer cancel()
	var mu sync.Mutex
	var hands sync.WaitGroup
	for i := range 4 {
		hands.Go(func() {
			queue := fmt.Sprint(o.name, ".", i)
			ask := func(what, token, method, path, body string, into any) {
				begun := time.Now()
				status, answer := send(url, token, method, path, body)
				mu.Lock()
				took[what] = append(took[what], time.Since(begun))
				mu.Unlock()
				if status/100 != 2 {
					t.Errorf("%s %s: %d %.300s", method, path, status, answer)
				} else if into != nil {
					_ = json.Unmarshal(answer, into)
				}
			}
			for ctx.Err() == nil {
				var made struct{ ID string }
				var lent struct {
					Tasks []struct {
						LeaseID string `json:"lease_id"`
					}
				}
				ask("enqueue", o.producer, "POST", "/api/v1/tasks", `{"kind":"bill","tenant":"`+o.name+`","queue":"`+queue+
					`","args":{"n":1}}`, &made)
				ask("look", o.viewer, "GET", "/api/v1/tasks/"+made.ID, "", nil)
				ask("lease", o.worker, "POST", "/api/v1/lease", `{"queues":["`+queue+`"]}`, &lent)
				for _, l := range lent.Tasks {
					ask("complete", o.worker, "POST", "/api/v1/lease/complete", `{"lease_id":"`+l.LeaseID+`"}`, nil)
				}
				time.Sleep(100 * time.Millisecond)
			}
		})
	}
	hands.Wait()
	http.DefaultClient.CloseIdleConnections()
	return took
}

func send(url, token, method, path, body string) (int, []byte) {
	request, err := http.NewRequest(method, url+path, strings.NewReader(body))
	if err != nil {
		return 0, []byte(err.Error())
	}
	request.Header.Set("Authorization", "Bearer "+token)
	if method != "GET" {
		request.Header.Set("Content-Type", "application/json")
	}
	a, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, []byte(err.Error())
	}
	defer a.Body.Close()
	var answer bytes.Buffer
	if _, err = io.Copy(&answer, io.LimitReader(a.Body, 1<<20)); err == nil {
		_, err = io.Copy(io.Discard, a.Body)
	}
	if err != nil {
		return 0, []byte(err.Error())
	}
	return a.StatusCode, answer.Bytes()
}
