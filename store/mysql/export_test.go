package mysql

import (
	"context"
	"database/sql"
	"strings"
	"testing"
	"time"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/migrate"
)

// OpenProgram is like Open, for a program whose procedures have another text.
func OpenProgram(ctx context.Context, dsn, mark string) (*Store, error) {
	s, err := Open(ctx, dsn)
	if err == nil {
		texts := migrate.Texts(procedureFiles, "procedures/*.sql")
		for i := range texts {
			texts[i] += "-- " + mark + "\n"
		}
		s.program = newProgram(texts)
	}
	return s, err
}

// IsMariaDB reports whether the server is MariaDB, not MySQL.
func IsMariaDB(t testing.TB, s *Store) (is bool) {
	t.Helper()
	if err := s.db.QueryRowContext(t.Context(), "select version() like '%MariaDB%'").Scan(&is); err != nil {
		t.Fatal(err)
	}
	return is
}

// Explain says what an error of the driver means.
func Explain(err error) error { return explain(err) }

// Procedure returns the full name of a procedure of this program.
func (s *Store) Procedure(name string) string { return name + s.program.mark }

// OpenUnmarked is like Open, for a program of the versions before migration 3, whose procedures have plain names.
func OpenUnmarked(ctx context.Context, dsn string) (*Store, error) {
	s, err := Open(ctx, dsn)
	if err == nil {
		plain := &program{texts: map[string]string{}}
		for name, text := range s.program.texts {
			plain.texts[strings.TrimSuffix(name, s.program.mark)] = strings.ReplaceAll(text, s.program.mark, "")
		}
		s.program = plain
		s.checked.Store(true)
	}
	return s, err
}

// InstallOld creates the procedures of a program of those versions.
func (s *Store) InstallOld(ctx context.Context) error {
	for _, text := range s.program.texts {
		if _, err := s.db.ExecContext(ctx, text); err != nil {
			return err
		}
	}
	return nil
}

// EndHour makes the next Maintain do its hourly work, and the next call record that the program runs.
func (s *Store) EndHour() {
	s.daysDue.Store(0)
	s.seenDue.Store(0)
}

// ManyWait reports whether the last look found more tasks that wait for turns than it reads one by one.
func (s *Store) ManyWait() bool {
	s.lines.mu.Lock()
	defer s.lines.mu.Unlock()
	return s.lines.many
}

// DropAfter is how long a program must not have run before its procedures are removed.
const DropAfter = migrate.DropAfter

// LookAtLists sets how many lists one page of Due looks at.
func (s *Store) LookAtLists(n int) { s.dueLists = n }

// View calls change between two reads of one snapshot: of the records, and of the tasks.
func (s *Store) View(ctx context.Context, change func()) (tasks int64, err error) {
	return tasks, s.view(ctx, func(w *work) error {
		if err := w.ask(func(*sql.Rows) error { return nil }, "select 1 from tusk_record"); err != nil {
			return err
		}
		change()
		return w.ask(func(rows *sql.Rows) error { return rows.Scan(&tasks) }, "select count(*) from tusk_task")
	})
}

// Run returns the run of the server.
func (s *Store) Run(ctx context.Context) (int64, error) { return runOf(ctx, s.db) }

// Pause returns the pause before idle queues are checked again.
func (s *Store) Pause() time.Duration { return s.wakes.pause(time.Now()) }

// Disown records that only the beats of workers count from now on.
func (s *Store) Disown(ctx context.Context, workers ...store.ID) error {
	return s.attendant.Disown(ctx, workers)
}
