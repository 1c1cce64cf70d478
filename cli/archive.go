package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/archive"
	"github.com/tuskqueue/tusk/archive/place"
	"github.com/tuskqueue/tusk/store"
)

func newArchiveCommand(app *App) *cobra.Command {
	c := &cobra.Command{
		Use:   "archive",
		Short: "Keep finished tasks in files that other tools read",
		Long: `tusk serve --archive URL moves finished tasks of archived queues into Parquet files
when their retention is over. Commands that read the archive also need its URL:
--archive, or TUSK_ARCHIVE.`,
	}
	c.AddCommand(newArchiveStatusCommand(app), newArchiveSetCommand(app), newArchiveListCommand(app),
		newArchiveShowCommand(app), newArchiveVerifyCommand(app), newArchiveSearchCommand(app), newArchiveRerunCommand(app),
		reruns.command(app, "Watch, carry on and cancel reruns of what matched a filter"), newArchiveRestoreCommand(app),
		restores.command(app, "Watch, carry on and cancel restores"), newArchiveKeepCommand(app), newArchivePruneCommand(app),
		newArchiveEraseCommand(app), newArchiveHoldCommand(app), newArchiveUnholdCommand(app),
		called("erasures", newListCommand(app, "List requests to erase tenants, and when they were done",
			"nobody has asked for a tenant to be erased",
			func(ctx context.Context, client *tusk.Client) ([]erasureRow, error) {
				all, err := archive.Erasures(ctx, client.Store())
				return rowsOf(all, erasureOf), err
			})),
		called("holds", newListCommand(app, "List holds", "nothing is held",
			func(ctx context.Context, client *tusk.Client) ([]holdRow, error) {
				all, err := archive.Holds(ctx, client.Store())
				return rowsOf(all, holdOf), err
			})))
	return c
}

// called renames a command.
func called(name string, c *cobra.Command) *cobra.Command {
	c.Use = name
	return c
}

// archiveView is the status of archiving.
type archiveView struct {
	All       bool     `json:"all" col:"ALL QUEUES"`
	Queues    []string `json:"queues" col:"QUEUES"` // archived queues; with a leading ! queues that are not archived
	Succeeded instant  `json:"succeeded_at" col:"SUCCEEDED"`
	Failing   string   `json:"failing" col:"FAILING"`
	Tasks     int64    `json:"tasks" col:"TASKS"`
	Bytes     int64    `json:"bytes" col:"BYTES"`
}

func newArchiveStatusCommand(app *App) *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Show what is archived, and when archiving last succeeded",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return app.withClient(cmd.Context(), func(client *tusk.Client) error {
				v, err := viewArchive(cmd.Context(), client)
				if err != nil {
					return err
				}
				return printOne(app, v)
			})
		},
	}
}

func viewArchive(ctx context.Context, client *tusk.Client) (v archiveView, err error) {
	status, err := archive.ReadStatus(ctx, client.Store())
	if err != nil {
		return v, err
	}
	v = archiveView{Queues: []string{}, Succeeded: instant(status.Succeeded), Failing: status.Failing, Tasks: status.Tasks,
		Bytes: status.Bytes}
	if v.All, err = client.ArchivesAll(ctx); err != nil {
		return v, err
	}
	queues, err := client.Queues(ctx)
	for _, q := range queues {
		switch {
		case q.Archive == nil:
		case *q.Archive:
			v.Queues = append(v.Queues, q.Name)
		default:
			v.Queues = append(v.Queues, "!"+q.Name)
		}
	}
	return v, err
}

