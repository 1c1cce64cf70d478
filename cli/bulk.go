package cli

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/store"
)

// To enqueue a file of tasks, lines are collected into batches, and each batch is stored completely or not at all.

const (
	bulkBatch   = 1000
	longestLine = 17 << 20
	mostBad     = 20 // bad lines that are reported one by one
)

type bulkRow struct {
	Added    int  `json:"added" col:"ADDED"`
	Skipped  int  `json:"skipped" one:"SKIPPED"`
	Replaced int  `json:"replaced" one:"REPLACED"`
	Awaiting int  `json:"awaiting" one:"AWAITING"`
	Stale    int  `json:"stale" one:"STALE"`
	Tasks    int  `json:"tasks" col:"TASKS"` // number of good lines read
	BadLines int  `json:"bad_lines" one:"BAD_LINES"`
	DryRun   bool `json:"dry_run" one:"DRY_RUN"`
}

func (app *App) enqueueFile(ctx context.Context, name string, dryRun bool) error {
	if extra := app.flagsBeside("enqueue", "from", "dry_run"); extra != "" {
		return usage("give each line its own field", "--%s is for one task, not for --from", extra)
	}
	file, size, err := app.openInput(name)
	if err != nil {
		return err
	}
	defer file.Close()
	client, closeStore, err := app.enqueuer(ctx, dryRun, nil)
	if err != nil {
		return err
	}
	defer closeStore()
	b := &bulk{app: app, client: client, progress: newProgress(app, size), total: bulkRow{DryRun: dryRun}}
	err = b.read(ctx, file)
	b.progress.end()
	b.tellBad()
	printErr := printOne(app, b.total)
	return errors.Join(b.conclude(err), printErr)
}

// flagsBeside returns a flag of the command line that is not among the given ones.
func (app *App) flagsBeside(command string, allowed ...string) string {
	for _, key := range slices.Sorted(maps.Keys(app.config.flags)) {
		f := app.config.flags[key]
		for _, name := range allowed {
			if key == command+"."+name {
				f = nil
				break
			}
		}
		if f != nil && len(key) > len(command) && key[:len(command)+1] == command+"." &&
			app.config.source[key] == sourceFlag {
			return f.Name
		}
	}
	return ""
}

// readInput reads a whole file, or stdin.
func (app *App) readInput(name string) ([]byte, error) {
	const longest = 64 // MiB
	file, _, err := app.openInput(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, longest<<20+1))
	if err == nil && len(data) > longest<<20 {
		return nil, usage("divide it", "%s: has more than %d MiB, the most that is read as a whole", name, longest)
	}
	return data, err
}

// openInput opens a file for reading, or stdin. size is 0 if it is unknown.
func (app *App) openInput(name string) (file io.ReadCloser, size int64, err error) {
	if name == "-" {
		return io.NopCloser(app.In), 0, nil
	}
	opened, err := os.Open(name)
	if err != nil {
		return nil, 0, usage("", "the file cannot be read: %v", err)
	}
	info, err := opened.Stat()
	if err == nil && info.IsDir() {
		err = usage("name a file of JSON Lines", "%s is a folder", quote(name))
	}
	if err != nil {
		opened.Close()
		return nil, 0, err
	}
	return opened, info.Size(), nil
}

// enqueuer returns a client that stores tasks, or, for a dry run, one that only checks them and records what it would
// store.
func (app *App) enqueuer(ctx context.Context, dryRun bool, tried *[]store.NewTask) (*tusk.Client, func(), error) {
	if !dryRun {
		return app.Client(ctx, creating)
	}
	client, err := tusk.NewClient(nothingStored{tried: tried},
		&tusk.ClientConfig{Logger: app.Log, Payloads: app.nothingKept()})
	return client, func() {}, err
}

type bulk struct {
	app      *App
	client   *tusk.Client
	progress *progress
	total    bulkRow

	tasks []tusk.NewTask
	lines []int // line numbers of tasks
	first int   // first line that was not stored yet
	bad   map[int]error
	tried bool // the batch was sent, but its answer is unknown
}

var errBadLines = errors.New("bad lines")

