package ledgers

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// name is the name of a ledger's schema. There is no other directory of ledgers. tusk_3_of_8 is number 3 of 8 ledgers.
// The name of a ledger that was added later also says how many ledgers keys are divided among: tusk_9_of_16_keys_8. The
// schema of a plain queue of store/postgres, tusk, is number 0 of 1.
type name struct {
	no, of, keys int
}

func (n name) in(base string) string {
	if n.keys == n.of {
		return fmt.Sprintf("%s_%d_of_%d", base, n.no, n.of)
	}
	return fmt.Sprintf("%s_%d_of_%d_keys_%d", base, n.no, n.of, n.keys)
}

// fencedEnd is the suffix of the schema of a fenced ledger. Nobody may use the ledger until it is opened, there or on
// another server.
const fencedEnd = "_fenced"

var numbers = regexp.MustCompile(`^_(0|[1-9][0-9]?)_of_([1-9][0-9]?)(?:_keys_([1-9][0-9]?))?$`)

// parseName parses the name of a ledger of a queue. It returns false for any other name.
func parseName(base, text string) (n name, is bool) {
	rest, ok := strings.CutPrefix(text, base)
	if !ok {
		return n, false
	}
	if rest == "" {
		return name{0, 1, 1}, true
	}
	parts := numbers.FindStringSubmatch(rest)
	if parts == nil {
		return n, false
	}
	n.no, _ = strconv.Atoi(parts[1])
	n.of, _ = strconv.Atoi(parts[2])
	if n.keys = n.of; parts[3] != "" {
		n.keys, _ = strconv.Atoi(parts[3])
	}
	later := n.keys < n.of && n.no >= n.keys
	return n, n.no < n.of && n.of <= Most && (n.keys == n.of || later)
}
