package server

import (
	"fmt"
	"strings"

	"github.com/tuskqueue/tusk/server/ui"
)

// tell describes how the server is configured, without secrets.
func (c settings) tell() []ui.Setting {
	yes := func(on bool) string {
		if on {
			return "yes"
		}
		return "no"
	}
	hidden := strings.Join(c.Mask.Names, ", ")
	if c.Mask.All {
		hidden = "everything"
	}
	login := "local users"
	switch {
	case c.Dev:
		login = "nobody has to: everybody is an admin"
	case c.Provider != nil:
		login = "local users, and " + c.Provider.Issuer
	}
	return []ui.Setting{
		{Name: "Database", Value: c.Database, About: "where everything is kept"},
		{Name: "Environment", Value: c.Environment, About: "named on every page"},
		{Name: "Login", Value: login, About: "who gets in, besides API tokens"},
		{Name: "Read-only", Value: yes(c.ReadOnly), About: "whether everything that would change something is refused"},
		{Name: "Names", Value: strings.Join(append([]string{"localhost"}, c.Hosts...), ", "),
			About: "by which the server may be called"},
		{Name: "Path", Value: c.Prefix + "/", About: "under which everything is found"},
		{Name: "Trusted proxies", Value: c.TrustProxy.String(),
			About: "whose X-Forwarded-For says where a request comes from"},
		{Name: "HTTPS only", Value: yes(c.HTTPS), About: "whether cookies are sent no other way"},
		{Name: "Hidden fields", Value: hidden, About: "whose values are not shown, by parts of their names"},
		{Name: "Endpoints may have", Value: strings.Join(append([]string{"public addresses"}, c.PushAllow...), ", "),
			About: "hosts that are called with tasks"},
		{Name: "Largest body", Value: fmt.Sprintf("%d KiB", c.MaxBody>>10), About: "of a request"},
	}
}
