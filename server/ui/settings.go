package ui

import (
	"runtime"

	"github.com/tuskqueue/tusk"
)

// Setting is one setting of this server, for the settings page.
type Setting struct{ Name, Value, About string }

type settingsData struct {
	Settings []Setting
	Version  string
	Go       string
}

func settings(v *visit) (answer, error) {
	return answer{page: "settings", title: "Settings", section: "settings",
		data: settingsData{v.Settings, tusk.Version(), runtime.Version() + " " + runtime.GOOS + "/" + runtime.GOARCH}}, nil
}
