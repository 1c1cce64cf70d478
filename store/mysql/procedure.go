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

// The most frequent operations are procedures: one round trip each, and nothing is parsed. They take lists as bytes,
// because neither server accepts lists in any other form. Each reports its end as its last action: if a statement is
// killed inside a procedure, it may look to the client as if everything had been done.
//
// Procedures belong to the program that calls them. Their names end in a mark that is computed from their text, so
// that programs of several versions can use the same tables at the same time.
//
//go:embed procedures/*.sql
var procedureFiles embed.FS

// program is the set of procedures that a program calls.
type program struct {
	mark  string            // the end of their names
	texts map[string]string // by their names
}

var ownProgram = sync.OnceValue(func() *program {
	return newProgram(migrate.Texts(procedureFiles, "procedures/*.sql"))
})

// newProgram creates a program from texts, with _fn in place of the mark.
func newProgram(texts []string) *program {
	p := &program{migrate.Mark(texts...), map[string]string{}}
	for _, text := range texts {
		text = strings.ReplaceAll(text, "_fn", p.mark)
		name, _, _ := strings.Cut(strings.TrimPrefix(text, "create procedure "), "(")
		p.texts[name] = text
	}
	return p
}

// procedureName matches the names of procedures. Those of versions before migration 3 have no mark.
var procedureName = regexp.MustCompile(`^tusk_[a-z]+(_f[0-9a-f]{12})?$`)

// procedures returns the marks of all installed procedures, by name.
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

// missingProcedures returns the names of this program's procedures that the database does not have, or that the user
// may not execute. MySQL does not list procedures whose right comes from a role. So what is not listed is called
// without its arguments.
func (s *Store) missingProcedures(ctx context.Context) (missing []string, err error) {
	there, err := s.procedures(ctx)
	for _, name := range slices.Sorted(maps.Keys(s.program.texts)) {
		if _, found := there[name]; found || err != nil {
			continue
		}
		switch call := s.exec(ctx, "call "+name+"()"); codeOf(call) {
		case codeArguments:
		case codeNoProcedure, codeMayNot:
			missing = append(missing, name)
		default:
			err = call
		}
	}
	return missing, err
}

// install creates the missing procedures of this program, and reports whether there were any. It first records that
// the program runs, so that the new procedures do not count as unused.
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

// installed returns when this program's procedures were installed, or the zero time if they are not.
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

// ownStep describes the procedures for Migrations: they are part of the newest version.
func (s *Store) ownStep(at time.Time) store.Migration {
	var text strings.Builder
	for _, name := range slices.Sorted(maps.Keys(s.program.texts)) {
		text.WriteString(s.program.texts[name] + ";\n")
	}
	return store.Migration{Version: newest, Name: "procedures", AppliedAt: at, SQL: text.String()}
}

// dropPrograms removes the procedures of programs that need newer tables than those of a version, and of programs that
// are no longer used. It reports whether this program's procedures were among them.
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

// tidyPrograms is the leader's call of dropPrograms. If the leader's role must not drop procedures, or has only one
// connection, or another process migrates, they are left to the next migration.
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

// seen records from time to time that this program runs. A failure matters only if it never succeeds.
func (s *Store) seen(ctx context.Context) {
	now, due := time.Now(), s.seenDue.Load()
	if now.UnixNano() < due || !s.seenDue.CompareAndSwap(due, now.Add(migrate.SeenEvery).UnixNano()) {
		return
	}
	// All connections may be in use.
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if err := s.exec(ctx, q("program.seen"), s.program.mark, migrate.SeenEvery.Microseconds()); err != nil {
		s.seenDue.Store(now.Add(lookEvery).UnixNano())
	}
}
