package ui

import (
	"errors"
	"net/http"
	"os"
	"strings"

	"github.com/tuskqueue/tusk/server/access"
)

// Limits on the bytes of a form, and of a form that needs no login.
const (
	maxForm     = 4 << 20
	maxOpenForm = 16 << 10
)

// readForm reads the form of a request and leaves no body to read later. If giveBack is not nil, the form is large,
// and giveBack releases its memory.
func (v *visit) readForm(route Route) (giveBack func(), err error) {
	defer func() { v.r.Body = http.NoBody }()
	if v.r.Method != http.MethodPost {
		return nil, nil
	}
	if strings.HasPrefix(v.r.Header.Get("Content-Type"), "multipart/") {
		return nil, failure(http.StatusUnsupportedMediaType, "Send the form as application/x-www-form-urlencoded.")
	}
	most := int64(maxForm)
	if route.Need == access.Open {
		most = maxOpenForm
	}
	if v.Receive != nil {
		if giveBack, err = v.Receive(v.w, v.r, v.who, most); err != nil {
			return nil, errBusy
		}
	}
	v.r.Body = http.MaxBytesReader(v.w, v.r.Body, most)
	if err := v.r.ParseForm(); err != nil {
		return giveBack, formFailure(err)
	}
	return giveBack, nil
}

// formFailure explains why a form could not be read.
func formFailure(err error) error {
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return failure(http.StatusRequestEntityTooLarge, "The form has more than %d KiB.", large.Limit>>10)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return failure(http.StatusRequestTimeout, "The form took too long to arrive. Send it again.")
	default:
		return failure(http.StatusBadRequest, "The form cannot be read.")
	}
}
