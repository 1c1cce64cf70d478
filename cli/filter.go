package cli

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/internal/words"
	"github.com/tuskqueue/tusk/store"
)

// filterFlags select tasks.
type filterFlags struct {
	states, queues, kinds, tenants, tags []string
	key, fingerprint                     string
	workflow                             tusk.ID
	since, until                         time.Time
	limit                                int
	all                                  bool
}

func (f *filterFlags) addTo(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringSliceVar(&f.states, "state", nil,
		"`state`,…: scheduled, pending, available, running, retryable, completed, cancelled or discarded")
	flags.StringSliceVar(&f.queues, "queue", nil, "queue `name`,…")
	flags.StringSliceVar(&f.kinds, "kind", nil, "kind `name`,…")
	flags.StringSliceVar(&f.tenants, "tenant", nil, "tenant `name`,…")
	flags.StringSliceVar(&f.tags, "tag", nil, "`tag`,…: tasks that have all of them")
	flags.StringVar(&f.key, "key", "", "the task's `key`")
	flags.StringVar(&f.fingerprint, "fingerprint", "", "`hash` of the latest error, as tusk errors prints it")
	flags.Var(&value[tusk.ID]{into: &f.workflow, name: "ID", parse: tusk.ParseID}, "workflow",
		"tasks of a workflow, of a pipeline's run, or of a task with children")
	flags.Var(whenFlag(&f.since, ""), "since", "enqueued at or after: 2h, 7d or RFC 3339")
	flags.Var(whenFlag(&f.until, ""), "until", "enqueued before: 2h, 7d or RFC 3339")
	flags.Var(numberFlag(&f.limit, 1, 1<<30), "limit", "the maximum number, newest first")
	flags.BoolVar(&f.all, "all", false, "all tasks")
	cmd.MarkFlagsMutuallyExclusive("limit", "all")
}

// filter returns the store's form of the flags.
func (f *filterFlags) filter() (tusk.Filter, error) {
	filter := tusk.Filter{Queues: f.queues, Kinds: f.kinds, Tenants: f.tenants, Tags: f.tags, Key: f.key,
		Fingerprint: f.fingerprint, Workflow: f.workflow, From: f.since, Until: f.until}
	var problems []error
	for what, names := range map[string][]string{"queue": f.queues, "kind": f.kinds, "tenant": f.tenants} {
		for _, name := range names {
			problems = append(problems, tusk.ValidateName(what, name))
		}
	}
	if len(f.tags) > tusk.MaxTags {
		problems = append(problems, usage("", "a task has at most %d tags, %d are asked for", tusk.MaxTags, len(f.tags)))
	}
	if !f.since.IsZero() && !f.until.IsZero() && !f.since.Before(f.until) {
		problems = append(problems, usage("", "--since is not before --until"))
	}
	for _, name := range f.states {
		state, err := store.ParseState(name)
		if err != nil {
			err = unknownState(name)
		}
		filter.States = append(filter.States, state)
		problems = append(problems, err)
	}
	return filter, errors.Join(problems...)
}

func unknownState(name string) error {
	var names []string
	for _, s := range store.States() {
		names = append(names, s.String())
	}
	hint := words.DidYouMean(name, names)
	if hint == "" {
		hint = "want " + words.Either(names)
	}
	return usage(hint, "unknown state %s", quote(name))
}

// narrow reports whether any flag limits the selection.
func (f *filterFlags) narrow() bool {
	return len(f.states)+len(f.queues)+len(f.kinds)+len(f.tenants)+len(f.tags) > 0 || f.key != "" || f.fingerprint != "" ||
		!f.workflow.IsZero() || !f.since.IsZero() || !f.until.IsZero()
}

// eachPage calls fn with the matching tasks, newest first, page by page, up to limit tasks (0 means all).
func eachPage(
	ctx context.Context, client *tusk.Client, filter tusk.Filter, limit int, fn func([]tusk.TaskInfo) error,
) error {
	for left := limit; limit == 0 || left > 0; {
		filter.Limit = store.MaxPage
		if limit > 0 {
			filter.Limit = min(left, store.MaxPage)
		}
		page, err := client.List(ctx, filter)
		if err != nil {
			return err
		}
		if len(page) > 0 {
			if err := fn(page); err != nil {
				return err
			}
		}
		if len(page) < filter.Limit {
			return nil
		}
		left -= len(page)
		filter.Before = page[len(page)-1].ID
	}
	return nil
}
