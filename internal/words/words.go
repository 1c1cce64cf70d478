// Package words writes phrases for messages.
package words

import (
	"fmt"
	"strings"
)

// Count formats a number of things: "1 task", "2 tasks".
func Count[N int | int64](n N, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// Either joins choices into a phrase: "skip, replace or rerun".
func Either[T any](choices []T) string {
	var b strings.Builder
	for i, c := range choices {
		switch {
		case i > 0 && i == len(choices)-1:
			b.WriteString(" or ")
		case i > 0:
			b.WriteString(", ")
		}
		fmt.Fprint(&b, c)
	}
	return b.String()
}
