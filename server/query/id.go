package query

import (
	"context"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/store"
)

// Ids begin with the time, so tasks that were enqueued together differ at the end: pages show the last twelve digits.
// The beginning of an id stands for a range of ids, which is cheap to read however many tasks there are. The end of
// an id is searched only among the newest tasks.
const (
	minPart    = 6 // digits in a part of an id
	wholeTail  = 12
	tailBudget = 20000 // tasks that are searched for the end of an id
	tailTime   = 2 * time.Second
	candidates = 10
)

// AmbiguousError says that a part of an id is the beginning or end of several ids.
type AmbiguousError struct {
	Part  string
	Names []string        // of the newest matches, at most ten
	Tasks []tusk.TaskInfo // the same, if the matches are tasks
}

func (e *AmbiguousError) Error() string {
	return fmt.Sprintf("%s is a part of several ids: %s", e.Part, strings.Join(e.Names, ", "))
}

func ambiguousTasks(part string, tasks []tusk.TaskInfo) *AmbiguousError {
	names := make([]string, len(tasks))
	for i, t := range tasks {
		names[i] = fmt.Sprintf("%s (%s, %v)", t.ID, t.Kind, t.State)
	}
	return &AmbiguousError{part, names, tasks}
}

// IsPart reports whether text can be the beginning or the end of an id.
func IsPart(text string) bool { return partOf(text) != "" }

// partOf returns the digits of a part of an id, or "" if text is not one.
func partOf(text string) string {
	digits := strings.ReplaceAll(strings.ToLower(strings.Trim(strings.TrimSpace(text), "….")), "-", "")
	even := digits + strings.Repeat("0", len(digits)%2)
	if _, err := hex.DecodeString(even); err != nil || len(digits) < minPart || len(digits) > 32 {
		return ""
	}
	return digits
}

// FindID returns the id of a task within bounds. text is the id, or its beginning or end. A whole id is returned
// whether or not such a task exists.
//
// Errors: an *AmbiguousError; tusk.ErrNotFound; a *tusk.InvalidError if text is not a part of an id.
func FindID(ctx context.Context, client *tusk.Client, within Bounds, text string) (tusk.ID, error) {
	id, part, err := readPart(text)
	if err != nil || part == "" {
		return id, err
	}
	found, err := findParts(ctx, client, within, part)
	switch {
	case err != nil:
		return id, err
	case len(found) == 0:
		return id, fmt.Errorf("task %s: %w: no id begins with it, and none of the newest %d tasks ends with it", text,
			tusk.ErrNotFound, tailBudget)
	case len(found) > 1:
		return id, ambiguousTasks(text, found)
	}
	return found[0].ID, nil
}

func findParts(
	ctx context.Context, client *tusk.Client, within Bounds, part string,
) (found []tusk.TaskInfo, err error) {
	var last tusk.ID
	if _, err := hex.Decode(last[:], []byte(part+strings.Repeat("f", 32-len(part)))); err != nil {
		return nil, err
	}
	first, _, err := Visible(ctx, client, within, tusk.Filter{Before: last, Limit: candidates})
	if err != nil {
		return nil, err
	}
	for _, t := range first {
		if strings.HasPrefix(hex.EncodeToString(t.ID[:]), part) {
			found = append(found, t)
		}
	}
	if len(found) > 0 {
		return found, nil
	}
	f, begun := tusk.Filter{Limit: store.MaxPage}, time.Now()
	for looked := 0; looked < tailBudget && time.Since(begun) < tailTime; {
		tasks, more, err := Visible(ctx, client, within, f)
		if err != nil {
			return nil, err
		}
		for _, t := range tasks {
			if strings.HasSuffix(hex.EncodeToString(t.ID[:]), part) && len(found) < candidates {
				found = append(found, t)
			}
		}
		looked += max(len(tasks), 1)
		if more.IsZero() || len(found) > 0 && len(part) >= wholeTail {
			break
		}
		f.Before = more
	}
	return found, nil
}
