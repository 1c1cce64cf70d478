package archive

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/parquet-go/parquet-go"

	"github.com/tuskqueue/tusk/internal/argmatch"
	"github.com/tuskqueue/tusk/mask"
)

// Query selects tasks of an archive. Empty fields match everything; all others must match.
type Query struct {
	States     []string  `json:"states,omitempty"`
	Queues     []string  `json:"queues,omitempty"`
	Kinds      []string  `json:"kinds,omitempty"`
	Tenants    []string  `json:"tenants,omitempty"`
	Tags       []string  `json:"tags,omitempty"` // a task must have all of them
	Key        string    `json:"key,omitempty"`
	ErrorGroup string    `json:"error_group,omitempty"`
	From       time.Time `json:"from,omitzero"`  // ended at this time or later
	Until      time.Time `json:"until,omitzero"` // ended before this time
	// Args is text in the args, or the value at a path (order.id=17). Encrypted args cannot be
	// searched and do not match.
	Args string `json:"args,omitempty"`
	// Hidden masks the parts of args that may not be seen or searched. It is part of the query, so
	// that a process that carries out a stored request sees no more than the requester.
	Hidden mask.Mask `json:"hidden,omitzero"`

	// Sees reports which tasks may be shown. If nil, all may.
	Sees func(queue, tenant string) bool `json:"-"`
}

// may reports whether a file may have matching tasks, as far as its manifest tells.
func (q *Query) may(f *File) bool {
	return among(q.Queues, f.Queue) && anyOf(q.Kinds, f.Kinds) && anyOf(q.Tenants, f.Tenants) &&
		(len(q.States) == 0 || slices.ContainsFunc(q.States, func(s string) bool { return f.States[s] > 0 })) &&
		(q.From.IsZero() || !f.Until.Before(q.From)) && (q.Until.IsZero() || f.From.Before(q.Until)) &&
		(q.Sees == nil || len(f.Tenants) == 0 ||
			slices.ContainsFunc(f.Tenants, func(t string) bool { return q.Sees(f.Queue, t) }))
}

// mayGroup reports whether a row group may have matching tasks, by the minimum and maximum of its
// columns.
func (q *Query) mayGroup(o *opened, group parquet.RowGroup) bool {
	for column, wanted := range map[string][]string{"kind": q.Kinds, "state": q.States, "error_group": one(q.ErrorGroup),
		"key": one(q.Key)} {
		if len(wanted) > 0 && !slices.ContainsFunc(wanted, func(w string) bool {
			return o.mayHave(group, o.column(column), w)
		}) {
			return false
		}
	}
	return true
}

// matches reports whether a row matches, as far as its probe tells.
func (q *Query) matches(f *File, p *probe) bool {
	end := instant(p.FinishedAt)
	return among(q.States, p.State) && among(q.Kinds, p.Kind) && among(q.Tenants, p.Tenant) &&
		(q.Key == "" || q.Key == p.Key) && (q.ErrorGroup == "" || q.ErrorGroup == p.ErrorGroup) &&
		(q.From.IsZero() || !end.Before(q.From)) && (q.Until.IsZero() || end.Before(q.Until)) &&
		!slices.ContainsFunc(q.Tags, func(tag string) bool { return !slices.Contains(p.Tags, tag) }) &&
		(q.Sees == nil || q.Sees(f.Queue, p.Tenant))
}

// argsMatcher returns a function that matches args, or nil if any args match.
func (q *Query) argsMatcher() func(args []byte) bool {
	if q.Args == "" {
		return nil
	}
	matches := argmatch.Matcher(q.Args)
	return func(args []byte) bool { return matches(q.Hidden.JSON(args)) }
}

// encrypted reports whether args are encrypted.
func encrypted(args string) bool { return strings.HasPrefix(args, `{"$encrypted`) }

// files returns the files that may have matching tasks, the latest day first.
func (q *Query) files(manifests []Manifest) []File {
	var may []File
	for _, m := range manifests {
		for _, f := range m.Files {
			if q.may(&f) {
				may = append(may, f)
			}
		}
	}
	slices.SortFunc(may, func(a, b File) int {
		return cmp.Or(-cmp.Compare(a.Day, b.Day), -a.Until.Compare(b.Until), cmp.Compare(a.Path, b.Path))
	})
	return may
}

func among(wanted []string, has string) bool { return len(wanted) == 0 || slices.Contains(wanted, has) }

// anyOf reports whether a file may have one of the wanted names. A file with too many names lists
// none.
func anyOf(wanted, has []string) bool {
	return len(wanted) == 0 || len(has) == 0 ||
		slices.ContainsFunc(wanted, func(w string) bool { return slices.Contains(has, w) })
}

func one(text string) []string {
	if text == "" {
		return nil
	}
	return []string{text}
}

// all reports whether all tasks of a file match, as far as its manifest tells.
func (q *Query) all(f *File) bool {
	states := f.Tasks
	if len(q.States) > 0 {
		states = 0
		for _, s := range q.States {
			states += f.States[s]
		}
	}
	return len(q.Tags) == 0 && q.Key == "" && q.ErrorGroup == "" && q.Args == "" && states == f.Tasks &&
		within(f.Kinds, q.Kinds) && within(f.Tenants, q.Tenants) && among(q.Queues, f.Queue) &&
		(q.From.IsZero() || !f.From.Before(q.From)) && (q.Until.IsZero() || f.Until.Before(q.Until)) &&
		(q.Sees == nil || len(f.Tenants) > 0 &&
			!slices.ContainsFunc(f.Tenants, func(t string) bool { return !q.Sees(f.Queue, t) }))
}

// within reports whether all names of a file are wanted.
func within(has, wanted []string) bool {
	return len(wanted) == 0 || len(has) > 0 &&
		!slices.ContainsFunc(has, func(h string) bool { return !slices.Contains(wanted, h) })
}
