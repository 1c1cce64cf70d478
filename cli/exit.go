package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/store"
)

// The exit statuses.
const (
	exitOK          = 0
	exitError       = 1
	exitUsage       = 2 // usage, configuration, schema: run it differently
	exitNotFound    = 3
	exitConflict    = 4 // a state, a key or an operator refused
	exitUnavailable = 5 // try again later
	exitInterrupted = 130
)

// Problem is an error with everything that its line on stderr says:
//
//	error[code]: text (hint: …)
//
// A command returns one when the table of known errors would say too little.
type Problem struct {
	Code string // stable, snake_case
	Exit int
	Text string
	Hint string // what to do; may be empty
	Err  error  // what it was made from; may be nil
}

func (p *Problem) Error() string { return p.Text }

func (p *Problem) Unwrap() error { return p.Err }

// usage is the problem of a command that was called wrongly.
func usage(hint, format string, args ...any) *Problem {
	return &Problem{Code: "usage", Exit: exitUsage, Text: fmt.Sprintf(format, args...), Hint: hint}
}

// known says what the errors of the rooms below mean to a shell.
var known = []struct {
	err  error
	code string
	exit int
	hint string
}{
	{tusk.ErrNotFound, "not_found", exitNotFound, ""},
	{tusk.ErrRefused, "refused", exitConflict, "tusk tasks show ID says where the task is"},
	{store.ErrSchemaMissing, "schema_missing", exitUsage, "run tusk migrate up, or pass --auto-migrate"},
	{store.ErrSchemaOld, "schema_old", exitUsage, "run tusk migrate up, or pass --auto-migrate"},
	{store.ErrSchemaNew, "schema_new", exitUsage, "install the version of tusk that migrated it, or a newer one"},
	{store.ErrSchemaForeign, "schema_foreign", exitUsage, "use another database: Tusk leaves tables that are not its own alone"},
	{store.ErrReadOnly, "read_only", exitUnavailable, "check the permissions of the database, its file and its folder"},
	{store.ErrFull, "storage_full", exitUnavailable, "free some space: what was acknowledged before is safe"},
	{store.ErrUnavailable, "unavailable", exitUnavailable, "check that the database is up and that --db names it"},
	{store.ErrConflict, "conflict", exitConflict, "run the command again"},
	{store.ErrNotLeader, "conflict", exitConflict, "run the command again"},
	{store.ErrUnsupported, "unsupported", exitError, ""},
	{context.DeadlineExceeded, "timeout", exitUnavailable, "try again later"},
	{store.ErrNotCommitted, "not_stored", exitError, "nothing was stored: run the command again"},
}

// exit says on stderr what went wrong and returns the status.
func (app *App) exit(err error) int {
	if err == nil || errors.Is(err, syscall.EPIPE) { // whoever read us has seen enough
		return exitOK
	}
	if app.interrupts.Load() && errors.Is(err, context.Canceled) {
		p := &Problem{Code: "interrupted", Text: "interrupted", Exit: exitInterrupted}
		if given := (*Problem)(nil); errors.As(err, &given) {
			p.Text, p.Hint = given.Text, given.Hint
		}
		app.say(p)
		return exitInterrupted
	}
	p := app.problem(err)
	app.say(p)
	return p.Exit
}

// problem finds out what an error means.
func (app *App) problem(err error) *Problem {
	if p := (*Problem)(nil); errors.As(err, &p) {
		return p
	}
	p := &Problem{Code: "error", Exit: exitError, Text: err.Error(), Err: err}
	if bad := (*tusk.InvalidError)(nil); errors.As(err, &bad) {
		p.Code, p.Exit = bad.Code, exitUsage
		return p
	}
	for _, k := range known {
		if errors.Is(err, k.err) {
			p.Code, p.Exit, p.Hint = k.code, k.exit, k.hint
			return p
		}
	}
	if !app.ran { // what cobra itself says is about usage
		p.Code, p.Exit = "usage", exitUsage
	}
	if errors.Is(err, tusk.ErrInvalid) {
		p.Code, p.Exit = "invalid", exitUsage
	}
	return p
}

func (app *App) say(p *Problem) {
	line := fmt.Sprintf("error[%s]: %s", p.Code, app.clean(p.Text))
	if p.Hint != "" {
		line += " (hint: " + app.clean(p.Hint) + ")"
	}
	fmt.Fprintln(app.Err, line)
}

// clean makes text of any origin fit for a line on a terminal: no secrets, no
// escape sequences, no megabytes.
func (app *App) clean(text string) string {
	const longest = 1 << 10
	for _, secret := range app.secrets {
		text = strings.ReplaceAll(text, secret, "***")
	}
	text = printable(mask(text))
	if len(text) > longest {
		text = strings.ToValidUTF8(text[:longest], "") + "…"
	}
	return text
}
