package mysql

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/migrate"
)

// What happens most are procedures: one round trip each, and nothing is parsed. They take lists as bytes, for
// neither server passes any other. The last that each does is to say that it has ended: a statement that is killed
// inside a procedure may look to the client as if all had been done.
//
// Procedures belong to the program that calls them. Their names end in a mark that is made of their text, so that
// programs of several versions work on the same tables side by side.
//
//go:embed procedures/*.sql
var procedureFiles embed.FS

// program is the procedures that a program calls.
type program struct {
	mark  string            // what their names end in
	texts map[string]string // by their names
}

var ownProgram = sync.OnceValue(func() *program {
	return newProgram(migrate.Texts(procedureFiles, "procedures/*.sql"))
})

// newProgram makes a program of texts in which _fn stands for the mark.
func newProgram(texts []string) *program {
	p := &program{migrate.Mark(texts...), map[string]string{}}
	for _, text := range texts {
		text = strings.ReplaceAll(text, "_fn", p.mark)
		name, _, _ := strings.Cut(strings.TrimPrefix(text, "create procedure "), "(")
		p.texts[name] = text
	}
	return p
}

// procedureName is what a procedure of a program is called. Those of the versions before migration 3 have no mark.
var procedureName = regexp.MustCompile(`^tusk_[a-z]+(_f[0-9a-f]{12})?$`)

// procedures returns the marks of all procedures that are installed, by their names.
func (s *Store) procedures(ctx context.Context) (marks map[string]string, err error) {
	marks = map[string]string{}
	err = s.query(ctx, func(rows *sql.Rows) error {
		var name string
		err := rows.Scan(&name)
		if match := procedureName.FindStringSubmatch(strings.ToLower(name)); match != nil {
			marks[match[0]] = match[1]
		}
		return err
	}, q("procedure.all"))
	return marks, err
}

// missingProcedures returns the names of this program's procedures that the database does not have.
func (s *Store) missingProcedures(ctx context.Context) (missing []string, err error) {
	there, err := s.procedures(ctx)
	for _, name := range slices.Sorted(maps.Keys(s.program.texts)) {
		if _, found := there[name]; !found {
			missing = append(missing, name)
		}
	}
	return missing, err
}

// install makes this program's procedures that are missing. It reports whether there were any. Nobody takes them for
// unused while it does: first it says that the program runs.
func (s *Store) install(ctx context.Context) (fresh bool, err error) {
	if err := s.exec(ctx, q("program.add"), s.program.mark, newest); err != nil {
		return false, err
	}
	missing, err := s.missingProcedures(ctx)
	for _, name := range missing {
		if err == nil {
			err = s.exec(ctx, s.program.texts[name])
		}
	}
	if err != nil {
		return false, fmt.Errorf("install procedures: %w", err)
	}
	return len(missing) > 0, nil
}

// installed returns when this program's procedures were installed; the zero time if they are not.
func (s *Store) installed(ctx context.Context) (at time.Time, err error) {
	missing, err := s.missingProcedures(ctx)
	if err != nil || len(missing) > 0 {
		return time.Time{}, err
	}
	err = s.query(ctx, func(rows *sql.Rows) error {
		var written int64
		err := rows.Scan(&written)
		at = instant(written)
		return err
	}, q("program.installed"), s.program.mark)
	return at, err
}

// ownStep is what Migrations says of the procedures: they are a part of the newest version.
func (s *Store) ownStep(at time.Time) store.Migration {
	var text strings.Builder
	for _, name := range slices.Sorted(maps.Keys(s.program.texts)) {
		text.WriteString(s.program.texts[name] + ";\n")
	}
	return store.Migration{Version: newest, Name: "procedures", AppliedAt: at, SQL: text.String()}
}

// dropPrograms removes the procedures of programs that need newer tables than those of a version, and of programs
// that are not used any more. It reports whether this program's were among them.
func (s *Store) dropPrograms(ctx context.Context, version int64) (own bool, err error) {
	keep := s.program.mark
	used := map[string]bool{}
	err = s.query(ctx, func(rows *sql.Rows) error {
		var mark string
		var is bool
		err := rows.Scan(&mark, &is)
		used[mark] = is
		return err
	}, q("program.all"), version, keep, migrate.DropAfter.Microseconds())
	if err != nil {
		return false, err
	}
	there, err := s.procedures(ctx)
	if err != nil {
		return false, err
	}
	for _, name := range slices.Sorted(maps.Keys(there)) {
		if mark := there[name]; !used[mark] {
			if err := s.exec(ctx, "drop procedure if exists "+name); err != nil {
				return own, err
			}
			own = own || mark == keep
		}
	}
	for mark, is := range used {
		if !is {
			if err := s.exec(ctx, q("program.drop"), mark); err != nil {
				return own, err
			}
		}
	}
	return own, nil
}

// tidyPrograms is what the leader does of that. Where its role may not drop, it has one connection alone, or somebody
// migrates, whoever migrates does it.
func (s *Store) tidyPrograms(ctx context.Context) error {
	_, err := s.tryAlone(ctx, 0, func() error {
		_, err := s.dropPrograms(ctx, math.MaxInt64)
		return err
	})
	if codeOf(err) == codeMayNot || errors.Is(err, errOneConnection) {
		return nil
	}
	return err
}

// seen says at times that this program runs. A failure matters only if it never succeeds.
func (s *Store) seen(ctx context.Context) {
	now, due := time.Now(), s.seenDue.Load()
	if now.UnixNano() < due || !s.seenDue.CompareAndSwap(due, now.Add(migrate.SeenEvery).UnixNano()) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second) // all connections may be taken
	defer cancel()
	if err := s.exec(ctx, q("program.seen"), s.program.mark, migrate.SeenEvery.Microseconds()); err != nil {
		s.seenDue.Store(now.Add(lookEvery).UnixNano())
	}
}
