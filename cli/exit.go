package cli

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"unicode"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/server/alert"
	"github.com/tuskqueue/tusk/server/hook"
	"github.com/tuskqueue/tusk/server/notify"
	"github.com/tuskqueue/tusk/server/push"
	"github.com/tuskqueue/tusk/server/query"
	"github.com/tuskqueue/tusk/store"
)

// Exit statuses.
const (
	exitOK          = 0
	exitError       = 1
	exitUsage       = 2 // usage, configuration, schema: run it differently
	exitNotFound    = 3
	exitConflict    = 4 // refused because of a state, a key or an operator
	exitUnavailable = 5 // try again later
	exitFailed      = 6 // a task that the command waited for was cancelled or discarded
	exitInterrupted = 130

	// Exit statuses of tusk doctor, as monitoring systems expect them.
	exitWarn     = 1
	exitCritical = 2
)

// Problem is an error with everything that its line on stderr contains:
//
//	error[code]: text (hint: …)
//
// A command returns one if the table of known errors would say too little.
type Problem struct {
	Code string // stable, snake_case
	Exit int
	Text string
	Hint string // what to do; may be empty
	Err  error  // the underlying error; may be nil
}

func (p *Problem) Error() string { return p.Text }

func (p *Problem) Unwrap() error { return p.Err }

// usage returns the problem of a command that was used wrongly.
func usage(hint, format string, args ...any) *Problem {
	return &Problem{Code: "usage", Exit: exitUsage, Text: fmt.Sprintf(format, args...), Hint: hint}
}

// known maps errors of the packages below to codes, exit statuses and hints.
var known = []struct {
	err  error
	code string
	exit int
	hint string
}{
	{tusk.ErrNotFound, "not_found", exitNotFound, ""},
	{tusk.ErrRefused, "refused", exitConflict, "tusk tasks show ID says where the task is"},
	{alert.ErrNotFound, "not_found", exitNotFound, ""},
	{hook.ErrNotFound, "not_found", exitNotFound, ""},
	{push.ErrNotFound, "not_found", exitNotFound, ""},
	{notify.ErrTarget, "target_not_allowed", exitUsage, "use https, or --allow-host"},
	{push.ErrTarget, "target_not_allowed", exitUsage, "use https, or --allow-host"},
	{notify.ErrSealed, "secret_sealed", exitUsage, ""},
	{alert.ErrInvalid, "usage", exitUsage, ""},
	{hook.ErrInvalid, "usage", exitUsage, ""},
	{push.ErrInvalid, "usage", exitUsage, ""},
	{notify.ErrInvalid, "usage", exitUsage, ""},
	{store.ErrMoved, "database_moved", exitUsage, "first look with tusk db rebase --dry-run"},
	{store.ErrSchemaMissing, "schema_missing", exitUsage, "--auto-migrate does it on the way"},
	{store.ErrSchemaOld, "schema_old", exitUsage, "--auto-migrate does it on the way"},
	{store.ErrSchemaNew, "schema_new", exitUsage, "install the version of tusk that migrated it, or a newer one"},
	{store.ErrSchemaForeign, "schema_foreign", exitUsage,
		"use another database: Tusk leaves tables that are not its own alone"},
	{store.ErrReadOnly, "read_only", exitUnavailable, "check the permissions of the database, its file and its folder"},
	{store.ErrFull, "storage_full", exitUnavailable, "free some space: what was acknowledged before is safe"},
	{store.ErrUnavailable, "unavailable", exitUnavailable, "check that the database is up and that --db names it"},
	{store.ErrConflict, "conflict", exitConflict, "run the command again"},
	{store.ErrNotLeader, "conflict", exitConflict, "run the command again"},
	{store.ErrUnsupported, "unsupported", exitError, ""},
	{tusk.ErrTooManyHung, "too_many_hung", exitError, "the log has their stacks; let a supervisor restart the worker"},
	{context.DeadlineExceeded, "timeout", exitUnavailable, "try again later"},
	{store.ErrNotCommitted, "not_stored", exitError, "nothing was stored: run the command again"},
}