func (b *bulk) read(ctx context.Context, file io.Reader) error {
	b.bad, b.first = map[int]error{}, 1
	lines := bufio.NewScanner(file)
	lines.Buffer(make([]byte, 64<<10), longestLine)
	number := 0
	for lines.Scan() {
		number++
		text := lines.Bytes()
		b.progress.add(int64(len(text)+1), b.total.Tasks)
		if number == 1 {
			text = bytes.TrimPrefix(text, []byte("\xef\xbb\xbf"))
		}
		if len(bytes.TrimSpace(text)) == 0 {
			continue
		}
		if task, err := parseLine(text); err != nil {
			b.bad[number] = err
		} else {
			b.tasks, b.lines = append(b.tasks, task), append(b.lines, number)
			b.total.Tasks++
		}
		if len(b.tasks) == bulkBatch || len(b.bad) > 0 && !b.total.DryRun && number-b.first >= bulkBatch {
			if err := b.flush(ctx); err != nil {
				return err
			}
			b.first = number + 1
		}
	}
	if err := lines.Err(); errors.Is(err, bufio.ErrTooLong) {
		b.bad[number+1] = fmt.Errorf("is longer than %d MiB", longestLine>>20)
	} else if err != nil {
		return fmt.Errorf("read line %d: %w", number+1, err)
	}
	return b.flush(ctx)
}

// flush stores the batch, unless it has a bad line. A dry run continues to the end of the file.
func (b *bulk) flush(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if len(b.bad) > 0 && !b.total.DryRun {
		b.check(ctx)
		return errBadLines
	}
	b.tried = true
	results, err := b.client.EnqueueMany(ctx, b.tasks)
	if err != nil {
		if b.blame(err); len(b.bad) == 0 {
			return err
		} else if !b.total.DryRun {
			return errBadLines
		}
	}
	if !b.total.DryRun {
		b.count(results)
	}
	b.tasks, b.lines, b.tried = b.tasks[:0], b.lines[:0], false
	return nil
}

// check finds the other bad lines of a batch that will not be stored.
func (b *bulk) check(ctx context.Context) {
	checker, err := tusk.NewClient(nothingStored{}, nil)
	if err == nil {
		_, err = checker.EnqueueMany(ctx, b.tasks)
	}
	b.blame(err)
}

// blame finds the lines to which an error refers.
func (b *bulk) blame(err error) {
	if many := (*tusk.BatchError)(nil); errors.As(err, &many) {
		for i, err := range many.Items {
			b.bad[b.lines[i]] = err
		}
		b.total.Tasks -= len(many.Items)
		return
	}
	if one := (*tusk.InvalidError)(nil); errors.As(err, &one) && len(b.lines) == 1 {
		b.bad[b.lines[0]] = err
		b.total.Tasks--
	}
}

func (b *bulk) count(results []tusk.Enqueued) {
	for _, r := range results {
		switch r.Result {
		case tusk.Added:
			b.total.Added++
		case tusk.Skipped:
			b.total.Skipped++
		case tusk.Replaced:
			b.total.Replaced++
		case tusk.Awaiting:
			b.total.Awaiting++
		case tusk.Stale:
			b.total.Stale++
		}
	}
}

func (b *bulk) tellBad() {
	numbers := slices.Sorted(maps.Keys(b.bad))
	b.total.BadLines = len(numbers)
	for i, number := range numbers {
		if i == mostBad {
			fmt.Fprintf(b.app.Err, "and %d more\n", len(numbers)-mostBad)
			break
		}
		text := b.bad[number].Error()
		if one := (*tusk.InvalidError)(nil); errors.As(b.bad[number], &one) {
			text = inFile(one.Field) + ": " + one.Text
		}
		fmt.Fprintf(b.app.Err, "line %d: %s\n", number, b.app.clean(text))
	}
}

// conclude reports what was stored and what was not.
func (b *bulk) conclude(err error) error {
	stored := b.total.Added + b.total.Replaced + b.total.Awaiting
	switch {
	case err == nil && len(b.bad) > 0:
		return &Problem{Code: "invalid_lines", Exit: exitUsage, Text: count(len(b.bad), "bad line"),
			Hint: "nothing was stored: this was a dry run"}
	case err == nil && b.total.DryRun:
		b.app.note("checked %s and found nothing wrong; nothing was stored", count(b.total.Tasks, "task"))
		return nil
	case err == nil:
		b.app.note("stored %s", count(stored, "task"))
		return nil
	case errors.Is(err, errBadLines):
		return &Problem{Code: "invalid_lines", Exit: exitUsage,
			Text: fmt.Sprintf("stored %s; nothing from line %d on: %s", count(stored, "task"), b.first,
				count(len(b.bad), "bad line")),
			Hint: fmt.Sprintf("fix the file and continue with: tail -n +%d FILE | tusk enqueue --from -", b.first)}
	}
	p := *b.app.problem(err)
	p.Err = err
	if b.tried && !errors.Is(err, tusk.ErrNotCommitted) {
		p.Text = fmt.Sprintf("stored %s; it is not known whether lines %d to %d were: %v", count(stored, "task"), b.first,
			b.lines[len(b.lines)-1], err)
		p.Hint = "tasks with a key can be enqueued again safely"
		return &p
	}
	p.Text = fmt.Sprintf("stored %s; nothing from line %d on: %v", count(stored, "task"), b.first, err)
	return &p
}
