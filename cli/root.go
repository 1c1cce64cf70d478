package cli

import (
	"errors"
	"io"
	"log/slog"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/internal/words"
)

// globalFlags are the flags of every command.
type globalFlags struct {
	db, config, archive string
	json, quiet         bool
	noColor             bool
	logFormat, logLevel string
	autoMigrate         bool
	keyRing             []string
}

const (
	groupRun     = "run"
	groupTasks   = "tasks"
	groupOperate = "operate"
)

// commands lists all commands in the order of the help, by group.
var commands = []struct {
	group string
	build []func(*App) *cobra.Command
}{
	{groupRun, []func(*App) *cobra.Command{newDemoCommand, newDevCommand, newServeCommand, newWorkCommand, newBenchCommand,
		newDemoWorkerCommand}},
	{groupTasks, []func(*App) *cobra.Command{newEnqueueCommand, newTasksCommand, newErrorsCommand, newOperationsCommand,
		newSchedulesCommand, newWorkflowsCommand, newPipelinesCommand}},
	{groupOperate, []func(*App) *cobra.Command{
		newQueuesCommand, newArchiveCommand, newLimitsCommand, newTenantsCommand, newWorkersCommand, newStatsCommand,
		newTopCommand, newMigrateCommand, newDBCommand, newLedgersCommand,
		newDoctorCommand, newAlertsCommand, newHooksCommand, newTokensCommand, newUsersCommand, newSessionsCommand,
		newEndpointsCommand, newConfigCommand, newHealthCommand, newVersionCommand,
	}},
}

// Command returns the whole tree of commands, for programs that generate manual pages and completions.
func Command() *cobra.Command {
	return newRoot(&App{In: strings.NewReader(""), Out: io.Discard, Err: io.Discard})
}

func newRoot(app *App) *cobra.Command {
	root := &cobra.Command{
		Use:   "tusk",
		Short: "A task queue and scheduler in your own database",
		Long: `Tusk is a task queue and scheduler that lives in a database you already run.

Every flag can also be set by a variable (--log-level by TUSK_LOG_LEVEL, --queue of
tusk work by TUSK_WORK_QUEUE) or in tusk.yaml; see tusk config --help. Exit status: 0 success, 1 error, 2 wrong usage or
configuration, 3 not found, 4 refused, 5 unavailable, 130 interrupted.`,
		Version:       tusk.Version(),
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          noSuchCommand,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			return app.prepare(cmd)
		},
	}
	root.SetIn(app.In)
	root.SetOut(app.Out)
	root.SetErr(app.Err)
	root.SetFlagErrorFunc(flagProblem)
	// A command with subcommands, run without one, only prints help.
	root.SetUsageTemplate(strings.Replace(root.UsageTemplate(), "{{if .Runnable}}",
		"{{if and .Runnable (not .HasAvailableSubCommands)}}", 1))
	app.addGlobalFlags(root.PersistentFlags())
	root.AddGroup(&cobra.Group{ID: groupRun, Title: "Run:"}, &cobra.Group{ID: groupTasks, Title: "Tasks:"},
		&cobra.Group{ID: groupOperate, Title: "Operate:"})
	root.SetHelpCommandGroupID(groupOperate)
	root.SetCompletionCommandGroupID(groupOperate)
	for _, g := range commands {
		for _, build := range g.build {
			c := build(app)
			c.GroupID = g.group
			root.AddCommand(c)
		}
	}
	root.InitDefaultCompletionCmd()
	app.finishTree(root)
	root.InitDefaultHelpCmd()
	for _, c := range root.Commands() {
		if c.Name() == "help" {
			c.Args = helpTopic
		}
	}
	return root
}

func (app *App) addGlobalFlags(f *pflag.FlagSet) {
	f.SortFlags = false
	f.StringVar(&app.flags.db, "db", "sqlite:tusk.db", "database `URL`; also TUSK_DATABASE_URL, DATABASE_URL")
	f.StringVar(&app.flags.archive, "archive", "",
		"`URL` of the archive of finished tasks, and of large args: file:///folder, s3://bucket?region=eu-west-1, "+
			"gs://bucket, or azblob://container")
	f.StringVar(&app.flags.config, "config", "",
		"configuration `file`; default: tusk.yaml here, in ~/.config/tusk or in /etc/tusk")
	f.StringSliceVar(&app.flags.keyRing, "key-ring", nil,
		"`NAME=KEY` that encrypts args and secrets: 32 bytes in base64; the first encrypts, all decrypt; better: "+
			"TUSK_KEY_RING_FILE")
	markSecret(f, "key-ring")
	f.BoolVar(&app.flags.json, "json", false, "print JSON: one object, or one per line")
	f.BoolVarP(&app.flags.quiet, "quiet", "q", false, "print only ids or names")
	f.BoolVar(&app.flags.noColor, "no-color", false, "no colors; also NO_COLOR")
	app.flags.logFormat, app.flags.logLevel = "text", "info"
	f.Var(oneOf(&app.flags.logFormat, "text", "json"), "log-format", "format of the log on stderr: text or json")
	f.Var(oneOf(&app.flags.logLevel, "debug", "info", "warn", "error"), "log-level",
		"what to log: debug, info, warn or error")
	f.BoolVar(&app.flags.autoMigrate, "auto-migrate", false, "create or upgrade the database's schema first")
}

