package rules

import (
	"regexp"

	"github.com/tuskqueue/tusk/store"
)

// died matches the error that package lifecycle writes for a task whose worker died. SQL engines search for it with
// the pattern 'worker ____________________________________ died'.
var died = regexp.MustCompile(`^worker [0-9a-f-]{36} died$`)

// Died reports whether an attempt ended with the death of its worker.
func Died(o *store.Outcome) bool { return died.MatchString(o.Error) }