func newArchiveSetCommand(app *App) *cobra.Command {
	var all, off, like bool
	c := &cobra.Command{
		Use:   "set [QUEUE…]",
		Short: "Set which queues are archived",
		Long: `Set which queues are archived: the named ones, or with --all every queue without a
setting of its own. Their finished tasks stay in the database until a process has moved
them: run tusk serve --archive URL. With --off, they are deleted when their retention is
over.`,
		Example: `  tusk archive set --all
  tusk archive set thumbnails --off
  tusk archive set thumbnails --like-others`,
		Args: between(0, -1, "QUEUE"),
		RunE: func(cmd *cobra.Command, names []string) error {
			if all == (len(names) > 0) {
				return usage("", "name queues, or say --all")
			}
			on, result := !off, "archived"
			if off {
				result = "not archived"
			}
			if all {
				return app.withClient(cmd.Context(), func(client *tusk.Client) error {
					if err := client.SetArchiveAll(cmd.Context(), on); err != nil {
						return err
					}
					return printList(app, []doneRow{{"(all)", result}})
				})
			}
			setting := &on
			if like {
				setting, result = nil, "like others"
			}
			return app.forEach(cmd.Context(), "queue", names, result,
				func(c *tusk.Client, ctx context.Context, name string) error {
					return c.SetArchive(ctx, name, setting)
				})
		},
	}
	c.Flags().BoolVar(&all, "all", false, "all queues without a setting of their own")
	c.Flags().BoolVar(&off, "off", false, "do not archive them")
	c.Flags().BoolVar(&like, "like-others", false, "follow the setting of --all")
	c.MarkFlagsMutuallyExclusive("off", "like-others")
	c.MarkFlagsMutuallyExclusive("all", "like-others")
	return app.meant(c)
}

// fileRow is a file of the archive.
type fileRow struct {
	Path  string  `json:"path" col:"PATH"`
	Day   string  `json:"day"`
	Queue string  `json:"queue"`
	Tasks int64   `json:"tasks" col:"TASKS"`
	Bytes int64   `json:"bytes" col:"BYTES"`
	From  instant `json:"from" col:"FROM"`
	Until instant `json:"until" col:"UNTIL"`
	Sum   string  `json:"sha256"`
}

func newArchiveListCommand(app *App) *cobra.Command {
	var queues []string
	c := &cobra.Command{
		Use:   "list",
		Short: "List the files of the archive",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return app.withArchive(cmd.Context(), func(a *archive.Archive) error {
				manifests, err := a.Manifests(cmd.Context())
				if err != nil {
					return err
				}
				rows := []fileRow{}
				for _, m := range manifests {
					for _, f := range m.Files {
						if len(queues) == 0 || slices.Contains(queues, f.Queue) {
							rows = append(rows, fileRow{f.Path, f.Day, f.Queue, f.Tasks, f.Bytes, instant(f.From),
								instant(f.Until), f.SHA256})
						}
					}
				}
				return printList(app, rows)
			})
		},
	}
	c.Flags().StringSliceVar(&queues, "queue", nil, "only those of this `queue`; repeatable")
	return c
}

func newArchiveShowCommand(app *App) *cobra.Command {
	return &cobra.Command{
		Use:   "show ID",
		Short: "Show an archived task",
		Long: `Show an archived task with everything that was known of it when it left the database.
tusk tasks show also finds it there, if it is not in the database.`,
		Args: between(1, 1, "ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := tusk.ParseID(args[0])
			if err != nil {
				return usage("", "%v", err)
			}
			return app.withClient(cmd.Context(), func(client *tusk.Client) error {
				task, err := app.findArchived(cmd.Context(), client, id)
				if err != nil {
					return err
				}
				return app.printTask(viewOf(task))
			})
		},
	}
}

// findArchived looks for a task in the archive.
func (app *App) findArchived(ctx context.Context, client *tusk.Client, id tusk.ID) (info tusk.TaskInfo, err error) {
	err = app.withArchive(ctx, func(a *archive.Archive) error {
		task, err := a.Find(ctx, id)
		if errors.Is(err, archive.ErrNotFound) {
			return fmt.Errorf("task %s: %w, neither in the database nor in the archive", id, tusk.ErrNotFound)
		}
		info = client.Describe(task)
		return err
	})
	return info, err
}

