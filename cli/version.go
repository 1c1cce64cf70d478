package cli

import (
	"maps"
	"runtime"
	"runtime/debug"
	"slices"

	"github.com/spf13/cobra"

	"github.com/tuskqueue/tusk"
)

type versionRow struct {
	Version  string   `json:"version" col:"VERSION"`
	Commit   string   `json:"commit" one:"COMMIT"`
	Time     string   `json:"time" one:"TIME"`
	Modified bool     `json:"modified" one:"MODIFIED"`
	Go       string   `json:"go" col:"GO"`
	Platform string   `json:"platform" col:"PLATFORM"`
	Engines  []string `json:"engines" col:"ENGINES"`
}

func newVersionCommand(app *App) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  noArgs,
		RunE:  func(*cobra.Command, []string) error { return printOne(app, versionOf()) },
	}
}

func versionOf() versionRow {
	v := versionRow{Version: tusk.Version(), Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH,
		Engines: slices.Sorted(maps.Keys(engines))}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			v.Commit = s.Value
		case "vcs.time":
			v.Time = s.Value
		case "vcs.modified":
			v.Modified = s.Value == "true"
		}
	}
	return v
}
