package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/server/access"
	"github.com/tuskqueue/tusk/server/alert"
	"github.com/tuskqueue/tusk/server/hook"
	"github.com/tuskqueue/tusk/server/notify"
	"github.com/tuskqueue/tusk/server/push"
	"github.com/tuskqueue/tusk/server/query"
	"github.com/tuskqueue/tusk/store"
)

// Problem is the body of every error response, as in RFC 9457. Code is stable and meant for programs, Detail for
// people.
type Problem struct {
	Type      string        `json:"type"`
	Title     string        `json:"title"`
	Status    int           `json:"status"`
	Code      string        `json:"code"`
	Detail    string        `json:"detail,omitempty"`
	Field     string        `json:"field,omitempty"`
	RequestID string        `json:"request_id,omitempty"`
	Items     []ProblemItem `json:"items,omitempty"`

	retryAfter int // seconds; 0 if not given
	cause      error
}

// ProblemItem says what is wrong with one item of a batch.
type ProblemItem struct {
	Index  int    `json:"index"`
	Code   string `json:"code"`
	Field  string `json:"field,omitempty"`
	Detail string `json:"detail"`
}

func (p *Problem) Error() string { return p.Code + ": " + p.Detail }

func problem(status int, code, detail string, args ...any) *Problem {
	return &Problem{Status: status, Code: code, Detail: fmt.Sprintf(detail, args...)}
}

func fieldProblem(status int, code, field, detail string, args ...any) *Problem {
	p := problem(status, code, detail, args...)
	p.Field = field
	return p
}

func (p *Problem) write(w http.ResponseWriter, request string) {
	p.Type, p.Title, p.RequestID = "urn:tusk:problem:"+p.Code, http.StatusText(p.Status), request
	body, err := json.Marshal(p)
	if err != nil {
		body = []byte(`{"status":500,"code":"internal"}`)
	}
	h := w.Header()
	h.Set("Content-Type", "application/problem+json")
	h.Set("Cache-Control", "no-store")
	if p.Status == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", `Bearer realm="tusk"`)
	}
	if p.retryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(p.retryAfter))
	}
	w.WriteHeader(p.Status)
	_, _ = w.Write(append(body, '\n')) // the client may have gone
}

// plain are errors that need only a status and a code.
var plain = []struct {
	err    error
	status int
	code   string
	retry  int
}{
	{tusk.ErrNotFound, 404, "not_found", 0},
	{access.ErrNotFound, 404, "not_found", 0},
	{push.ErrNotFound, 404, "not_found", 0},
	{access.ErrInvalid, 422, "invalid", 0},
	{push.ErrInvalid, 422, "invalid", 0},
	{alert.ErrNotFound, 404, "not_found", 0},
	{alert.ErrInvalid, 422, "invalid", 0},
	{hook.ErrNotFound, 404, "not_found", 0},
	{hook.ErrInvalid, 422, "invalid", 0},
	{notify.ErrInvalid, 422, "invalid", 0},
	{push.ErrTarget, 422, "target_not_allowed", 0},
	{notify.ErrSealed, 409, "secret_sealed", 0},
	{tusk.ErrPayload, 503, "payload_unavailable", 5},
	{tusk.ErrRefused, 409, "invalid_state", 0},
	{tusk.ErrLeaseLost, 409, "lease_lost", 0},
	{tusk.ErrLentElsewhere, 409, "lent_elsewhere", 0},
	{tusk.ErrShutdown, 503, "shutting_down", 1},
	{store.ErrReadOnly, 503, "store_readonly", 5},
	{store.ErrFull, 507, "storage_full", 0},
	{store.ErrSchemaMissing, 503, "schema_missing", 0},
	{store.ErrSchemaOld, 503, "schema_old", 0},
	{store.ErrSchemaNew, 503, "schema_new", 0},
	{store.ErrUnavailable, 503, "store_unavailable", 1},
	{store.ErrUnsupported, 422, "unsupported", 0},
	{tusk.ErrConflict, 409, "conflict", 0},
	{context.DeadlineExceeded, 503, "query_timeout", 1},
	{context.Canceled, 499, "client_gone", 0},
}

// problemOf returns what the caller should know about an error.
func problemOf(err error) *Problem {
	var p *Problem
	var batch *tusk.BatchError
	var invalid *tusk.InvalidError
	var q *query.Error
	switch {
	case errors.As(err, &p):
		return p
	case errors.As(err, &batch):
		p = problem(http.StatusUnprocessableEntity, "invalid_batch", "nothing was stored: invalid tasks: %d",
			len(batch.Items))
		for i, e := range batch.Items {
			item := problemOf(e)
			p.Items = append(p.Items, ProblemItem{Index: i, Code: item.Code, Field: item.Field, Detail: item.Detail})
		}
		sortItems(p.Items)
		return p
	case errors.As(err, &invalid):
		return fieldProblem(statusOf(invalid.Code), invalid.Code, asField.Replace(invalid.Field), "%s", invalid.Text)
	case errors.As(err, new(*tusk.QueueInUseError)):
		return problem(http.StatusConflict, "queue_in_use", "%v", err)
	case errors.Is(err, store.ErrUnstorable): // the database's own words may reveal too much
		p = problem(http.StatusRequestEntityTooLarge, "unstorable", "%v: send fewer tasks in a request, or smaller args",
			store.ErrUnstorable)
		p.cause = err
		return p
	case errors.As(err, &q):
		return fieldProblem(statusOf(q.Code), q.Code, q.Field, "%s", q.Text)
	}
	for _, known := range plain {
		if !errors.Is(err, known.err) {
			continue
		}
		p = problem(known.status, known.code, "%v", known.err)
		if known.status < 500 {
			p.Detail = err.Error()
		}
		p.retryAfter, p.cause = known.retry, err
		return p
	}
	p = problem(http.StatusInternalServerError, "internal",
		"something went wrong here; the log has it under the request id")
	p.cause = err
	return p
}

// asField converts the library's names of fields to those of requests: run_at, rate.period.
var asField = strings.NewReplacer(": ", ".", " ", "_")

// statusOf returns the status for a refused value: 413 if it has too many bytes, otherwise 422, which judge changes
// to 400 if the request does not match the description.
func statusOf(code string) int {
	switch code {
	case "args_too_large", "output_too_large", "batch_too_large", "too_large":
		return http.StatusRequestEntityTooLarge
	default:
		return http.StatusUnprocessableEntity
	}
}