// said are messages of servers for which no engine has an error.
var said = []struct {
	text       *regexp.Regexp
	code, hint string
}{
	{regexp.MustCompile("SQLSTATE 28P01"), "wrong_password", "check the user and the password in the database URL"},
	{regexp.MustCompile("SQLSTATE 28000"), "login_refused",
		"check the user in the database URL; where the server wants TLS, add sslmode=require"},
	{regexp.MustCompile("SQLSTATE 3D000"), "database_missing", "create it, or name another in the database URL"},
	{regexp.MustCompile("tusk migrate up --ledgers"), "schema_missing", ""},
	{regexp.MustCompile("^move: .*SQLSTATE 42501"), "no_privilege",
		"name a superuser in the database URL: only the owner moves ledgers, and only a superuser promotes a standby"},
	{regexp.MustCompile("SQLSTATE 42501"), "no_privilege",
		"log in as a user who may, such as the owner of the schema or tusk_work; tusk db roles grants the rights"},
	{regexp.MustCompile("unrecognized configuration parameter|cannot parse `postgres|Error 1193 "), "invalid_dsn",
		"check the parameters of the database URL"},
	{regexp.MustCompile("SQLSTATE (42P05|26000)"), "invalid_dsn",
		"a pooler is in between: add default_query_exec_mode=cache_describe to the database URL"},
	{regexp.MustCompile("Error 1045 "), "wrong_password", "check the user and the password in the database URL"},
	{regexp.MustCompile("Error 1049 "), "database_missing", "create it, or name another in the database URL"},
	{regexp.MustCompile("Error 1044 "), "no_privilege", "grant the user all privileges on the database"},
	{regexp.MustCompile("Error 1142 "), "no_privilege", "grant the user all privileges on the database"},
	{regexp.MustCompile("TLS requested but server does not support TLS"), "no_tls",
		"the server has no TLS: where that is fine, leave tls out of the database URL"},
	// If TLS is not required, a login without it follows, and only its error counts.
	{regexp.MustCompile(`server refused TLS connection\s*$`), "no_tls",
		"the server has no TLS: where that is fine, add sslmode=disable"},
}

// exit prints the error on stderr and returns the exit status.
func (app *App) exit(err error) int {
	if err = besidesOutput(err); err == nil {
		return exitOK
	}
	if app.interrupts.Load() && errors.Is(err, context.Canceled) {
		p := &Problem{Code: "interrupted", Text: "interrupted", Exit: exitInterrupted}
		if given := (*Problem)(nil); errors.As(err, &given) {
			p.Text, p.Hint = strings.ReplaceAll(given.Text, context.Canceled.Error(), "interrupted"), given.Hint
		}
		app.say(p)
		return exitInterrupted
	}
	p := app.problem(err)
	app.say(p)
	return p.Exit
}

// besidesOutput returns what else went wrong if stdout was closed. A reader that has read enough, such as head, is not
// an error.
func besidesOutput(err error) error {
	if !errors.Is(err, errOutputClosed) {
		return err
	}
	if many, ok := err.(interface{ Unwrap() []error }); ok {
		var rest []error
		for _, one := range many.Unwrap() {
			rest = append(rest, besidesOutput(one))
		}
		return errors.Join(rest...)
	}
	if besidesOutput(errors.Unwrap(err)) == nil {
		return nil
	}
	return err
}

