package cli

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/ledgers"
)

func newLedgersCommand(app *App) *cobra.Command {
	c := &cobra.Command{
		Use:   "ledgers",
		Short: "Show and move the ledgers of a queue on several servers",
		Long: `Show and move the ledgers of a queue on several PostgreSQL servers. A ledger is a schema. To
add ledgers at any time, also to a queue that is in one plain database so far, run tusk
migrate up --ledgers N.`,
	}
	c.AddCommand(newLedgersListCommand(app), newLedgersMoveCommand(app), newLedgersFenceCommand(app),
		newLedgersOpenCommand(app), newLedgersDropCommand(app), newLedgersGiveUpCommand(app))
	return c
}

// placer is an engine whose ledgers are on several servers.
type placer interface {
	Places(ctx context.Context) ([]ledgers.Place, error)
	Move(ctx context.Context, to string, numbers ...int) (ledgers.Moved, error)
	Fence(ctx context.Context, numbers ...int) error
	Open(ctx context.Context, server string, numbers ...int) error
	OnStep(do func(step string))
	DropCopies(ctx context.Context, dry bool) ([]ledgers.Place, error)
	GiveUp(ctx context.Context, dry bool, on string, numbers ...int) ([]ledgers.Loss, error)
}

// withLedgers calls do with a queue of many ledgers.
func (app *App) withLedgers(ctx context.Context, do func(p placer) error) error {
	_, s, closeStore, err := app.open(ctx, existing) // works even if some of them are unavailable
	if err != nil {
		return err
	}
	defer closeStore()
	p, ok := store.As[placer](s)
	if !ok {
		return usage("name its servers: --db \"ledgers: postgres://host1/database postgres://host2/database\"",
			"the database is not one of many ledgers")
	}
	return do(p)
}

// placeRow is a ledger or a copy of one.
type placeRow struct {
	No     int    `json:"no" col:"NO"`
	Schema string `json:"schema" col:"SCHEMA"`
	Server string `json:"server" col:"SERVER"`
	State  string `json:"state" col:"STATE"`
	Epoch  int64  `json:"epoch" col:"EPOCH"`
	Tasks  int64  `json:"tasks" col:"TASKS"`
	Bytes  int64  `json:"bytes" col:"BYTES"`
	Why    string `json:"why" col:"PROBLEM"`
}

func rowOfPlace(p ledgers.Place) placeRow {
	return placeRow{No: p.No, Schema: p.Schema, Server: p.Server, State: p.State, Epoch: p.Epoch, Tasks: p.Tasks,
		Bytes: p.Bytes, Why: p.Why}
}

func newLedgersListCommand(app *App) *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the ledgers: where each is, unfinished tasks, size",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return app.withLedgers(cmd.Context(), func(p placer) error {
				all, err := p.Places(cmd.Context())
				if err != nil {
					return err
				}
				return list(app, rowsOf(all, rowOfPlace), "there are no ledgers")
			})
		},
	}
}

// movedRow is the result of a move.
type movedRow struct {
	Ledgers string  `json:"ledgers" col:"LEDGERS"`
	To      string  `json:"to" col:"TO"`
	How     string  `json:"how" col:"HOW"`
	Stood   seconds `json:"stood_still_seconds" col:"STOOD_STILL"`
}

func newLedgersMoveCommand(app *App) *cobra.Command {
	var to string
	var agreed consent
	c := &cobra.Command{
		Use:   "move NUMBER...",
		Short: "Move ledgers to another server of the URL, during operation",
		Long: `Move ledgers to another server of the URL. If that is a standby of the server that has the
ledgers, it is cut off from that server and promoted: nothing is copied, and the ledgers stop
for a second or two, whatever their size. To any other server, each ledger is copied by
pg_dump and psql, which must be installed here; the ledger stops in the meantime. Leases stay
valid. Meanwhile, plain tasks are stored in other ledgers, and tasks with keys of a stopped
ledger are refused. If a move is cut off, the same command continues it.`,
		Example: `  tusk ledgers move 2 3 --to db3
  tusk ledgers move 5 --to db2:5433 --yes`,
		Args: someNumbers,
		RunE: func(cmd *cobra.Command, args []string) error {
			numbers, err := numbersOf(args)
			if err != nil {
				return err
			}
			if to == "" {
				return usage("such as --to db3", "move ledgers where?")
			}
			return app.withLedgers(cmd.Context(), func(p placer) error {
				what := fmt.Sprintf("move %s %s to %s", countedLedgers(args), strings.Join(args, ", "), to)
				if err := app.confirm(&agreed, what); err != nil {
					return err
				}
				step, end := newProgress(app, 0).steps()
				p.OnStep(step)
				m, err := p.Move(cmd.Context(), to, numbers...)
				end()
				if err != nil {
					return err
				}
				if m.Note != "" {
					app.note("%s", m.Note)
				}
				return printOne(app, movedRow{Ledgers: strings.Join(args, " "), To: m.To, How: m.How,
					Stood: seconds(m.Stood.Round(time.Millisecond))})
			})
		},
	}
	c.Flags().StringVar(&to, "to", "", "the server: its host, or host and port")
	c.Flags().BoolVar(&agreed.yes, "yes", false, "do not ask for confirmation; required without a terminal")
	agreed.hint = "pass --yes"
	return c
}

func countedLedgers(args []string) string {
	if len(args) == 1 {
		return "ledger"
	}
	return "ledgers"
}

