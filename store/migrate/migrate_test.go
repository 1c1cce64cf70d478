package migrate_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/migrate"
)

func files(texts ...string) fstest.MapFS {
	all := fstest.MapFS{}
	for i := 0; i < len(texts); i += 2 {
		all["migrations/"+texts[i]] = &fstest.MapFile{Data: []byte(texts[i+1])}
	}
	return all
}

func TestStepsAreNamedByTheirVersions(t *testing.T) {
	steps, err := migrate.Read(files("00002_turn.sql", "two", "00010_line.sql", "ten", "00001_ledger.sql", "one"))
	if err != nil || len(steps) != 3 || steps[0] != (store.Migration{Version: 1, Name: "ledger", SQL: "one"}) ||
		steps[2].Version != 10 {
		t.Error(steps, err)
	}
	if found := migrate.Find(steps, 2); found == nil || found.Name != "turn" {
		t.Error(found)
	}
	if found := migrate.Find(steps, 3); found != nil {
		t.Error(found)
	}
}

func TestTwoStepsOfOneVersionAreRefused(t *testing.T) {
	for _, second := range []string{"00001_other.sql", "1_other.sql", "last.sql"} {
		if steps, err := migrate.Read(files("00001_ledger.sql", "", second, "")); err == nil ||
			!strings.Contains(err.Error(), "want a version of its own") {
			t.Error(second, steps, err)
		}
	}
}

func TestAProgramWorksWithItsOwnVersionAlone(t *testing.T) {
	for at, want := range []error{store.ErrSchemaMissing, store.ErrSchemaOld, nil, store.ErrSchemaNew} {
		if err := migrate.Fits(int64(at), 2); !errors.Is(err, want) {
			t.Errorf("version %d: %v", at, err)
		}
	}
}

func TestTablesAreThoseOfTheNewestVersion(t *testing.T) {
	s := migrate.Schema{Files: files(
		"00001_ledger.sql",
		"create table task (id int);\ncreate table if not exists line (id int);\n"+
			"-- +goose Down\ndrop table line;\ndrop table task;\n",
		"00002_line.sql", "drop table line;\ncreate table lane (id int);\n-- +goose Down\ncreate table line (id int);\n")}
	tables, err := s.Tables()
	if want := []string{"task", "lane"}; err != nil || !slices.Equal(tables, want) {
		t.Errorf("got %q, %v, want %q", tables, err, want)
	}
}
