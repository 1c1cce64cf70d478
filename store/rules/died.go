package rules

import (
	"regexp"

	"github.com/tuskqueue/tusk/store"
)

// died is the error that package lifecycle writes about a task whose worker died. Engines
// in SQL look for it by the pattern 'worker ____________________________________ died'.
var died = regexp.MustCompile(`^worker [0-9a-f-]{36} died$`)

// Died reports whether an attempt ended with the death of its worker.
func Died(o *store.Outcome) bool { return died.MatchString(o.Error) }
