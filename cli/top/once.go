package top

import (
	"context"
	"fmt"
	"io"
	"strings"
)

// Frame is everything that the views list, at one time.
type Frame struct {
	Overview
	Errors  []ErrorGroup `json:"errors"`
	Running []Task       `json:"running"`
}

// Look queries the source once.
func Look(ctx context.Context, source Source) (f Frame, err error) {
	if f.Overview, err = source.Overview(ctx); err != nil {
		return f, err
	}
	if f.Errors, err = source.Errors(ctx); err != nil {
		return f, err
	}
	f.Running, err = source.Tasks(ctx, Filter{State: "running"})
	return f, err
}

// unbounded is a width that no line reaches.
const unbounded = 1 << 16

// Print writes all views as text, one below the other.
func (f Frame) Print(out io.Writer, where string, text Text) error {
	s := newScreen(where, text)
	s.data, s.now, s.loaded = data{Overview: f.Overview, Errors: f.Errors, Tasks: f.Running}, f.At, true
	lines := []string{text.Clean(s.totals())}
	for _, v := range tabs {
		s.open(v)
		s.loaded = true
		t := s.table()
		lines = append(lines, "", strings.ToUpper(string(v)))
		if len(t.rows) == 0 {
			lines = append(lines, t.none)
			continue
		}
		lines = append(lines, t.align(t.rows, unbounded, text.Clean)...)
	}
	_, err := fmt.Fprintln(out, strings.Join(lines, "\n"))
	return err
}
