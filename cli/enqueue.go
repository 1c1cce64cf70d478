package cli

import (
	"bytes"
	"context"
	"errors"
	"io"

	"github.com/spf13/cobra"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/internal/words"
	"github.com/tuskqueue/tusk/store"
)

type enqueuedRow struct {
	ID     tusk.ID `json:"id" col:"ID"`
	Result string  `json:"result" col:"RESULT"`
}

func newEnqueueCommand(app *App) *cobra.Command {
	var (
		task   taskFlags
		from   string
		file   string
		dryRun bool
		wait   bool
	)
	c := &cobra.Command{
		Use:   "enqueue KIND [ARGS-JSON|-] | --from FILE|-",
		Short: "Put one task, or a file of them, into a queue",
		Long: `Enqueue one task, and print its id and the result: added, skipped, replaced, awaiting or
stale. ARGS-JSON is {} by default; - reads it from stdin.

With --from, every line of the file is one task: a JSON object with the fields kind and
args, and others named like the flags: run_at, on_conflict and so on. Tasks are stored in
batches of 1000. If a batch has an invalid line, neither this batch nor any later one is
stored.

With --wait, the command waits until the task has ended, and prints its state and output
too. The exit status is 6 if the task was cancelled or discarded.

With --args-file, args of more than 256 KiB, up to 1 GiB, are kept in the place that
--archive names, beside the archive: workers and servers need the same --archive.`,
		Example: `  tusk enqueue send_email '{"to":"ada@example.com"}' --delay 5m
  tusk enqueue index_document '{"id":17}' --key document-17 --on-conflict rerun
  tusk enqueue import --args-file customers.json --archive file:///var/lib/tusk/archive
  tusk enqueue resize '{"file":"cat.png"}' --wait --json
  tusk enqueue --from tasks.jsonl --dry-run`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if from != "" && len(args) == 0 { // KIND takes precedence over a variable
				return app.enqueueFile(cmd.Context(), from, dryRun)
			}
			return app.enqueueOne(cmd, args, file, &task, dryRun, wait)
		},
	}
	c.Args = func(cmd *cobra.Command, args []string) error {
		if cmd.Flags().Changed("from") {
			return between(0, 0)(cmd, args)
		}
		if cmd.Flags().Changed("args-file") {
			return between(1, 1, "KIND")(cmd, args)
		}
		return between(1, 2, "KIND")(cmd, args)
	}
	c.Flags().StringVar(&from, "from", "", "JSON Lines `file` of tasks; - is stdin")
	c.Flags().StringVar(&file, "args-file", "", "`file` with the args, which is not read into memory; - is stdin")
	c.MarkFlagsMutuallyExclusive("from", "args-file")
	c.Flags().BoolVar(&dryRun, "dry-run", false, "check everything, but store nothing")
	c.Flags().BoolVar(&wait, "wait", false, "wait until the task has ended")
	c.MarkFlagsMutuallyExclusive("from", "wait")
	c.MarkFlagsMutuallyExclusive("dry-run", "wait")
	task.addTo(c.Flags())
	task.addOwnTo(c)
	return c
}

func (app *App) enqueueOne(
	cmd *cobra.Command, args []string, file string, task *taskFlags, dryRun, wait bool,
) error {
	raw := tusk.RawArgs{Name: args[0]}
	if len(args) == 2 {
		file = "" // what the command names takes precedence over a variable
		var err error
		if raw.JSON, err = app.argsJSON(args[1]); err != nil {
			return err
		}
	}
	var given tusk.Args = raw
	if file != "" {
		r, err := app.argsFile(file)
		if err != nil {
			return err
		}
		defer r.Close()
		given = tusk.StreamArgs{Name: args[0], JSON: r}
	}
	var tried []store.NewTask
	client, closeStore, err := app.enqueuer(cmd.Context(), dryRun, &tried)
	if err != nil {
		return err
	}
	defer closeStore()
	result, err := client.Enqueue(cmd.Context(), given, task.complete())
	if err != nil {
		return err
	}
	if dryRun {
		row := triedOf(tried[0])
		if file != "" {
			row.Args = nil // the args were not kept
		}
		app.note("the task is fine; nothing was stored")
		return printOne(app, row)
	}
	row := enqueuedRow{result.ID, result.Result.String()}
	if wait {
		return app.awaitEnqueued(cmd.Context(), client, row)
	}
	return printOne(app, row)
}

// argsJSON returns the args as given, or as read from stdin.
func (app *App) argsJSON(text string) ([]byte, error) {
	const longest = 17 << 20 // more than any task may have
	if text == "" {
		return nil, emptyArgs()
	}
	if text != "-" {
		return []byte(text), nil
	}
	data, err := io.ReadAll(io.LimitReader(app.In, longest))
	if errors.Is(err, context.Canceled) {
		return nil, err
	}
	if err != nil {
		return nil, usage("pipe the JSON in, or give it as an argument", "stdin cannot be read: %v", err)
	}
	if data = bytes.TrimSpace(data); len(data) == 0 {
		return nil, emptyArgs()
	}
	return data, nil
}

func emptyArgs() error {
	p := usage(`leave it out for {}`, "args: is empty, want one JSON value")
	p.Code = "invalid_json"
	return p
}

// count formats a number of things.
func count(n int, thing string) string { return words.Count(n, thing) }