// problem turns an error into a problem.
func (app *App) problem(err error) *Problem {
	if p := (*Problem)(nil); errors.As(err, &p) {
		return p
	}
	p := &Problem{Code: "error", Exit: exitError, Text: err.Error(), Err: err}
	if bad := (*tusk.InvalidError)(nil); errors.As(err, &bad) {
		p.Code, p.Exit = bad.Code, exitUsage
		p.Text = strings.Replace(p.Text, bad.Error(), app.given(bad.Field)+": "+bad.Text, 1)
		if bad.Code == "args_too_large" && app.flags.archive == "" {
			p.Hint = "--archive URL names a place for larger args, which --args-file FILE reads"
		}
		return p
	}
	if errors.As(err, new(*query.AmbiguousError)) {
		p.Code, p.Exit, p.Hint = "ambiguous_id", exitUsage, "use a longer part"
		return p
	}
	if errors.As(err, new(*tusk.QueueInUseError)) {
		p.Code, p.Exit = "queue_in_use", exitConflict
		return p
	}
	for _, s := range said {
		if s.text.MatchString(p.Text) {
			p.Code, p.Exit, p.Hint = s.code, exitUsage, s.hint
			return p
		}
	}
	for _, k := range known {
		if errors.Is(err, k.err) {
			p.Code, p.Exit, p.Hint = k.code, k.exit, k.hint
			return p
		}
	}
	if !app.ran { // cobra's own errors are about usage
		p.Code, p.Exit, p.Text = "usage", exitUsage, plainText(p.Text)
	}
	if errors.Is(err, tusk.ErrInvalid) {
		p.Code, p.Exit = "invalid", exitUsage
	}
	return p
}

// also maps flags to the name that their field has in some commands.
var also = map[string]string{"run-at": "at", "delay": "in", "queue": "to", "tenants": "tenant"}

var fieldFlags = strings.NewReplacer("- ", "-", "Retention.", "keep-")

var camel = regexp.MustCompile(`([a-z])([A-Z ])`)

// given converts a field name from the library to that of the command line: the flag that set it, or else the field
// of a file. All fields of a worker's configuration are flags.
func (app *App) given(field string) string {
	head, rest, _ := strings.Cut(field, ": ")
	name := strings.ToLower(fieldFlags.Replace(camel.ReplaceAllString(head, "$1-$2")))
	var flags []string
	for _, flag := range []string{name, also[name]} {
		if app.command != nil && flag != "" && (app.command.Flags().Changed(flag) ||
			unicode.IsUpper(rune(head[0])) && app.command.Flags().Lookup(flag) != nil) {
			flags = append(flags, "--"+flag)
		}
	}
	if len(flags) != 1 {
		return inFile(field)
	}
	if rest != "" {
		return flags[0] + ": " + rest
	}
	return flags[0]
}

// inFile converts a field name from the library to that used in files.
func inFile(field string) string {
	return strings.ReplaceAll(strings.ReplaceAll(field, ": ", "."), " ", "_")
}

var flagGroup = regexp.MustCompile(`^(if any flags in the group|at least one of the flags in the group) \[([^\]]+)\]`)

// plainText rewords cobra's messages.
func plainText(text string) string {
	if m := flagGroup.FindStringSubmatch(text); m != nil {
		names := "--" + strings.ReplaceAll(m[2], " ", " or --")
		if strings.HasPrefix(m[1], "at least") {
			return names + " is missing"
		}
		return "only one can be given: " + names
	}
	if rest, ok := strings.CutPrefix(text, "required flag(s) "); ok {
		return "--" + strings.ReplaceAll(strings.TrimSuffix(rest, " not set"), `"`, "") + " is missing"
	}
	return text
}

func (app *App) say(p *Problem) {
	line := fmt.Sprintf("error[%s]: %s", p.Code, app.clean(p.Text))
	if p.Hint != "" {
		line += " (hint: " + app.clean(p.Hint) + ")"
	}
	fmt.Fprintln(app.Err, line)
}

// joined puts joined errors on one line. What they list comes after a tab.
var joined = strings.NewReplacer("\n\t", " ", "\n", "; ")

// clean makes any text safe for a line on a terminal: no secrets, no escape sequences, no megabytes.
func (app *App) clean(text string) string {
	const longest = 1 << 10
	for _, secret := range app.secrets {
		text = strings.ReplaceAll(text, secret, "***")
	}
	text = printable(joined.Replace(mask(text)))
	if len(text) > longest {
		text = strings.ToValidUTF8(text[:longest], "") + "…"
	}
	return text
}
