package builtin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/internal/reach"
)

const (
	maxResponse  = 1 << 20
	maxHeaders   = 100
	maxRedirects = 5
	httpTimeout  = time.Minute // for an attempt, unless the task sets another timeout
)

// HTTPArgs are the args of kind http.
type HTTPArgs struct {
	Method  string            `json:"method,omitempty"` // default: GET, or POST if there is a body
	URL     string            `json:"url"`              // http or https
	Headers map[string]string `json:"headers,omitempty"`
	Body    json.RawMessage   `json:"body,omitempty"`   // a string is sent as text, anything else as JSON
	Expect  []int             `json:"expect,omitempty"` // status codes that count as success; default: 200 to 299
}

// Kind implements tusk.Args.
func (HTTPArgs) Kind() string { return KindHTTP }

// HTTPOutput is the output of kind http.
type HTTPOutput struct {
	Status int             `json:"status"`
	Body   json.RawMessage `json:"body,omitempty"` // JSON as it is; anything else as a string
}

// HTTP registers the handler of kind http, which sends a request.
//
// A response from 200 to 299, or with one of the task's expected codes, completes the task. The
// output is the status and the body, up to 1 MiB of it. Any other response fails the attempt. After
// 429 and 503, the header Retry-After sets when to try again. The request carries Idempotency-Key,
// which is the same in all attempts, and Tusk-Task-Id, -Kind, -Queue and -Attempt.
//
// Only public addresses are reached: none of this machine, of private networks or of a cloud's
// metadata service, whatever the URL looks like, whatever a name resolves to and wherever a
// redirect leads. allow lists additional targets: hosts, hosts with a port, networks such as
// 10.1.0.0/16. Proxies of the environment are not used. The error says which entry of allow is
// invalid.
//
// A redirect to another host, or from https to http, does not carry the task's headers, since any
// of them may be a credential.
func HTTP(m *tusk.Mux, allow ...string) error {
	g, err := reach.New(allow)
	if err != nil {
		return err
	}
	client := newHTTPClient(g)
	tusk.HandleKind(m, KindHTTP, func(ctx context.Context, t *tusk.Task[json.RawMessage]) error {
		var args HTTPArgs
		if err := decodeArgs(t.Args, &args); err != nil {
			return err
		}
		request, err := args.request(ctx)
		if err != nil {
			return err
		}
		mark(request, t)
		return send(client, t, request, args.Expect)
	}, tusk.WithTimeout(httpTimeout))
	return nil
}

func newHTTPClient(g *reach.Guard) *http.Client {
	return &http.Client{
		Transport: &http.Transport{
			DialContext:            g.DialContext,
			TLSHandshakeTimeout:    10 * time.Second,
			IdleConnTimeout:        30 * time.Second,
			MaxIdleConns:           100,
			MaxResponseHeaderBytes: 64 << 10,
			ForceAttemptHTTP2:      true,
		},
		CheckRedirect: func(next *http.Request, before []*http.Request) error {
			if len(before) > maxRedirects {
				return fmt.Errorf("more than %d redirects", maxRedirects)
			}
			if leaves(before, next) {
				dropGiven(next.Header)
			}
			return reach.CheckURL(next.URL)
		},
	}
}

// leaves reports whether a chain of redirects has left the first host, or has gone from https to
// http. Coming back does not help: a server in between chose where the request goes.
func leaves(before []*http.Request, next *http.Request) bool {
	first := before[0].URL
	return slices.ContainsFunc(append(before[1:], next), func(r *http.Request) bool {
		return r.URL.Host != first.Host || first.Scheme == "https" && r.URL.Scheme != "https"
	})
}

// dropGiven removes the headers that the task set, since any of them may be a credential.
func dropGiven(h http.Header) {
	for name := range h {
		if !slices.Contains(ownHeaders, name) && !strings.HasPrefix(name, "Tusk-") {
			h.Del(name)
		}
	}
}

var ownHeaders = []string{"Content-Type", "Idempotency-Key", "Referer", "User-Agent"}

var methods = []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}

func (a *HTTPArgs) request(ctx context.Context) (*http.Request, error) {
	u, err := url.Parse(a.URL)
	if err != nil || a.URL == "" {
		return nil, badArgs("url is missing or cannot be read")
	}
	if err := reach.CheckURL(u); err != nil {
		return nil, tusk.Discard(err)
	}
	body, contentType := a.body()
	method := strings.ToUpper(a.Method)
	if method == "" {
		method = http.MethodGet
		if len(body) > 0 {
			method = http.MethodPost
		}
	}
	if !slices.Contains(methods, method) {
		return nil, badArgs(fmt.Sprintf("method %.16q: want one of %v", method, methods))
	}
	request, err := http.NewRequestWithContext(ctx, method, a.URL, bytes.NewReader(body))
	if err != nil {
		return nil, badArgs(err.Error())
	}
	request.Header.Set("User-Agent", "tusk")
	if contentType != "" {
		request.Header.Set("Content-Type", contentType)
	}
	return request, setHeaders(request.Header, a.Headers)
}

