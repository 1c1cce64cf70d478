package ledgers

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tuskqueue/tusk/store"
)

// Everybody on a machine can see the arguments of its processes.
func TestProgramsGetThePasswordInTheirEnvironment(t *testing.T) {
	for dsn, want := range map[string]string{
		"postgres://a:se%20cret@b:1/c?pool_max_conns=3&tusk_schema=x": "postgres://a@b:1/c",
		"postgres://b:1/c?user=a&password=se%20cret":                  "postgres://b:1/c?user=a",
		`host=b port=1 password='se cret' user=a`:                     "host=b port=1  user=a",
		`host=b password=se\ cret`:                                    "host=b ",
	} {
		config, err := pgxpool.ParseConfig(dsn)
		if err != nil {
			t.Fatal(err)
		}
		delete(config.ConnConfig.RuntimeParams, "tusk_schema")
		pool, err := pgxpool.NewWithConfig(t.Context(), config)
		if err != nil {
			t.Fatal(err)
		}
		text, environ := plainURL(&server{pool: pool})
		pool.Close()
		if text != want || !slices.Contains(environ, "PGPASSWORD=se cret") {
			t.Errorf("%s: %s, %s", dsn, text, strings.Join(environ[max(len(environ)-1, 0):], " "))
		}
	}
}

func TestWorkersThatBeatNoMoreAreForgotten(t *testing.T) {
	var a leases
	for i := range byte(5) {
		beat := store.Beat{Worker: store.Worker{ID: store.ID{i}}, TTL: time.Microsecond}
		if i == 4 {
			beat.TTL = time.Hour
		}
		a.met(&beat, 1)
		time.Sleep(time.Millisecond)
	}
	if len(a.last) != 1 || len(a.strange) != 1 {
		t.Errorf("%d beats and %d workers are remembered", len(a.last), len(a.strange))
	}
}
