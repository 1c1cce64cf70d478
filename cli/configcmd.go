package cli

import (
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tuskqueue/tusk/internal/words"
)

func newConfigCommand(app *App) *cobra.Command {
	c := &cobra.Command{
		Use:   "config",
		Short: "Check and show the configuration",
		Long: `The value of a setting comes from its flag, else its variable, else tusk.yaml, else its
default. In the file, flags that apply to every command are top-level keys. Flags of one
command are keys under the command's name. A variable is named after the key: log_format
is TUSK_LOG_FORMAT, and the limit below is TUSK_TASKS_LIST_LIMIT.

    db: postgres://tusk:${DB_PASSWORD}@db.example.com/app
    log_format: json
    tasks:
      list:
        limit: 50`,
	}
	c.AddCommand(newConfigCheckCommand(app), newConfigShowCommand(app))
	return c
}

type problemRow struct {
	Problem string `json:"problem" col:"PROBLEM"`
}

func newConfigCheckCommand(app *App) *cobra.Command {
	return &cobra.Command{
		Use:   "check",
		Short: "Find all errors in the file and the environment",
		Args:  noArgs,
		RunE: func(*cobra.Command, []string) error {
			found := app.config.problems
			if _, err := parseDSN(app.flags.db); err != nil {
				found = append(found, app.config.source["db"]+": "+err.Error())
			}
			refused, strange := app.strangeVariables()
			for _, text := range strange {
				app.note("note: %s", text)
			}
			found = append(found, refused...)
			rows := make([]problemRow, len(found))
			for i, text := range found {
				rows[i].Problem = app.clean(text)
			}
			if err := list(app, rows, app.config.summary()); err != nil || len(rows) == 0 {
				return err
			}
			return &Problem{Code: "invalid_config", Exit: exitUsage, Text: count(len(found), "problem") +
				" in the configuration"}
		},
	}
}

func (c *config) summary() string {
	if c.path == "" {
		return "the configuration is fine; there is no tusk.yaml"
	}
	return "the configuration is fine: " + c.path
}

// strangeVariables finds variables that look like settings but are not. Some command refuses to run with those in
// refused. A variable without its command's name is not among them if one with it is set as well: older processes may
// need the first one.
func (app *App) strangeVariables() (refused, strange []string) {
	c := app.config
	known := c.variables()
	isSet := func(name string) bool { return app.env[name] != "" || app.env[name+"_FILE"] != "" }
	for _, name := range slices.Sorted(maps.Keys(app.env)) {
		setting := c.valueOf(name)
		full := c.withCommand(setting)
		switch {
		case app.env[name] == "" || !strings.HasPrefix(name, "TUSK_") || strings.HasPrefix(name, "TUSK_TASK_"):
		case slices.Contains(known, setting):
		case isServiceLink(app.env[name]):
		case len(full) > 0 && !slices.ContainsFunc(full, isSet):
			suffix := strings.TrimPrefix(name, setting)
			for i := range full {
				full[i] += suffix
			}
			refused = append(refused, name+" does not name its command: rename it to "+words.Either(full))
		default:
			strange = append(strange, words.Hinted(name+" is not a setting of Tusk", name, known))
		}
	}
	return refused, strange
}

// isServiceLink reports whether Kubernetes has set a variable, for a service that is called tusk.
func isServiceLink(value string) bool {
	return strings.HasPrefix(value, "tcp://") || strings.HasPrefix(value, "udp://")
}

type settingRow struct {
	Key    string `json:"key" col:"KEY"`
	Value  string `json:"value" col:"VALUE"`
	Source string `json:"source" col:"SOURCE"`
}

func newConfigShowCommand(app *App) *cobra.Command {
	return &cobra.Command{
		Use:   "show",
		Short: "Show every setting, its value and its source; passwords are hidden",
		Args:  noArgs,
		RunE: func(*cobra.Command, []string) error {
			if err := app.config.problem(); err != nil {
				return err
			}
			var rows []settingRow
			for _, key := range slices.Sorted(maps.Keys(app.config.flags)) {
				source := app.config.source[key]
				if source == sourceDefault && strings.Contains(key, ".") {
					continue // of other commands, show only what was set
				}
				rows = append(rows, settingRow{key, app.clean(shown(app.config.flags[key])), source})
			}
			return printList(app, rows)
		},
	}
}