func (a *HTTPArgs) body() (body []byte, contentType string) {
	var text string
	switch {
	case len(a.Body) == 0 || string(a.Body) == "null":
		return nil, ""
	case json.Unmarshal(a.Body, &text) == nil:
		return []byte(text), "text/plain; charset=utf-8"
	default:
		return a.Body, "application/json"
	}
}

// framing lists headers that belong to the connection, not to the task.
var framing = []string{"Host", "Content-Length", "Transfer-Encoding", "Connection", "Trailer", "Upgrade", "Te",
	"Keep-Alive",
	"Proxy-Authorization", "Proxy-Connection"}

func setHeaders(h http.Header, given map[string]string) error {
	if len(given) > maxHeaders {
		return badArgs(fmt.Sprintf("headers are %d, at most %d are allowed", len(given), maxHeaders))
	}
	for name, value := range given {
		canonical := http.CanonicalHeaderKey(name)
		switch {
		case !isToken(name), strings.ContainsFunc(value, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }):
			return badArgs(fmt.Sprintf("header %.64q is not valid", name))
		case slices.Contains(framing, canonical), strings.HasPrefix(canonical, "Tusk-"):
			return badArgs(fmt.Sprintf("header %.64q cannot be set by a task", name))
		}
		h.Set(name, value)
	}
	return nil
}

// isToken reports whether a header may have this name.
func isToken(name string) bool {
	return name != "" && !strings.ContainsFunc(name, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' ||
			strings.ContainsRune("!#$%&'*+-.^_`|~", r))
	})
}

func mark(r *http.Request, t *tusk.Task[json.RawMessage]) {
	if r.Header.Get("Idempotency-Key") == "" {
		r.Header.Set("Idempotency-Key", t.IdempotencyKey())
	}
	r.Header.Set("Tusk-Task-Id", t.ID.String())
	r.Header.Set("Tusk-Task-Kind", t.Kind)
	r.Header.Set("Tusk-Task-Queue", t.Queue)
	r.Header.Set("Tusk-Task-Attempt", fmt.Sprint(t.Attempt))
}

func send(client *http.Client, t *tusk.Task[json.RawMessage], request *http.Request, expect []int) error {
	response, err := client.Do(request)
	if err != nil {
		return failure(request.Context(), err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxResponse+1))
	if err != nil {
		return failure(request.Context(), err)
	}
	recordResponse(t, response.StatusCode, body)
	return judge(response, expect)
}

func recordResponse(t *tusk.Task[json.RawMessage], status int, body []byte) {
	const envelope = 64 // bytes around the body
	out := HTTPOutput{Status: status}
	cut := len(body) > maxResponse
	if body = bytes.TrimSpace(body[:min(len(body), maxResponse)]); len(body) > 0 {
		var short bool
		out.Body, short = asOutput(body, tusk.MaxOutputBytes-envelope)
		cut = cut || short
	}
	output, err := json.Marshal(out)
	if err != nil || len(output) > tusk.MaxOutputBytes {
		output, cut = fmt.Appendf(nil, `{"status":%d}`, status), true
	}
	record(t, output, cut)
}

// judge turns a response into the end of an attempt.
func judge(r *http.Response, expect []int) error {
	if slices.Contains(expect, r.StatusCode) || len(expect) == 0 && r.StatusCode/100 == 2 {
		return nil
	}
	err := fmt.Errorf("%s %s answered %s", r.Request.Method, r.Request.URL.Redacted(), r.Status)
	if r.StatusCode == http.StatusTooManyRequests || r.StatusCode == http.StatusServiceUnavailable {
		if delay, ok := reach.RetryAfter(r.Header.Get("Retry-After"), time.Now()); ok {
			return tusk.RetryAfter(delay, err)
		}
	}
	return err
}

// failure says why a request got no response. A task whose target is not allowed is discarded,
// since it will not be allowed next time either.
func failure(ctx context.Context, err error) error {
	if errors.Is(err, reach.ErrTarget) {
		return tusk.Discard(reach.ErrTarget)
	}
	for _, name := range []error{reach.ErrName, reach.ErrLookUp} {
		if errors.Is(err, name) {
			return name // the host may exist by the next attempt
		}
	}
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}
