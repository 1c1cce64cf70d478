package mysql

import (
	"context"
	"database/sql"
	"strings"
	"time"
)

const (
	stepsEvery = time.Second      // how often the leader asks how the server would find groups
	learnEvery = 10 * time.Second // and has it learn how large they are
)

// stepping sees to it that the server finds the groups of those who wait by steps along the index. It does not where
// its statistics are those of an empty line, which is what a burst finds: then it reads all who wait, and makes new
// ones some ten seconds after.
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

// steps reports whether the server would step from group to group now.
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

// planDue reports whether to look at how the server finds groups: while more wait than are read one by one.
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
