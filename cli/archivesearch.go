package cli

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/archive"
	"github.com/tuskqueue/tusk/store"
)

// archiveFilter are the flags that select tasks of an archive.
type archiveFilter struct {
	states, queues, kinds, tenants, tags []string
	key, fingerprint, args               string
	since, until                         time.Time
	all                                  bool
}

func (f *archiveFilter) addTo(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringSliceVar(&f.states, "state", nil, "`state`,…: completed, cancelled or discarded")
	flags.StringSliceVar(&f.queues, "queue", nil, "queue `name`,…")
	flags.StringSliceVar(&f.kinds, "kind", nil, "kind `name`,…")
	flags.StringSliceVar(&f.tenants, "tenant", nil, "tenant `name`,…")
	flags.StringSliceVar(&f.tags, "tag", nil, "`tag`,…: tasks that have all of them")
	flags.StringVar(&f.key, "key", "", "the task's `key`")
	flags.StringVar(&f.fingerprint, "fingerprint", "", "`hash` of the latest error, as tusk errors prints it")
	flags.StringVar(&f.args, "args", "", "`text` in the args, or the value at a path: order.id=17; not in encrypted args")
	flags.Var(whenFlag(&f.since, ""), "since", "ended at or after: 2h, 7d or RFC 3339")
	flags.Var(whenFlag(&f.until, ""), "until", "ended before: 2h, 7d or RFC 3339")
	flags.BoolVar(&f.all, "all", false, "all tasks")
}

// narrow reports whether any flag limits the selection.
func (f *archiveFilter) narrow() bool {
	return len(f.states)+len(f.queues)+len(f.kinds)+len(f.tenants)+len(f.tags) > 0 || f.key != "" || f.fingerprint != "" ||
		f.args != "" || !f.since.IsZero() || !f.until.IsZero()
}

func (f *archiveFilter) query() (archive.Query, error) {
	q := archive.Query{States: f.states, Queues: f.queues, Kinds: f.kinds, Tenants: f.tenants, Tags: f.tags, Key: f.key,
		ErrorGroup: f.fingerprint, From: f.since, Until: f.until, Args: f.args}
	var problems []error
	for what, names := range map[string][]string{"queue": f.queues, "kind": f.kinds, "tenant": f.tenants} {
		for _, name := range names {
			problems = append(problems, tusk.ValidateName(what, name))
		}
	}
	for _, name := range f.states {
		state, err := store.ParseState(name)
		switch {
		case err != nil:
			problems = append(problems, unknownState(name))
		case !state.Finished():
			problems = append(problems, usage("want completed, cancelled or discarded", "no task in the archive is %s", state))
		}
	}
	if !f.since.IsZero() && !f.until.IsZero() && !f.since.Before(f.until) {
		problems = append(problems, usage("", "--since is not before --until"))
	}
	return q, errors.Join(problems...)
}

const archivePage = 500

func newArchiveSearchCommand(app *App) *cobra.Command {
	var filter archiveFilter
	var limit int
	c := &cobra.Command{
		Use:   "search [filter flags]",
		Short: "Find tasks in the archive, the latest days first",
		Long: `Find archived tasks. Those that ended on the latest day come first, in no order within a
day. Days, queues, kinds, tenants and states determine which files are read. A search for
a key, a tag, an error or args reads the files of all days between --since and --until.
Encrypted args cannot be searched.`,
		Example: `  tusk archive search --state discarded --queue mail --since 30d
  tusk archive search --args order.id=17 --since 2026-01-01T00:00:00Z --json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			q, err := filter.query()
			if err != nil {
				return firstProblem(err)
			}
			if filter.all {
				limit = 0
			}
			return app.withShelf(cmd.Context(), func(client *tusk.Client, a *archive.Archive) error {
				var cursor string
				sealed, shown := int64(0), 0
				bar := newArchiveBar(app)
				defer bar.end()
				for {
					page := archivePage
					if limit > 0 {
						page = min(page, limit-shown)
					}
					found, err := a.Search(cmd.Context(), q, cursor, page, 0, func(p archive.Progress) { bar.at(p, shown) })
					if err != nil {
						return err
					}
					bar.end()
					rows := rowsOf(found.Tasks, func(t store.Task) taskRow { return rowOf(client.Describe(t)) })
					if err := printList(app, rows); err != nil {
						return err
					}
					shown, sealed, cursor = shown+len(rows), sealed+found.Sealed, found.Next
					if cursor == "" || limit > 0 && shown >= limit {
						break
					}
				}
				app.noteSealed(sealed)
				return nil
			})
		},
	}
	filter.addTo(c)
	c.Flags().Var(numberFlag(&limit, 1, 1<<30), "limit", "the maximum number; default 100")
	limit = 100
	c.MarkFlagsMutuallyExclusive("limit", "all")
	return c
}

// noteSealed says how many tasks a search in args could not search.
func (app *App) noteSealed(tasks int64) {
	if tasks > 0 {
		app.note("the args of %s are encrypted: a search cannot see into them", count(int(tasks), "other task"))
	}
}

// archiveBar draws how many files have been searched.
type archiveBar struct {
	*progress
	files int
}

func newArchiveBar(app *App) *archiveBar { return &archiveBar{newProgress(app, 0), 0} }

func (b *archiveBar) at(p archive.Progress, tasks int) {
	b.size = int64(p.Of)
	b.add(int64(p.Files-b.files), tasks)
	b.files = p.Files
}

// notArchived returns the error for a task that is not in the archive.
func notArchived(id tusk.ID, err error) error {
	if errors.Is(err, archive.ErrNotFound) {
		return fmt.Errorf("task %s: %w in the archive", id, tusk.ErrNotFound)
	}
	return err
}
