package builtin_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	neturl "net/url"
	"strings"
	"testing"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/builtin"
)

func withHTTP(t *testing.T, allow ...string) func(*tusk.Mux) {
	return func(m *tusk.Mux) {
		if err := builtin.HTTP(m, allow...); err != nil {
			t.Fatal(err)
		}
	}
}

func serve(t *testing.T, h http.HandlerFunc) (url string) {
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.URL
}

func TestAResponseDecides(t *testing.T) {
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		var code int
		fmt.Sscanf(r.URL.Path, "/%d", &code)
		w.WriteHeader(code)
	})
	w := work(t, withHTTP(t, "127.0.0.1"))
	for path, want := range map[string]tusk.State{
		`200"`: tusk.StateCompleted, `204"`: tusk.StateCompleted, `404"`: tusk.StateDiscarded, `500"`: tusk.StateDiscarded,
		`404","expect":[404]`: tusk.StateCompleted, `200","expect":[201]`: tusk.StateDiscarded,
	} {
		task := w.ended(builtin.KindHTTP, `{"url":"`+url+`/`+path+`}`)
		if task.State != want {
			t.Errorf("%s: %v (%s), want %v", path, task.State, lastError(task), want)
		}
		var out builtin.HTTPOutput
		if err := json.Unmarshal(task.Detail.Output, &out); err != nil || !strings.HasPrefix(path, fmt.Sprint(out.Status)) {
			t.Errorf("%s: output %s", path, task.Detail.Output)
		}
	}
}

func TestARequestCarriesWhatItsTaskSays(t *testing.T) {
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		json.NewEncoder(w).Encode(map[string]any{"method": r.Method, "type": r.Header.Get("Content-Type"),
			"body": string(body), "own": r.Header.Get("X-Own"), "key": r.Header.Get("Idempotency-Key"),
			"attempt": r.Header.Get("Tusk-Task-Attempt")})
	})
	w := work(t, withHTTP(t, "127.0.0.1"))
	for args, want := range map[string]string{
		`"method":"put","body":{"a": 1},"headers":{"X-Own":"yes"}`: `"body":"{\"a\": 1}","key":"ID","method":"PUT",` +
			`"own":"yes","type":"application/json"`,
		`"body":"text"`: `"body":"text","key":"ID","method":"POST","own":"","type":"text/plain; charset=utf-8"`,
		`"body":"<a/>","headers":{"content-type":"text/html"}`: `"body":"\u003ca/\u003e","key":"ID","method":"POST",` +
			`"own":"","type":"text/html"`,
		`"headers":{}`: `"body":"","key":"ID","method":"GET","own":"","type":""`,
	} {
		task := w.ended(builtin.KindHTTP, `{"url":"`+url+`",`+args+`}`)
		want = `{"status":200,"body":{"attempt":"1",` + strings.ReplaceAll(want, "ID", task.ID.String()) + `}}`
		if string(task.Detail.Output) != want {
			t.Errorf("%s: %s %s, want %s", args, task.Detail.Output, lastError(task), want)
		}
	}
}

func TestRetryAfterIsRespected(t *testing.T) {
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/seconds":
			w.Header().Set("Retry-After", "3000")
		case "/date":
			w.Header().Set("Retry-After", time.Now().Add(50*time.Minute).UTC().Format(http.TimeFormat))
		case "/far":
			w.Header().Set("Retry-After", "99999999999")
		}
		w.WriteHeader(http.StatusTooManyRequests)
	})
	w := work(t, withHTTP(t, "127.0.0.1"))
	for path, want := range map[string]time.Duration{"/seconds": 50 * time.Minute, "/date": 50 * time.Minute,
		"/far": 24 * time.Hour, "/none": 0} {
		begun := time.Now()
		id := w.enqueue(builtin.KindHTTP, `{"url":"`+url+path+`"}`,
			&tusk.Options{MaxAttempts: 2, Backoff: tusk.ConstantBackoff(time.Minute)})
		task := w.await(id, func(t *tusk.TaskInfo) bool { return t.State == tusk.StateRetryable })
		if want == 0 {
			want = time.Minute
		}
		if low, high := begun.Add(want-2*time.Second), time.Now().Add(want+2*time.Second); task.RunAt.Before(low) ||
			task.RunAt.After(high) {
			t.Errorf("%s: next attempt at %v, want it in %v", path, task.RunAt, want)
		}
	}
}

