package mysql

import (
	"context"
	"database/sql"
	"strings"
	"time"
)

const (
	// How often the leader checks how the server would find groups.
	stepsEvery = time.Second
	// How often it makes the server update its statistics.
	learnEvery = 10 * time.Second
)

// stepping ensures that the server finds the groups of waiting tasks by steps along the index. The server does not do
// so if its statistics are those of an empty line, as at the start of a burst: then it reads all waiting tasks, and
// updates its statistics about ten seconds later.
func (s *Store) stepping(ctx context.Context) {
	now := time.Now()
	if !s.lines.planDue(now) {
		return
	}
	steps, err := s.steps(ctx)
	if err == nil && !steps && s.lines.learnDue(now) {
		err = s.query(ctx, func(*sql.Rows) error { return nil }, q("turn.learn"))
	}
	if err != nil && ctx.Err() == nil {
		s.log.Warn("mysql: statistics of tusk_line could not be made: until the server makes them, it may read all who "+
			"wait to find out who is next", "error", err)
	}
}

// steps reports whether the server would now step from group to group.
func (s *Store) steps(ctx context.Context) (bool, error) {
	steps := false
	err := s.query(ctx, func(rows *sql.Rows) error {
		names, err := rows.Columns()
		if err != nil {
			return err
		}
		values, into := make([]sql.RawBytes, len(names)), make([]any, len(names))
		for i := range values {
			into[i] = &values[i]
		}
		if err := rows.Scan(into...); err != nil {
			return err
		}
		for i, name := range names {
			steps = steps || name == "Extra" && strings.Contains(string(values[i]), "index for group-by")
		}
		return nil
	}, "explain format=traditional "+q("turn.groups"))
	return steps, err
}

// planDue reports whether to check how the server finds groups, which matters while more tasks wait than are read one
// by one.
func (s *stands) planDue(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.many || now.Sub(s.planned) < stepsEvery {
		return false
	}
	s.planned = now
	return true
}

func (s *stands) learnDue(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now.Sub(s.learned) < learnEvery {
		return false
	}
	s.learned = now
	return true
}
