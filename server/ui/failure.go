package ui

import (
	"context"
	"errors"
	"net/http"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/server/access"
	"github.com/tuskqueue/tusk/server/alert"
	"github.com/tuskqueue/tusk/server/notify"
	"github.com/tuskqueue/tusk/server/push"
	"github.com/tuskqueue/tusk/server/query"
	"github.com/tuskqueue/tusk/store"
)

// failureOf returns what a visitor should know about an error.
func failureOf(err error) *Failure {
	var f *Failure
	var q *query.Error
	var several *query.AmbiguousError
	switch {
	case errors.As(err, &f):
		return f
	case errors.As(err, &several):
		return &Failure{http.StatusBadRequest, several.Error()}
	case errors.As(err, &q), errors.Is(err, tusk.ErrInvalid), errors.Is(err, access.ErrInvalid),
		errors.Is(err, push.ErrInvalid),
		errors.Is(err, alert.ErrInvalid), errors.Is(err, notify.ErrInvalid), errors.Is(err, push.ErrTarget):
		return &Failure{http.StatusBadRequest, err.Error()}
	case errors.Is(err, tusk.ErrNotFound), errors.Is(err, access.ErrNotFound), errors.Is(err, push.ErrNotFound),
		errors.Is(err, alert.ErrNotFound):
		return &Failure{http.StatusNotFound, "Not found: it does not exist, or no longer does."}
	case errors.Is(err, tusk.ErrRefused), errors.Is(err, notify.ErrSealed):
		return &Failure{http.StatusConflict, err.Error()}
	case errors.Is(err, tusk.ErrConflict):
		return &Failure{http.StatusConflict, "Somebody else changed it at the same time. Try again."}
	case errors.Is(err, context.DeadlineExceeded):
		return &Failure{http.StatusServiceUnavailable,
			"The database took too long to answer. Try again, or choose fewer tasks."}
	case errors.Is(err, store.ErrUnavailable):
		return &Failure{http.StatusServiceUnavailable, "The database cannot be reached. Try again in a moment."}
	case errors.Is(err, store.ErrReadOnly):
		return &Failure{http.StatusServiceUnavailable, "The database is read-only at present."}
	case errors.Is(err, access.ErrFull):
		return &Failure{http.StatusServiceUnavailable, "Too many people are logged in. Try again later."}
	case errors.Is(err, store.ErrFull):
		return &Failure{http.StatusInsufficientStorage, "The database's storage is full."}
	case errors.Is(err, store.ErrSchemaMissing), errors.Is(err, store.ErrSchemaOld), errors.Is(err, store.ErrSchemaNew),
		errors.Is(err, store.ErrSchemaForeign):
		return &Failure{http.StatusServiceUnavailable, err.Error()}
	default:
		return &Failure{http.StatusInternalServerError, "Something went wrong here. The server's log has the details."}
	}
}

// explain returns the text that a form shows about a problem, and sets the status of the page. A failure of the server
// and a missing permission have a page of their own, and are returned unchanged.
func (a *answer) explain(problem error) (text string, err error) {
	if problem == nil {
		return "", nil
	}
	known := failureOf(problem)
	if known.Status >= 500 || known.Status == http.StatusForbidden {
		return "", problem
	}
	a.status = known.Status
	return known.Text, nil
}

// again is how many seconds a browser waits before it retries a page whose error may pass by itself.
const again = "5"

// passes reports whether an error may pass in a moment. A timeout does not count: the next try would take as long
// again.
func passes(err error) bool { return errors.Is(err, store.ErrUnavailable) || errors.Is(err, errBusy) }
