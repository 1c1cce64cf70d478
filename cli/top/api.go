package top

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// API returns the Source of a server. base is the server's URL, with its prefix if it has one, without a trailing
// slash. token is one of its API tokens.
func API(base, token string) Source {
	return api{base + "/api/v1", token, &http.Client{
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

type api struct {
	base, token string
	client      *http.Client
}

// maxAnswer is the largest response in bytes that is read.
const maxAnswer = 32 << 20

// Refused is a response of the server other than success.
type Refused struct {
	Status       int
	Code, Detail string
}

// Error returns the server's status, code and detail.
func (e *Refused) Error() string {
	return fmt.Sprintf("the server answers %d %s: %s", e.Status, e.Code, e.Detail)
}

// call sends a request and decodes the response into v, which may be nil.
func (a api) call(ctx context.Context, method, path string, query url.Values, v any) error {
	target := a.base + path
	if len(query) > 0 {
		target += "?" + query.Encode()
	}
	request, err := http.NewRequestWithContext(ctx, method, target, nil)
	if err != nil {
		return err
	}
	request.Header.Set("Accept", "application/json")
	if a.token != "" {
		request.Header.Set("Authorization", "Bearer "+a.token)
	}
	answer, err := a.client.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswer+1))
	switch {
	case err != nil:
		return fmt.Errorf("read the answer: %w", err)
	case len(body) > maxAnswer:
		return errors.New("the answer is larger than 32 MiB")
	case answer.StatusCode >= 300:
		return refused(answer, body)
	case v == nil:
		return nil
	}
	if err := json.Unmarshal(body, v); err != nil {
		return fmt.Errorf("the answer is not Tusk's: %w", err)
	}
	return nil
}

func refused(answer *http.Response, body []byte) error {
	var problem struct{ Code, Detail string }
	_ = json.Unmarshal(body, &problem) // a proxy may respond with something else
	if problem.Code == "" {
		problem.Code, problem.Detail = "unexpected", http.StatusText(answer.StatusCode)
	}
	return &Refused{answer.StatusCode, problem.Code, problem.Detail}
}

// Overview implements Source.
func (a api) Overview(ctx context.Context) (Overview, error) {
	o := Overview{At: time.Now().UTC(), Queues: []Queue{}, Stats: []Stat{}, Workers: []Worker{}}
	if err := a.call(ctx, "GET", "/queues", nil, &o); err != nil {
		return o, err
	}
	from := url.Values{"bucket": {"minute"}, "from": {statsFrom(o.At).Format(time.RFC3339)}}
	if err := a.call(ctx, "GET", "/stats", from, &o); err != nil {
		return o, err
	}
	return o, a.call(ctx, "GET", "/workers", nil, &o)
}

// Errors implements Source.
func (a api) Errors(ctx context.Context) ([]ErrorGroup, error) {
	found := struct{ Errors []ErrorGroup }{[]ErrorGroup{}}
	since := time.Now().UTC().Add(-24 * time.Hour).Format(time.RFC3339)
	err := a.call(ctx, "GET", "/errors", url.Values{"since": {since}, "limit": {strconv.Itoa(page)}}, &found)
	return urgentFirst(found.Errors), err
}

// Tasks implements Source.
func (a api) Tasks(ctx context.Context, f Filter) ([]Task, error) {
	query := url.Values{"limit": {strconv.Itoa(page)}}
	for name, value := range map[string]string{"queue": f.Queue, "kind": f.Kind, "state": f.State,
		"fingerprint": f.Fingerprint} {
		if value != "" {
			query.Set(name, value)
		}
	}
	found := struct{ Tasks []Task }{[]Task{}}
	err := a.call(ctx, "GET", "/tasks", query, &found)
	return found.Tasks, err
}

// Task implements Source.
func (a api) Task(ctx context.Context, id string) (Detail, error) {
	d := Detail{Attempts: []Attempt{}, Reasons: []Reason{}}
	if err := a.call(ctx, "GET", "/tasks/"+url.PathEscape(id), nil, &d); err != nil {
		return d, err
	}
	why := struct{ Reasons []Reason }{[]Reason{}}
	err := a.call(ctx, "GET", "/tasks/"+url.PathEscape(id)+"/why", nil, &why)
	d.Reasons = why.Reasons
	return d, err
}

// Pause implements Source.
func (a api) Pause(ctx context.Context, queue string) error {
	return a.call(ctx, "POST", "/queues/"+url.PathEscape(queue)+"/pause", nil, nil)
}

// Resume implements Source.
func (a api) Resume(ctx context.Context, queue string) error {
	return a.call(ctx, "POST", "/queues/"+url.PathEscape(queue)+"/resume", nil, nil)
}

// Retry implements Source.
func (a api) Retry(ctx context.Context, id string) error {
	return a.call(ctx, "POST", "/tasks/"+url.PathEscape(id)+"/retry", nil, nil)
}
