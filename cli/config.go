package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/tuskqueue/tusk/internal/words"
)

// config says where each setting came from, and what was wrong with it.
type config struct {
	path     string            // of the file; empty if there is none
	source   map[string]string // by key: where the value came from
	flags    map[string]*pflag.Flag
	problems []string
}

// A setting comes from the flag, a variable, the file, or the default, in this order.
const (
	sourceFlag    = "flag"
	sourceDefault = "default"
)

// loadConfig sets every flag that the command line does not set from the environment or the file, and finds all
// problems in both. It checks values from the file for all commands. It checks variables only for the command that
// runs, or for all commands if that is config.
func (app *App) loadConfig(cmd *cobra.Command) *config {
	c := &config{source: map[string]string{}, flags: map[string]*pflag.Flag{}}
	collectFlags(cmd.Root(), "", c.flags)
	variables := app.variables(c)
	c.path = app.configPath(variables, c)
	values, lines := c.readFile(app.env)
	all := cmd.HasParent() && cmd.Parent().Name() == "config"
	known := c.variables()
	for _, key := range slices.Sorted(maps.Keys(c.flags)) {
		f := c.flags[key]
		running := !strings.Contains(key, ".") || cmd.Flags().Lookup(f.Name) == f
		name, short := variableOf(key, variables), variableName(f.Name)
		if _, set := variables[short]; name == "" && set && running && !slices.Contains(known, short) {
			name = short // it lacks the command's name
		}
		switch value, inFile := values[key]; {
		case f.Changed:
			c.source[key] = sourceFlag
		case name != "" && perCall(f) && (running || all):
			c.problems = append(c.problems, fmt.Sprintf("%s: --%s is only a flag: unset the variable", name, f.Name))
		case name == short && strings.Contains(key, "."):
			c.problems = append(c.problems, fmt.Sprintf("%s: the variable for --%s of %s is %s: rename it", name, f.Name,
				cmd.CommandPath(), variableName(key)))
		case running && ruledOut(cmd, f):
			c.source[key] = sourceDefault
		case name != "" && (running || all):
			c.source[key] = name
			c.set(f, variables[name], name)
		case inFile:
			c.source[key] = lines[key]
			c.set(f, value, lines[key]+": "+key)
		default:
			c.source[key] = sourceDefault
		}
	}
	c.checkSecrets()
	slices.SortStableFunc(c.problems, func(a, b string) int { return lineOf(a) - lineOf(b) })
	return c
}

// ruledOut reports whether the command line has a flag that cannot be combined with f. What the command line says
// takes precedence over a variable or the file.
func ruledOut(cmd *cobra.Command, f *pflag.Flag) (is bool) {
	const groups = "cobra_annotation_mutually_exclusive" // as MarkFlagsMutuallyExclusive names it
	cmd.Flags().Visit(func(given *pflag.Flag) {
		is = is || slices.ContainsFunc(f.Annotations[groups], func(group string) bool {
			return slices.Contains(given.Annotations[groups], group)
		})
	})
	return is
}

// perCall reports whether a flag says what a single call may do. A variable or a file would say it for all calls.
func perCall(f *pflag.Flag) bool { return f.Name == "yes" || f.Name == "all" }

// collectFlags finds the settings. Flags of all commands are listed by name, flags of one command under the command's
// name.
func collectFlags(cmd *cobra.Command, prefix string, into map[string]*pflag.Flag) {
	add := func(f *pflag.Flag) {
		if f.Name != "help" && f.Name != "config" {
			into[strings.ReplaceAll(prefix+f.Name, "-", "_")] = f
		}
	}
	if cmd.HasParent() {
		cmd.LocalNonPersistentFlags().VisitAll(add)
	} else {
		cmd.PersistentFlags().VisitAll(add)
	}
	for _, sub := range cmd.Commands() {
		if sub.Name() != "help" && sub.Name() != "completion" {
			collectFlags(sub, prefix+sub.Name()+".", into)
		}
	}
}

// variables reads the environment. NAME_FILE names a file that contains NAME's value, unless only NAME_FILE is a flag's
// variable.
func (app *App) variables(c *config) map[string]string {
	set := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(app.env)) {
		value := app.env[name]
		if !strings.HasPrefix(name, "TUSK_") && name != "DATABASE_URL" || value == "" {
			continue
		}
		real := c.valueOf(name)
		if real == name {
			set[name] = value
			continue
		}
		if app.env[real] != "" {
			c.problems = append(c.problems, fmt.Sprintf("%s and %s are both set: unset one", real, name))
			continue
		}
		text, err := os.ReadFile(value)
		if err != nil {
			c.problems = append(c.problems, fmt.Sprintf("%s: %v", name, err))
			continue
		}
		set[real] = strings.TrimSpace(string(text))
	}
	return set
}

// valueOf returns the variable whose value is in the file that a variable names, or the variable itself.
func (c *config) valueOf(name string) string {
	real, isFile := strings.CutSuffix(name, "_FILE")
	if !isFile || !slices.Contains(c.variables(), real) && c.isVariable(name) {
		return name
	}
	return real
}

// isVariable reports whether a name is a flag's variable, or would be if it named the command.
func (c *config) isVariable(name string) bool {
	return slices.Contains(c.variables(), name) || len(c.withCommand(name)) > 0
}

// withCommand returns the variables of the flags for which a variable lacks the command's name.
func (c *config) withCommand(name string) (full []string) {
	for key, f := range c.flags {
		if strings.Contains(key, ".") && variableName(f.Name) == name && !perCall(f) {
			full = append(full, variableName(key))
		}
	}
	slices.Sort(full)
	return full
}

// variableName returns the name of the variable for a key of the file.
func variableName(key string) string {
	return "TUSK_" + strings.ToUpper(strings.NewReplacer(".", "_", "-", "_").Replace(key))
}