func newArchiveVerifyCommand(app *App) *cobra.Command {
	return &cobra.Command{
		Use:   "verify",
		Short: "Read all files and compare their checksums",
		Long: `Read all files of the archive, compare them with the checksums of their manifests, and
find files that no manifest lists. The command reports what is wrong, and ends with
status 1 if anything is.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return app.withArchive(cmd.Context(), func(a *archive.Archive) error {
				v, err := a.Verify(cmd.Context(), nil)
				if err != nil {
					return err
				}
				if err := printOne(app, verifiedView{v.Files, v.Tasks, v.Bytes, problemRows(v.Problems)}); err != nil {
					return err
				}
				if len(v.Problems) > 0 {
					return &Problem{Code: "archive_damaged", Exit: exitError,
						Text: fmt.Sprintf("%d things are wrong with the archive", len(v.Problems))}
				}
				return nil
			})
		},
	}
}

type verifiedView struct {
	Files    int      `json:"files" col:"FILES"`
	Tasks    int64    `json:"tasks" col:"TASKS"`
	Bytes    int64    `json:"bytes" col:"BYTES"`
	Problems []string `json:"problems" col:"PROBLEMS"`
}

func problemRows(problems []archive.Problem) []string {
	rows := []string{}
	for _, p := range problems {
		rows = append(rows, p.Path+": "+p.Text)
	}
	return rows
}

// archiveNamed fails unless --archive names an archive. A missing folder means a misspelt name: only commands that
// write to an archive create it.
func (app *App) archiveNamed() error {
	if app.flags.archive == "" {
		return usage("such as --archive file:///var/lib/tusk/archive, or TUSK_ARCHIVE", "--archive is missing")
	}
	u, err := url.Parse(app.flags.archive)
	if err != nil || u.Scheme != "file" || u.Host != "" {
		return nil // place.Open says what is wrong
	}
	if _, err := os.Stat(filepath.FromSlash(u.Path)); errors.Is(err, fs.ErrNotExist) {
		return usage("tusk serve --archive creates it", "--archive: the folder %s does not exist", u.Path)
	}
	return nil
}

// withArchive does something with the archive that --archive names.
func (app *App) withArchive(ctx context.Context, do func(*archive.Archive) error) error {
	if err := app.archiveNamed(); err != nil {
		return err
	}
	bucket, err := place.Open(ctx, app.flags.archive)
	if err != nil {
		return usage("", "%v", err)
	}
	defer bucket.Close()
	return do(archive.New(bucket, ""))
}

// tryTemporary fails if the folder for temporary files cannot be used: nothing could be archived.
func tryTemporary() error {
	file, err := os.CreateTemp("", "tusk-")
	if err != nil {
		return usage("TMPDIR names another folder", "--archive: the folder for temporary files cannot be used: %v", err)
	}
	return errors.Join(file.Close(), os.Remove(file.Name()))
}

// archiver returns the runner with which a server archives, or nil if the server does not archive.
func (app *App) archiver(
	ctx context.Context, s store.Store, leader *tusk.Leader,
) (r *archive.Runner, done func(), err error) {
	if app.flags.archive == "" {
		return nil, func() {}, nil
	}
	bucket, err := place.Open(ctx, app.flags.archive)
	if err != nil {
		return nil, nil, usage("", "--archive: %v", err)
	}
	if err := tryTemporary(); err != nil {
		return nil, nil, errors.Join(err, bucket.Close())
	}
	r, err = archive.NewRunner(archive.Options{Store: s, Bucket: bucket, ID: tusk.NewID(), NewID: tusk.NewID,
		Keep: leader.Archivable, Log: app.Log, Patience: app.patience})
	if err != nil {
		return nil, nil, errors.Join(usage("", "--archive: %v", err), bucket.Close())
	}
	where, _, _ := strings.Cut(app.flags.archive, "?")
	app.Log.Info("archive", "place", where)
	thrifty := collectMoreOften()
	return r, func() { thrifty(); _ = bucket.Close() }, nil
}
