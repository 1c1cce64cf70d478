package query

import (
	"context"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"github.com/tuskqueue/tusk"
)

// FindWorkflow returns the id of a workflow to which one of the newest tasks within bounds belongs. text is the id,
// or its beginning or end. A whole id is returned whether or not such a workflow exists. The errors are those of
// FindID.
func FindWorkflow(ctx context.Context, client *tusk.Client, within Bounds, text string) (tusk.ID, error) {
	id, part, err := readPart(text)
	if err != nil || part == "" {
		return id, err
	}
	var found []tusk.ID
	_, _, err = look(ctx, client, within, tusk.Filter{}, tailBudget, func(t tusk.TaskInfo) bool {
		if !t.Workflow.IsZero() && hasPart(t.Workflow, part) && !slices.Contains(found, t.Workflow) {
			found = append(found, t.Workflow)
		}
		return len(found) == candidates
	})
	if err != nil {
		return id, err
	}
	return theOne("workflow", text, found)
}

// FindOperation is FindWorkflow for bulk operations. It considers those whose owner knows accepts; if knows is nil,
// all.
func FindOperation(
	ctx context.Context, client *tusk.Client, knows func(owner string) bool, text string,
) (tusk.ID, error) {
	id, part, err := readPart(text)
	if err != nil || part == "" {
		return id, err
	}
	operations, err := client.Operations(ctx)
	if err != nil {
		return id, err
	}
	var found []tusk.ID
	for _, o := range operations {
		if hasPart(o.ID, part) && (knows == nil || knows(o.Owner)) && len(found) < candidates {
			found = append(found, o.ID)
		}
	}
	return theOne("operation", text, found)
}

// CheckPart rejects text that is neither an id nor a part of one, before anything is searched.
func CheckPart(text string) error {
	_, _, err := readPart(text)
	return err
}

// readPart reads an id, or the digits of a part of one.
func readPart(text string) (id tusk.ID, part string, err error) {
	if id, err = tusk.ParseID(strings.TrimSpace(text)); err == nil {
		return id, "", nil
	}
	if part = partOf(text); part == "" {
		return id, "", fmt.Errorf("%w; the first or the last %d digits of an id are enough", err, minPart)
	}
	return id, part, nil
}

func hasPart(id tusk.ID, part string) bool {
	digits := hex.EncodeToString(id[:])
	return strings.HasPrefix(digits, part) || strings.HasSuffix(digits, part)
}

func theOne(what, text string, found []tusk.ID) (tusk.ID, error) {
	switch len(found) {
	case 0:
		return tusk.ID{}, fmt.Errorf("%s %s: %w: none of the newest has an id that begins or ends so", what, text,
			tusk.ErrNotFound)
	case 1:
		return found[0], nil
	}
	names := make([]string, len(found))
	for i, id := range found {
		names[i] = id.String()
	}
	return tusk.ID{}, &AmbiguousError{Part: text, Names: names}
}
