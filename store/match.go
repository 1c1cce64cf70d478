package store

import (
	"bytes"
	"cmp"
	"slices"
)

// Matches reports whether the filter selects a task. fingerprint is that of the task's latest failed attempt.
func (f *Filter) Matches(t *Task, fingerprint string) bool {
	for _, tag := range f.Tags {
		if !slices.Contains(t.Tags, tag) {
			return false
		}
	}
	return among(f.Queues, t.Queue) && among(f.Kinds, t.Kind) && among(f.Tenants, t.Tenant) &&
		among(f.States, t.State) &&
		(f.Key == "" || f.Key == t.Key) &&
		(f.Workflow.IsZero() || f.Workflow == t.Workflow) &&
		(f.Fingerprint == "" || f.Fingerprint == fingerprint) &&
		(f.Before.IsZero() || bytes.Compare(t.ID[:], f.Before[:]) < 0) &&
		!t.EnqueuedAt.Before(f.From) &&
		(f.Until.IsZero() || t.EnqueuedAt.Before(f.Until))
}

func among[T comparable](wanted []T, got T) bool {
	return len(wanted) == 0 || slices.Contains(wanted, got)
}

// Page returns the groups that the filter selects, sorted and limited as by Reader.Errors.
func (f *ErrorFilter) Page(groups []ErrorGroup) (page []ErrorGroup) {
	for _, g := range groups {
		if (f.Queue == "" || f.Queue == g.Queue) && (f.Kind == "" || f.Kind == g.Kind) && !g.Last.Before(f.Since) {
			page = append(page, g)
		}
	}
	slices.SortFunc(page, func(a, b ErrorGroup) int {
		return cmp.Or(b.Last.Compare(a.Last), cmp.Compare(a.Fingerprint, b.Fingerprint), cmp.Compare(a.Queue, b.Queue))
	})
	return page[:min(len(page), f.Most())]
}

// Most returns how many groups the filter selects at most.
func (f *ErrorFilter) Most() int { return cmp.Or(max(f.Limit, 0), 100) }
