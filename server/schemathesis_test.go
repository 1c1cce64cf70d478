package server_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

// TestTheAPIKeepsItsDescription lets schemathesis send what the description allows and what it does not, to each
// engine, and to one without a token.
func TestTheAPIKeepsItsDescription(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a minute")
	}
	st := schemathesis(t)
	long, err := time.ParseDuration(os.Getenv("TUSK_SCHEMATHESIS"))
	if err != nil {
		long = 75 * time.Second
	}
	config, err := filepath.Abs("testdata/schemathesis.toml")
	if err != nil {
		t.Fatal(err)
	}
	each := strconv.Itoa(max(5, int(long.Seconds())/6))
	for name, open := range engines {
		t.Run(name, func(t *testing.T) {
			callers := []string{"admin"}
			if name == "sqlite" { // who has no token is refused before any engine is asked
				callers = append(callers, "nobody")
			}
			for _, who := range callers {
				t.Run(who, func(t *testing.T) {
					s := startOn(t, newClient(t, open(t)))
					args := []string{"--config-file", config, "run", s.URL + "/openapi.json", "--max-time", each, "--no-shrink",
						"--continue-on-failure", "--request-timeout", "25",
						// Ten bad tokens get 401, further ones 429; TestEveryAPIRouteAsksForItsPermission covers all
						// routes.
						"--exclude-checks", "ignored_auth",
						"--exclude-path", "/api/v1/events", // it never ends
						"--exclude-path", "/api/v1/tokens/{id}", // would revoke the test's token
					}
					if who == "admin" {
						args = append(args, "--header", "Authorization: Bearer "+s.token)
					}
					if os.Getenv("TUSK_SCHEMATHESIS") == "" {
						args = append(args, "--seed", "1")
					}
					cmd := exec.CommandContext(t.Context(), st, args...)
					cmd.Dir = t.TempDir()
					if out, err := cmd.CombinedOutput(); err != nil {
						t.Errorf("%v\n%s", err, out)
					}
				})
			}
		})
	}
}

// schemathesis returns the path where scripts/schemathesis-deps installs it.
func schemathesis(t *testing.T) string {
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	st := filepath.Join(cache, "tusk-schemathesis-4.32.5", "bin", "st")
	if _, err := os.Stat(st); err != nil {
		if os.Getenv("TUSK_TEST_ALL") != "" {
			t.Fatalf("run scripts/schemathesis-deps: %v", err)
		}
		t.Skip("run scripts/schemathesis-deps first")
	}
	return st
}
