package cli

import "testing"

func TestAPartOfAnIDIsEnough(t *testing.T) {
	sh := newShell(t)
	id := sh.enqueue("echo", "{}", "--delay", "1h")
	tail := id[24:]
	if rows := sh.json("tasks", "show", tail); rows[0]["id"] != id {
		t.Error(rows)
	}
	if rows := sh.json("tasks", "show", id[:23]); rows[0]["id"] != id {
		t.Error(rows)
	}
	sh.must("tasks", "why", tail)
	sh.must("tasks", "cancel", tail)
	other := sh.enqueue("echo", "{}")
	sh.fails(exitUsage, "ambiguous_id", []string{id, other}, "tasks", "show", id[:8])
	sh.fails(exitNotFound, "not_found", nil, "tasks", "show", "abcdef012345")
	sh.fails(exitUsage, "invalid_id", []string{"the first or the last 6 digits"}, "tasks", "show", "abc")
}
