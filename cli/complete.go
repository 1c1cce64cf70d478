package cli

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/server/alert"
	"github.com/tuskqueue/tusk/server/hook"
	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/ledgers"
)

// named lists the possible values of a flag or an argument.
type named func(ctx context.Context, c *tusk.Client) ([]string, error)

// completions are the flags whose values are in the database, and the arguments, by their name in a command's usage.
// They apply to all commands, or to the subcommands of one.
var completions = map[string]named{
	"--queue": queueNames, "QUEUE": queueNames,
	"--kind":        kindNames,
	"--fingerprint": fingerprints, "FINGERPRINT": fingerprints,
	"WORKER":         workerIDs,
	"schedules NAME": scheduleNames, "alerts NAME": alertNames, "hooks NAME": hookNames, "ledgers NUMBER": ledgerNumbers,
}

// completeNames adds completion of states and of names in the database.
func (app *App) completeNames(c *cobra.Command) {
	for name, list := range completions {
		flag, isFlag := strings.CutPrefix(name, "--")
		_, arguments, _ := strings.Cut(c.Use, " ")
		if of, argument, found := strings.Cut(name, " "); found && c.HasParent() && c.Parent().Name() == of {
			name = argument
		}
		switch {
		case isFlag && c.LocalFlags().Lookup(flag) != nil:
			_ = c.RegisterFlagCompletionFunc(flag, app.completer(list))
		case !isFlag && c.ValidArgsFunction == nil && strings.HasPrefix(arguments, name):
			c.ValidArgsFunction = app.completer(list)
		}
	}
	if c.LocalFlags().Lookup("state") != nil {
		var states []string
		for _, s := range store.States() {
			states = append(states, s.String())
		}
		_ = c.RegisterFlagCompletionFunc("state", cobra.FixedCompletions(states, cobra.ShellCompDirectiveNoFileComp))
	}
}

// completer completes names from the database that the configuration names. If the database cannot be reached, it
// completes nothing.
func (app *App) completer(list named) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, begun string) (found []string, _ cobra.ShellCompDirective) {
		app.config = app.loadConfig(cmd)
		app.flags.autoMigrate = false // the command does it, not the tab key
		_ = app.withClient(cmd.Context(), func(client *tusk.Client) error {
			names, err := list(cmd.Context(), client)
			for _, name := range names {
				if strings.HasPrefix(name, begun) {
					found = append(found, name)
				}
			}
			return err
		})
		return found, cobra.ShellCompDirectiveNoFileComp
	}
}

func queueNames(ctx context.Context, c *tusk.Client) ([]string, error) { return c.QueueNames(ctx) }

// kindNames returns the kinds of the newest tasks.
func kindNames(ctx context.Context, c *tusk.Client) ([]string, error) {
	tasks, err := c.List(ctx, tusk.Filter{Limit: store.MaxPage})
	kinds := map[string]bool{}
	for _, t := range tasks {
		kinds[t.Kind] = true
	}
	return sortedKeys(kinds), err
}

func workerIDs(ctx context.Context, c *tusk.Client) ([]string, error) {
	workers, err := c.Workers(ctx)
	return rowsOf(workers, func(w store.Worker) string { return w.ID.String() }), err
}

func fingerprints(ctx context.Context, c *tusk.Client) ([]string, error) {
	groups, err := c.Errors(ctx, store.ErrorFilter{Limit: 100})
	return rowsOf(groups, func(g store.ErrorGroup) string { return g.Fingerprint }), err
}

func scheduleNames(ctx context.Context, c *tusk.Client) ([]string, error) {
	schedules, err := c.Schedules(ctx)
	return rowsOf(schedules, func(s tusk.ScheduleInfo) string { return s.Name }), err
}

func alertNames(ctx context.Context, c *tusk.Client) ([]string, error) {
	all, err := alert.NewBook(c.Store(), c.KeyRing(), nil).List(ctx)
	return rowsOf(all, func(a alert.Alert) string { return a.Name }), err
}

func hookNames(ctx context.Context, c *tusk.Client) ([]string, error) {
	all, err := hook.NewBook(c.Store(), c.KeyRing(), nil).List(ctx)
	return rowsOf(all, func(h hook.Status) string { return h.Name }), err
}

func ledgerNumbers(ctx context.Context, c *tusk.Client) ([]string, error) {
	p, ok := store.As[placer](c.Store())
	if !ok {
		return nil, nil
	}
	all, err := p.Places(ctx)
	return slices.Compact(rowsOf(all, func(p ledgers.Place) string { return strconv.Itoa(p.No) })), err
}
