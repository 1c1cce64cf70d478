package compose

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"
)

// load reads the compose file as docker compose does: it checks the file against the
// specification's schema, and resolves variables, anchors and paths.
func load(t *testing.T, environment ...string) (*types.Project, error) {
	t.Helper()
	options, err := cli.NewProjectOptions([]string{"compose.yaml"}, cli.WithEnv(environment),
		cli.WithProfiles([]string{"*"}), cli.WithResolvedPaths(true))
	if err != nil {
		t.Fatal(err)
	}
	return options.LoadProject(context.Background())
}

func loaded(t *testing.T) *types.Project {
	t.Helper()
	p, err := load(t, "POSTGRES_PASSWORD=x")
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestTheFileFollowsTheSpecification(t *testing.T) {
	p := loaded(t)
	for _, name := range []string{"postgres", "migrate", "tusk", "worker", "prometheus", "grafana"} {
		if _, ok := p.Services[name]; !ok {
			t.Errorf("there is no service %s", name)
		}
	}
	if url := p.Services["tusk"].Environment["TUSK_DATABASE_URL"]; url == nil ||
		!strings.Contains(*url, "tusk:x@postgres") {
		t.Errorf("the URL of the database is %v", url)
	}
}

func TestNothingStartsWithoutAPassword(t *testing.T) {
	if _, err := load(t); err == nil || !strings.Contains(err.Error(), "write it to deploy/compose/.env") {
		t.Error(err)
	}
}

func TestEveryPortIsBoundToThisMachine(t *testing.T) {
	for name, s := range loaded(t).Services {
		for _, port := range s.Ports {
			if port.HostIP != "127.0.0.1" {
				t.Errorf("%s listens on %q", name, port.HostIP)
			}
		}
	}
}

// If a mounted file does not exist, Docker creates an empty folder in its place.
func TestWhatIsMountedExists(t *testing.T) {
	made := map[string]bool{"scrape.token": true} // a command in the documentation makes it
	for name, s := range loaded(t).Services {
		for _, v := range s.Volumes {
			if _, err := os.Stat(v.Source); v.Type == types.VolumeTypeBind && err != nil && !made[filepath.Base(v.Source)] {
				t.Errorf("%s mounts %v", name, err)
			}
		}
		if s.Build != nil {
			if _, err := os.Stat(filepath.Join(s.Build.Context, s.Build.Dockerfile)); err != nil {
				t.Errorf("%s is built from %v", name, err)
			}
		}
	}
}

func TestTuskRunsWithoutRights(t *testing.T) {
	for _, name := range []string{"migrate", "tusk", "worker"} {
		s := loaded(t).Services[name]
		if !s.ReadOnly || len(s.CapDrop) != 1 || s.CapDrop[0] != "ALL" || s.Privileged {
			t.Errorf("%s: read-only %v, without %v", name, s.ReadOnly, s.CapDrop)
		}
	}
}