// variables returns the names of all variables that are settings.
func (c *config) variables() []string {
	names := []string{"TUSK_DATABASE_URL", "TUSK_CONFIG"}
	for key := range c.flags {
		names = append(names, variableName(key))
	}
	slices.Sort(names)
	return names
}

// variableOf returns the variable that is set for a key of the file, or "" if none is.
func variableOf(key string, variables map[string]string) string {
	names := []string{variableName(key)}
	if key == "db" {
		names = []string{"TUSK_DATABASE_URL", "TUSK_DB", "DATABASE_URL"}
	}
	for _, name := range names {
		if _, set := variables[name]; set {
			return name
		}
	}
	return ""
}

func (c *config) set(f *pflag.Flag, value any, where string) {
	var err error
	list, isList := value.([]string)
	slice, takesList := f.Value.(pflag.SliceValue)
	switch {
	case isList && takesList:
		err = slice.Replace(list)
	case isList:
		err = fmt.Errorf("want one value, not a list")
	default:
		err = f.Value.Set(value.(string))
	}
	if err != nil {
		c.problems = append(c.problems, where+": "+valueProblem(err))
		return
	}
	f.Changed = true
}

// configPath returns the requested file, or the first that exists.
func (app *App) configPath(variables map[string]string, c *config) string {
	asked := app.flags.config
	if asked == "" {
		asked = variables["TUSK_CONFIG"]
	}
	if asked != "" {
		return asked
	}
	home := app.env["XDG_CONFIG_HOME"]
	if home == "" && app.env["HOME"] != "" {
		home = filepath.Join(app.env["HOME"], ".config")
	}
	places := []string{"tusk.yaml", filepath.Join(home, "tusk", "tusk.yaml"), "/etc/tusk/tusk.yaml"}
	if home == "" {
		places = slices.Delete(places, 1, 2)
	}
	for _, place := range places {
		if info, err := os.Stat(place); err == nil && !info.IsDir() {
			return place
		}
	}
	return ""
}

// readFile returns the values in the file and the position of each, by key.
func (c *config) readFile(environment map[string]string) (values map[string]any, lines map[string]string) {
	values, lines = map[string]any{}, map[string]string{}
	if c.path == "" {
		return values, lines
	}
	if info, err := os.Stat(c.path); err == nil && info.IsDir() {
		c.problems = append(c.problems, c.path+" is a folder, not a file")
		return values, lines
	}
	text, err := os.ReadFile(c.path)
	if err != nil {
		if pathErr := (*fs.PathError)(nil); errors.As(err, &pathErr) {
			err = fmt.Errorf("%s: %w", c.path, pathErr.Err)
		}
		c.problems = append(c.problems, err.Error())
		return values, lines
	}
	file := yamlFile{path: c.path, environment: environment, values: values, lines: lines, open: map[string]bool{}}
	if err := file.read(text); err != nil {
		c.problems = append(c.problems, err.Error())
	}
	c.problems = append(c.problems, file.problems...)
	for _, key := range slices.Sorted(maps.Keys(values)) {
		switch {
		case c.flags[key] != nil && perCall(c.flags[key]):
			c.problems = append(c.problems, lines[key]+": "+key+" cannot be set in a file")
		case c.flags[key] != nil:
			continue
		case values[key] != nil || !c.hasSection(key):
			c.problems = append(c.problems, words.Hinted(lines[key]+": unknown key "+key, key,
				slices.Collect(maps.Keys(c.flags))))
		}
		delete(values, key)
	}
	maps.DeleteFunc(values, func(key string, _ any) bool { return file.open[key] }) // reported already
	return values, lines
}

var afterPath = regexp.MustCompile(`^[^:]*:([0-9]+):`)

// lineOf returns the line of the file to which a problem refers.
func lineOf(problem string) (line int) {
	if m := afterPath.FindStringSubmatch(problem); m != nil {
		line, _ = strconv.Atoi(m[1])
	}
	return line
}

// hasSection reports whether a command of that name has settings.
func (c *config) hasSection(name string) bool {
	for key := range c.flags {
		if strings.HasPrefix(key, name+".") {
			return true
		}
	}
	return false
}

// checkSecrets requires that only the owner can read a file with secrets.
func (c *config) checkSecrets() {
	info, err := os.Stat(c.path)
	if c.path == "" || err != nil || info.Mode().Perm()&0o004 == 0 {
		return
	}
	for _, key := range slices.Sorted(maps.Keys(c.flags)) {
		f := c.flags[key]
		if strings.HasPrefix(c.source[key], c.path) && shown(f) != f.Value.String() {
			what := "the secret " + key
			if key == "db" {
				what = "the password"
			}
			c.problems = append(c.problems, fmt.Sprintf("%s: everybody can read %s in it: chmod 600 %s", c.source[key],
				what, c.path))
		}
	}
}

// secretSetting marks a flag whose value is never shown.
const secretSetting = "secret"

func markSecret(flags *pflag.FlagSet, name string) {
	if err := flags.SetAnnotation(name, secretSetting, nil); err != nil {
		panic(err)
	}
}

// shown returns the value of a setting without secrets.
func shown(f *pflag.Flag) string {
	value := f.Value.String()
	switch _, secret := f.Annotations[secretSetting]; {
	case f.Name == "db":
		return hideDSN(value)
	case secret && value != "" && value != "[]":
		return "***"
	}
	return value
}

// problem returns one error for all problems, or nil if there are none.
func (c *config) problem() error {
	if len(c.problems) == 0 {
		return nil
	}
	return &Problem{Code: "invalid_config", Exit: exitUsage, Text: strings.Join(c.problems, "; "),
		Hint: "tusk config check lists the problems one a line"}
}