// finishTree makes every command of the tree behave the same.
func (app *App) finishTree(c *cobra.Command) {
	c.Flags().SortFlags = false
	c.DisableFlagsInUseLine = true
	if c.HasSubCommands() && !c.HasParent() {
		c.DisableSuggestions = true
	}
	if c.HasSubCommands() && c.Args == nil {
		c.Args = noSuchCommand
	}
	if c.HasSubCommands() && c.RunE == nil {
		c.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	}
	if run := c.RunE; run != nil {
		c.RunE = func(cmd *cobra.Command, args []string) error {
			app.ran = true
			return run(cmd, args)
		}
	}
	complete := func(f *pflag.Flag) {
		if words, ok := f.Value.(*choice); ok {
			_ = c.RegisterFlagCompletionFunc(f.Name, cobra.FixedCompletions(words.words, cobra.ShellCompDirectiveNoFileComp))
		}
	}
	c.LocalFlags().VisitAll(complete)
	app.completeNames(c)
	for _, sub := range c.Commands() {
		app.finishTree(sub)
	}
}

// prepare reads the configuration and sets up the log, before any command's own code.
func (app *App) prepare(cmd *cobra.Command) error {
	if cmd.Name() == "help" || strings.HasPrefix(cmd.Name(), "__complete") || cmd.HasParent() &&
		cmd.Parent().Name() == "completion" {
		return nil
	}
	app.command = cmd
	if err := emptyFlag(cmd); err != nil {
		return err
	}
	app.config = app.loadConfig(cmd)
	app.secrets = append(app.secrets, dsnSecrets(app.flags.db)...)
	level := new(slog.LevelVar)
	if err := level.UnmarshalText([]byte(app.flags.logLevel)); err != nil {
		return err
	}
	options := &slog.HandlerOptions{Level: level}
	if app.flags.logFormat == "json" {
		app.Log = slog.New(slog.NewJSONHandler(app.Err, options))
	} else {
		app.Log = slog.New(slog.NewTextHandler(app.Err, options))
	}
	if cmd.Name() == "version" || cmd.HasParent() && cmd.Parent().Name() == "config" {
		return nil // config check reports problems itself, and version always works
	}
	return app.config.problem()
}

// noSuchCommand is the Args of a command that has only subcommands.
func noSuchCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	var names []string
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			names = append(names, c.Name())
		}
	}
	hint := words.DidYouMean(args[0], names)
	if hint == "" {
		hint = "run " + cmd.CommandPath() + " --help"
	}
	return usage(hint, "%s has no command %q", cmd.CommandPath(), args[0])
}

// helpTopic is the Args of help, which cobra accepts unchecked.
func helpTopic(cmd *cobra.Command, args []string) error {
	parent, rest, err := cmd.Root().Find(args)
	if err != nil {
		return err
	}
	if len(rest) > 0 {
		return noSuchCommand(parent, rest)
	}
	return nil
}

// flagProblem says what is wrong with a flag, and which one may have been meant.
func flagProblem(cmd *cobra.Command, err error) error {
	hint := "run " + cmd.CommandPath() + " --help"
	text := err.Error()
	if unknown := (*pflag.NotExistError)(nil); errors.As(err, &unknown) {
		var names []string
		cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
		if found := words.Nearest(unknown.GetSpecifiedName(), names); found != "" {
			hint = "did you mean --" + found + "?"
		}
	}
	if bad := (*pflag.InvalidValueError)(nil); errors.As(err, &bad) {
		text = "--" + bad.GetFlag().Name + " " + quote(bad.GetValue()) + ": " + valueProblem(bad.Unwrap())
	}
	return usage(hint, "%s", text)
}

// valueProblem says what a flag's value should have been, including flags of types that are not ours.
func valueProblem(err error) string {
	number := (*strconv.NumError)(nil)
	switch {
	case errors.As(err, &number) && number.Func == "ParseBool":
		return "want true or false"
	case errors.As(err, &number) && errors.Is(err, strconv.ErrRange):
		return "is out of range"
	case errors.As(err, &number):
		return "want a number"
	case strings.HasSuffix(err.Error(), "must be formatted as key=value"):
		return "want NAME=VALUE, and a comma between two of them"
	}
	return strings.TrimPrefix(err.Error(), "time: ")
}

// between is the Args of a command that takes from low to high arguments. names are for its error message.
func between(low, high int, names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		hint := "usage: " + cmd.UseLine()
		if len(args) < low {
			return usage(hint, "%s: %s is missing", cmd.CommandPath(), strings.Join(names[len(args):low], " and "))
		}
		if high >= 0 && len(args) > high {
			return usage(hint, "%s: unexpected argument %s", cmd.CommandPath(), quote(args[high]))
		}
		return nil
	}
}

// noArgs is the Args of a command that takes none.
var noArgs = between(0, 0)

// quote quotes a piece of input, shortened.
func quote(text string) string {
	const longest = 64
	if len(text) > longest {
		text = strings.ToValidUTF8(text[:longest], "") + "…"
	}
	return `"` + printable(text) + `"`
}

// choice is a flag whose value is one of several words.
type choice struct {
	value *string
	words []string
}

func oneOf(value *string, words ...string) *choice { return &choice{value, words} }

func (c *choice) String() string { return *c.value }
func (c *choice) Type() string   { return strings.Join(c.words, "|") }

func (c *choice) Set(text string) error {
	if !slices.Contains(c.words, text) {
		return errors.New(words.Hinted("want "+words.Either(c.words), text, c.words))
	}
	*c.value = text
	return nil
}