func newLedgersFenceCommand(app *App) *cobra.Command {
	return &cobra.Command{
		Use:   "fence NUMBER...",
		Short: "Make ledgers unusable until they are opened, here or elsewhere",
		Long: `Make ledgers unusable until tusk ledgers open: the first half of a manual move. When the
command returns, nobody writes to them any more. It waits for open transactions. If they use a
ledger for 30 s, it fails and names them, and all ledgers stay open.`,
		Example: `  tusk ledgers fence 2 3`,
		Args:    someNumbers,
		RunE: func(cmd *cobra.Command, args []string) error {
			numbers, err := numbersOf(args)
			if err != nil {
				return err
			}
			return app.withLedgers(cmd.Context(), func(p placer) error {
				step, end := newProgress(app, 0).steps()
				p.OnStep(step)
				defer end()
				return p.Fence(cmd.Context(), numbers...)
			})
		},
	}
}

func newLedgersOpenCommand(app *App) *cobra.Command {
	var on string
	c := &cobra.Command{
		Use:   "open NUMBER...",
		Short: "Make fenced ledgers usable where they are now",
		Long: `Make fenced ledgers usable: the second half of a manual move. All servers of the URL must
answer. The command refuses while the ledger is open elsewhere, and if the server's
transactions are behind those of the ledger.`,
		Example: `  tusk ledgers open 2 3 --on db3`,
		Args:    someNumbers,
		RunE: func(cmd *cobra.Command, args []string) error {
			numbers, err := numbersOf(args)
			if err != nil {
				return err
			}
			return app.withLedgers(cmd.Context(), func(p placer) error { return p.Open(cmd.Context(), on, numbers...) })
		},
	}
	c.Flags().StringVar(&on, "on", "", "the server: its host, or host and port; needed if several have the ledger fenced")
	return c
}

func newLedgersDropCommand(app *App) *cobra.Command {
	var agreed consent
	c := &cobra.Command{
		Use:   "drop-copies",
		Short: "Drop what moves have left behind",
		Long: `Drop the schemas of ledgers that are now open on another server: those that were fenced there,
and those of a promoted standby whose ledgers did not move. All servers must answer.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx := cmd.Context()
			return app.withLedgers(ctx, func(p placer) error {
				found, err := p.DropCopies(ctx, true)
				if err != nil {
					return err
				}
				if len(found) > 0 && !agreed.dryRun {
					if err := app.confirm(&agreed, fmt.Sprintf("drop %s", count(len(found), "schema"))); err != nil {
						return err
					}
					if found, err = p.DropCopies(ctx, false); err != nil {
						return err
					}
				}
				return list(app, rowsOf(found, rowOfPlace), "there are no copies")
			})
		},
	}
	agreed.addTo(c)
	return c
}

// lossRow is a ledger that is given up.
type lossRow struct {
	No      int    `json:"no" col:"NO"`
	Schema  string `json:"schema" col:"SCHEMA"`
	Server  string `json:"server" col:"SERVER"`
	Missing int    `json:"missing" col:"MISSING"`
	Letters int    `json:"letters" col:"LETTERS"`
	DryRun  bool   `json:"dry_run" col:"DRY_RUN"`
}

func newLedgersGiveUpCommand(app *App) *cobra.Command {
	var on string
	var agreed consent
	c := &cobra.Command{
		Use:   "give-up NUMBER...",
		Short: "Replace ledgers whose server is lost for good by empty ones",
		Long: `Replace ledgers whose server is lost for good, with all its standbys and backups, by empty ones
on another server. All tasks of these ledgers are lost. First take the lost server out of the
URL: the others must answer. If the server comes back, its ledgers are old copies. If the
command is cut off, run it again: it continues, or says which ledgers to leave out.`,
		Example: `  tusk ledgers give-up 2 3 --dry-run
  tusk ledgers give-up 2 3 --on db3 --yes`,
		Args: someNumbers,
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			numbers, err := numbersOf(args)
			if err != nil {
				return err
			}
			return app.withLedgers(ctx, func(p placer) error {
				lost, err := p.GiveUp(ctx, true, on, numbers...)
				if err == nil && !agreed.dryRun {
					if err = app.confirm(&agreed, lossText(args, lost)); err == nil {
						lost, err = p.GiveUp(ctx, false, on, numbers...)
					}
				}
				if err != nil {
					return err
				}
				return list(app, rowsOf(lost, func(l ledgers.Loss) lossRow {
					return lossRow{l.No, l.Schema, l.Server, l.Missing, l.Letters, agreed.dryRun}
				}), "no ledger is given up")
			})
		},
	}
	c.Flags().StringVar(&on, "on", "", "the server: its host, or host and port; default: the one with the fewest ledgers")
	agreed.addTo(c)
	return c
}

// lossText says what an operator agrees to lose.
func lossText(args []string, lost []ledgers.Loss) string {
	text := fmt.Sprintf("give up %s %s and lose all tasks there, with their keys, results and history",
		countedLedgers(args), strings.Join(args, ", "))
	for _, l := range lost {
		if l.No == 0 {
			text += ", and all schedules, settings, limits, alerts, hooks, tokens and users"
		}
	}
	if n := lost[0].Missing; n > 0 { // the same for all
		text += fmt.Sprintf("; %s that others need will count as deleted", count(n, "task"))
	}
	return text
}

func someNumbers(_ *cobra.Command, args []string) error {
	if len(args) == 0 {
		return usage("such as: 2 3; see tusk ledgers list", "which ledgers?")
	}
	return nil
}

func numbersOf(args []string) (numbers []int, err error) {
	for _, text := range args {
		n, err := strconv.Atoi(text)
		if err != nil || n < 0 {
			return nil, usage("ledgers have numbers: see tusk ledgers list", "%q is no number of a ledger", text)
		}
		if !slices.Contains(numbers, n) {
			numbers = append(numbers, n)
		}
	}
	return numbers, nil
}
