package postgres

import (
	"bytes"
	"slices"

	"github.com/tuskqueue/tusk/store"
)

const (
	packLeast = 16   // the minimum number of tasks of a pack
	packMost  = 128  // the maximum number of tasks of a pack; up to 255 are possible
	packRoom  = 7900 // the maximum size of a pack in bytes, so that its row fits into a page
)

// havePack reports whether some of the tasks make a pack.
func havePack(tasks []store.NewTask, least int) bool {
	for len(tasks) >= least {
		run, size := runOf(tasks)
		for run >= least {
			if n, _ := packOf(tasks[:run], size, least); n > 1 {
				return true
			}
			size -= packSize(&tasks[0])
			tasks, run = tasks[1:], run-1
		}
		tasks = tasks[run:]
	}
	return false
}

// runOf returns how many of the first tasks differ only in their args and have consecutive
// ids, and how many bytes they take.
func runOf(tasks []store.NewTask) (n, size int) {
	first := &tasks[0]
	for n < len(tasks) && (n == 0 || first.Tenant == "" && follows(&tasks[n].ID, &tasks[n-1].ID) &&
		alike(&tasks[n], first)) {
		size += packSize(&tasks[n])
		n++
	}
	return n, size
}

// packSize returns how many bytes a task takes in a pack.
func packSize(t *store.NewTask) int { return len(t.Args) + 8 }

// packOf returns how many of the first tasks of a run go into one row, and how many bytes they
// take. Each row takes a page of its own, so the rows of a run are filled about equally. If a
// pack would have fewer than the given number of tasks, packOf returns 1.
func packOf(run []store.NewTask, size, least int) (n, taken int) {
	first := &run[0]
	room := packRoom - len(first.Kind) - len(first.Settings) - textsLen(first.Tags)
	if len(run) < least || room <= 0 {
		return 1, packSize(first)
	}
	rows := max((size+room-1)/room, (len(run)+packMost-1)/packMost)
	for n < min(len(run), packMost) && taken < (size+rows-1)/rows && taken+packSize(&run[n]) <= room {
		taken += packSize(&run[n])
		n++
	}
	if n < least {
		return 1, packSize(first)
	}
	return n, taken
}

// follows reports whether an id comes directly after another, in the same block of 256.
func follows(id, before *store.ID) bool {
	last := len(id) - 1
	return id[last] != 0 && id[last] == before[last]+1 && bytes.Equal(id[:last], before[:last])
}

// alike reports whether plain tasks differ only in their ids and args.
func alike(a, b *store.NewTask) bool {
	return a.Queue == b.Queue && a.Priority == b.Priority && a.Kind == b.Kind && a.Tenant == b.Tenant &&
		slices.Equal(a.Tags, b.Tags) && bytes.Equal(a.Settings, b.Settings) && a.ExpiresAt.Equal(b.ExpiresAt)
}

func textsLen(texts []string) (n int) {
	for _, text := range texts {
		n += len(text) + 4
	}
	return n
}