func TestALongResponseIsCut(t *testing.T) {
	url := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Write([]byte(strings.Repeat("<&>", 1<<20)))
	})
	w := work(t, withHTTP(t, "127.0.0.1"))
	task := w.ended(builtin.KindHTTP, `{"url":"`+url+`"}`)
	if n := len(task.Detail.Output); task.State != tusk.StateCompleted || n > tusk.MaxOutputBytes || n < 1000 {
		t.Fatalf("%v with %d bytes: %s", task.State, n, lastError(task))
	}
	if len(task.Detail.Logs) == 0 || !strings.Contains(task.Detail.Logs[0].Text, "cut") {
		t.Errorf("logs %v", task.Detail.Logs)
	}
}

func TestASilentServerIsLeftAtTheDeadline(t *testing.T) {
	release := make(chan struct{})
	url := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-r.Context().Done():
		case <-release:
		}
	})
	defer close(release)
	w := work(t, withHTTP(t, "127.0.0.1"))
	id := w.enqueue(builtin.KindHTTP, `{"url":"`+url+`"}`, &tusk.Options{MaxAttempts: 1, Timeout: 100 * time.Millisecond})
	task := w.await(id, func(t *tusk.TaskInfo) bool { return t.State.Finished() })
	if !strings.Contains(lastError(task), tusk.ErrTimeout.Error()) {
		t.Fatalf("%v: %s", task.State, lastError(task))
	}
}

const (
	notAllowed = "target is not allowed"
	notFound   = "the host's name was not found, or leads to addresses that are not allowed"
)

func TestNoSpellingOfAPrivateAddressIsReached(t *testing.T) {
	reached := false
	url := serve(t, func(http.ResponseWriter, *http.Request) { reached = true })
	_, port, _ := net.SplitHostPort(strings.TrimPrefix(url, "http://"))
	w := work(t, withHTTP(t, "192.0.2.77"))
	for _, target := range []string{
		url, "http://127.1.2.3:" + port, "http://[::1]:" + port,
		"http://[::ffff:127.0.0.1]:" + port, "http://[::ffff:7f00:1]:" + port, "http://[::127.0.0.1]:" + port,
		"http://0.0.0.0:" + port, "http://[::]:" + port, "http://[64:ff9b::7f00:1]:" + port, "http://[2002:7f00:1::]:" + port,
		"http://10.0.0.1", "http://172.16.0.1", "http://192.168.1.1", "http://100.64.0.1", "http://198.18.0.1",
		"http://169.254.169.254/latest/meta-data/", "http://[fd00:ec2::254]/", "http://[fe80::1]/", "http://[fe80::1%25lo]/",
		"http://100.100.100.200/", "http://168.63.129.16/", "http://224.0.0.1/", "http://255.255.255.255/",
		"http://240.0.0.1/",
		"http://user:secret@127.0.0.1:" + port, "http://user@example.com/", "file:///etc/passwd",
		"gopher://127.0.0.1:" + port,
		"ftp://127.0.0.1/", "javascript:alert(1)", "http:127.0.0.1", "//127.0.0.1:" + port, "http://:" + port,
		"unix:///run/x.sock",
	} {
		args, _ := json.Marshal(builtin.HTTPArgs{URL: target})
		task := w.ended(builtin.KindHTTP, string(args))
		if task.State != tusk.StateDiscarded || !strings.HasPrefix(lastError(task), notAllowed) {
			t.Errorf("%s: %v %q", target, task.State, lastError(task))
		}
	}
	// These are names to Go. The guard judges what they resolve to, if anything.
	for _, target := range []string{"http://localhost:" + port, "http://nobody.invalid", "http://LOCALHOST.:" + port,
		"http://127.1:" + port, "http://2130706433:" + port, "http://0x7f000001:" + port, "http://0177.0.0.1:" + port} {
		if task := w.ended(builtin.KindHTTP, `{"url":"`+target+`"}`); task.State != tusk.StateDiscarded ||
			lastError(task) != notFound {
			t.Errorf("%s: %v %q", target, task.State, lastError(task))
		}
	}
	if reached {
		t.Error("the server on loopback was reached")
	}
}

func TestARedirectIsJudgedLikeAnyAddress(t *testing.T) {
	reached := false
	secret := serve(t, func(http.ResponseWriter, *http.Request) { reached = true })
	open := serve(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, r.URL.Query().Get("to"), http.StatusFound)
	})
	w := work(t, withHTTP(t, strings.TrimPrefix(open, "http://")))
	for _, to := range []string{secret, "file:///etc/passwd", "http://user@" + strings.TrimPrefix(open, "http://")} {
		task := w.ended(builtin.KindHTTP, `{"url":"`+open+`/?to=`+to+`"}`)
		if task.State != tusk.StateDiscarded || !strings.HasPrefix(lastError(task), notAllowed) {
			t.Errorf("to %s: %v %q", to, task.State, lastError(task))
		}
	}
	if reached {
		t.Error("a redirect reached what the request could not")
	}
	if task := w.ended(builtin.KindHTTP, `{"url":"`+open+`/?to=/?to=/"}`); !strings.Contains(lastError(task),
		"redirects") {
		t.Errorf("a loop of redirects: %v %q", task.State, lastError(task))
	}
}

