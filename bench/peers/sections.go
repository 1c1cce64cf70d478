package peers

import "strings"

// sections returns the statements of a file by name. Each begins with a line "-- name: …".
func sections(file string) map[string]string {
	all := map[string]string{}
	for _, section := range strings.Split(file, "-- name: ")[1:] {
		name, text, _ := strings.Cut(section, "\n")
		all[name] = strings.TrimSpace(text)
	}
	return all
}