func TestARedirectToAnotherHostCarriesNoHeaderOfTheTask(t *testing.T) {
	var got http.Header
	other := serve(t, func(_ http.ResponseWriter, r *http.Request) { got = r.Header })
	_, port, _ := net.SplitHostPort(strings.TrimPrefix(other, "http://"))
	open := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if to := r.URL.Query().Get("to"); to != "" {
			http.Redirect(w, r, to, http.StatusFound)
			return
		}
		got = r.Header
	})
	w := work(t, withHTTP(t, "127.0.0.1", "localhost"))
	for to, want := range map[string]string{"/": "canary", other: "", "http://localhost:" + port: "",
		other + "/?to=" + open: ""} {
		task := w.ended(builtin.KindHTTP, `{"url":"`+open+`/?to=`+neturl.QueryEscape(to)+
			`","headers":{"X-Api-Key":"canary","Cookie":"canary"}}`)
		if task.State != tusk.StateCompleted || got.Get("X-Api-Key") != want || got.Get("Cookie") != want ||
			got.Get("Tusk-Task-Id") == "" {
			t.Errorf("to %s: %v %q", to, task.State, got)
		}
	}
}

func TestHostsAreAllowedByNameAddressAndNetwork(t *testing.T) {
	url := serve(t, func(http.ResponseWriter, *http.Request) {})
	port := url[strings.LastIndexByte(url, ':')+1:]
	for allow, want := range map[string]tusk.State{
		"127.0.0.1": tusk.StateCompleted, "127.0.0.1:" + port: tusk.StateCompleted, "127.0.0.0/8": tusk.StateCompleted,
		"127.0.0.1:1": tusk.StateDiscarded, "127.0.0.2": tusk.StateDiscarded, "localhost": tusk.StateDiscarded,
		"10.0.0.0/8": tusk.StateDiscarded,
	} {
		w := work(t, withHTTP(t, allow))
		if task := w.ended(builtin.KindHTTP, `{"url":"`+url+`"}`); task.State != want {
			t.Errorf("allowing %s: %v (%s), want %v", allow, task.State, lastError(task), want)
		}
		w.stop()
	}
	for _, bad := range []string{"", "http://x", "a/b", "*", "10.0.0.0/99", "a b"} {
		if err := builtin.HTTP(tusk.NewMux(), bad); err == nil {
			t.Errorf("allowing %q was accepted", bad)
		}
	}
}

func TestRequestsThatCannotBeSentAreDiscardedAtOnce(t *testing.T) {
	w := work(t, withHTTP(t, "127.0.0.1"))
	for args, want := range map[string]string{
		`{"url":"http://127.0.0.1","uri":"x"}`:        `unknown field "uri"; did you mean url?`,
		`{"url":"http://127.0.0.1","expect":["200"]}`: "expect: want a whole number, not a string",
	} {
		if task := w.ended(builtin.KindHTTP, args); lastError(task) != "args: "+want {
			t.Errorf("%s: %q, want %q", args, lastError(task), want)
		}
	}
	for _, args := range []string{`{}`, `[]`, `{"url":""}`, `{"url":5}`, `{"url":"http://127.0.0.1","uri":"x"}`,
		`{"url":"http://127.0.0.1:99999999/%zz"}`,
		`{"url":"http://127.0.0.1","method":"CONNECT"}`, `{"url":"http://127.0.0.1","method":"GE T"}`,
		`{"url":"http://127.0.0.1","headers":{"a":"b\r\nc: d"}}`, `{"url":"http://127.0.0.1","headers":{"a\nb":"c"}}`,
		`{"url":"http://127.0.0.1","headers":{"":"c"}}`,
		`{"url":"http://127.0.0.1","headers":{"host":"x"}}`, `{"url":"http://127.0.0.1","headers":{"content-length":"5"}}`,
		`{"url":"http://127.0.0.1","headers":{"tusk-task-id":"forged"}}`} {
		id := w.enqueue(builtin.KindHTTP, args, &tusk.Options{MaxAttempts: 5})
		task := w.await(id, func(t *tusk.TaskInfo) bool { return t.State.Finished() })
		if task.State != tusk.StateDiscarded || task.Attempt != 1 || !strings.HasPrefix(lastError(task), "args: ") {
			t.Errorf("%s: %v, attempt %d, %q", args, task.State, task.Attempt, lastError(task))
		}
	}
}
