package archive

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/tuskqueue/tusk/store"
)

const (
	restorePage = 500    // tasks that one transaction puts back
	restoreMost = 10_000 // tasks after which files are rewritten without them
)

// Restore carries out a request. It waits while another process changes the archive. If ctx ends,
// the request stays. tell is called with the progress; it may be nil. The error is ErrBusy if a
// rerun reads the archive.
func (r *Runner) Restore(ctx context.Context, id store.ID, tell func(Restore)) (Restore, error) {
	for {
		t, err := patiently(ctx, r, func(ctx context.Context) (Restore, error) { return r.restore(ctx, id) })
		if tell != nil && err == nil {
			tell(t)
		}
		if err != nil || t.Ended() {
			return t, err
		}
	}
}

// restore puts the next tasks of a request back and removes them from the archive.
func (r *Runner) restore(ctx context.Context, id store.ID) (Restore, error) {
	engine, ok := store.As[store.Restorer](r.o.Store)
	if !ok {
		return Restore{}, ErrNoRestore
	}
	note, now, err := r.take(ctx)
	if err != nil {
		return Restore{}, err
	}
	t, err := ReadRestore(ctx, r.o.Store, id)
	if err != nil || t.Ended() {
		return t, errors.Join(err, r.clear(ctx))
	}
	p := &putting{Runner: r, engine: engine, note: note, request: &t}
	if p.holds, err = Holds(ctx, r.o.Store); err == nil && !t.CancelRequested {
		err = p.put(ctx)
	}
	if err == nil && len(note.Restored) > 0 {
		err = r.takeOut(ctx, note)
	}
	if err != nil {
		if errors.Is(err, store.ErrConflict) {
			return t, err
		}
		return t, errors.Join(err, changeRestore(ctx, r.o.Store, id, func(t *Restore) { t.Error = err.Error() }))
	}
	err = changeRestore(ctx, r.o.Store, id, func(now *Restore) {
		now.Error, now.Skipped, now.Left = "", p.skipped, p.left
		switch {
		case t.CancelRequested:
			now.State = RestoreCancelled
		case p.all:
			now.State = RestoreDone
		}
		t = *now
	})
	if err == nil && t.Ended() {
		err = changeRestore(ctx, r.o.Store, id, func(t *Restore) { t.Done = now })
		t.Done = now
	}
	if err == nil {
		err = r.clearNoted(ctx)
	}
	return t, err
}

// putting puts the tasks of one step back.
type putting struct {
	*Runner
	engine  store.Restorer
	note    *Note
	request *Restore
	holds   holds
	all     bool // only skipped tasks remain
	skipped int64
	left    []Left
}

func (p *putting) leave(id store.ID, why string) {
	if p.skipped++; len(p.left) < mostLeft {
		p.left = append(p.left, Left{id, why})
	}
}

// put puts tasks back until there are restoreMost of them. It searches from the beginning each
// time: tasks that were put back are gone, and those that were skipped are skipped again.
func (p *putting) put(ctx context.Context) error {
	if len(p.request.IDs) > 0 {
		p.all = true
		return p.putNamed(ctx)
	}
	for cursor := ""; len(p.note.Restored) < 16*restoreMost; {
		found, err := p.shelf.Search(ctx, p.request.Query, cursor, restorePage, 0, nil)
		if err != nil {
			return err
		}
		if err := p.page(ctx, found.Tasks); err != nil {
			return err
		}
		if cursor = found.Next; cursor == "" {
			p.all = true
			return nil
		}
	}
	return nil
}

func (p *putting) putNamed(ctx context.Context) error {
	if _, err := p.shelf.reach(ctx); err != nil { // what is cached may have been deleted since
		return err
	}
	var page []store.Task
	bytes := 0
	for i, id := range p.request.IDs {
		task, err := p.shelf.Find(ctx, id)
		switch {
		case errors.Is(err, ErrNotFound):
			has, err := p.has(ctx, []store.Task{{ID: id}})
			if err != nil {
				return err
			}
			p.leave(id, map[bool]string{true: hasIt, false: ErrNotFound.Error()}[has[id]])
		case err != nil:
			return err
		default:
			page, bytes = append(page, task), bytes+len(task.Args)
		}
		if last := i == len(p.request.IDs)-1; last || len(page) == restorePage || bytes > mostPage {
			if err := p.page(ctx, page); err != nil {
				return err
			}
			page, bytes = nil, 0
		}
	}
	return nil
}

const (
	hasIt  = "the database has it"
	isHeld = "a hold holds it"
)

// has returns which of some tasks the database has.
func (p *putting) has(ctx context.Context, tasks []store.Task) (map[store.ID]bool, error) {
	ids := make([]store.ID, len(tasks))
	for i := range tasks {
		ids[i] = tasks[i].ID
	}
	there, err := p.o.Store.List(ctx, store.Filter{IDs: ids, Limit: len(ids), NoArgs: true})
	has := map[store.ID]bool{}
	for i := range there {
		has[there[i].ID] = true
	}
	return has, err
}

// page puts tasks back together with a note that names them. From then on they belong to the
// database.
func (p *putting) page(ctx context.Context, tasks []store.Task) error {
	if len(tasks) == 0 {
		return nil
	}
	// The last task of a page may be larger than the rest. It is put back by itself, since
	// Couchbase takes 20 MiB at a time.
	if last := len(tasks) - 1; last > 0 && len(tasks[last].Args)+len(tasks[last].Detail.Output) > mostPage/2 {
		if err := p.page(ctx, tasks[:last]); err != nil {
			return err
		}
		tasks = tasks[last:]
	}
	has, err := p.has(ctx, tasks)
	if err != nil {
		return err
	}
	var back []store.Task
	before := len(p.note.Restored)
	for _, task := range tasks {
		switch held := p.holds.row(&File{Queue: task.Queue},
			&Row{Tenant: task.Tenant, FinishedAt: micros(task.FinishedAt)}); {
		case has[task.ID]:
			p.leave(task.ID, hasIt)
		case held:
			p.leave(task.ID, isHeld)
		default:
			has[task.ID] = true // a database restored from a backup may have archived it twice
			back = append(back, remark(task))
			p.note.Restored = append(p.note.Restored, task.ID[:]...)
		}
	}
	if len(back) == 0 {
		return nil
	}
	p.note.Restore = p.request.ID
	exist, err := p.putBack(ctx, back)
	if err != nil {
		p.note.Restored = p.note.Restored[:before]
		return err
	}
	if len(exist) == 0 {
		return nil
	}
	there := restored{} // another process has just put them there
	for _, id := range exist {
		there[id.String()] = true
		p.leave(id, hasIt)
	}
	p.note.Restored = p.note.Restored[:before]
	for _, task := range back {
		if !there[task.ID.String()] {
			p.note.Restored = append(p.note.Restored, task.ID[:]...)
		}
	}
	return p.write(ctx, p.note)
}

// remark returns a task with a log line about its restore, since the end of the restored task will
// be a new one.
func remark(t store.Task) store.Task {
	t.Detail.Logs = append(t.Detail.Logs, store.LogLine{At: time.Now().UTC().Truncate(time.Microsecond),
		Attempt: t.Attempt, Level: "INFO", Text: "restored from the archive; it ended at " +
			t.FinishedAt.UTC().Format(time.RFC3339Nano)})
	return t
}

// putBack has the engine store tasks together with the note, unless another process has taken the
// note.
func (p *putting) putBack(ctx context.Context, tasks []store.Task) (exist []store.ID, err error) {
	body, err := json.Marshal(p.note)
	if err != nil {
		return nil, err
	}
	r := p.Runner
	r.noting.Lock()
	defer r.noting.Unlock()
	version, exist, err := p.engine.Restore(ctx, store.Record{Kind: recordKind, Name: noteName, Version: r.version,
		Body: body}, tasks)
	if err != nil {
		return nil, fmt.Errorf("put tasks back: %w", err)
	}
	r.version, r.since, r.body = version, time.Now(), body
	return exist, nil
}

// restored holds the ids of tasks that are in the database again.
type restored = returned

// takeOut removes the tasks that a note names from the files, counts them, and deletes the note. A
// file that cannot be rewritten keeps them.
func (r *Runner) takeOut(ctx context.Context, note *Note) error {
	gone := restored{}
	for ids := note.Restored; len(ids) >= 16; ids = ids[16:] {
		gone[store.ID(ids[:16]).String()] = true
	}
	manifests, err := r.shelf.Manifests(ctx)
	if err != nil {
		return err
	}
	for i := range manifests {
		if _, err := r.cutOne(ctx, note, &manifests[i], gone); err != nil {
			return err
		}
	}
	err = changeRestore(ctx, r.o.Store, note.Restore, func(t *Restore) {
		if t.Counted != note.Batch {
			t.Restored, t.Counted = t.Restored+int64(len(gone)), note.Batch
		}
	})
	if err != nil && !errors.Is(err, ErrNoSuchRestore) {
		return err
	}
	note.Restored, note.Restore = nil, store.ID{}
	r.o.Log.Info("restored", "batch", note.Batch, "tasks", len(gone))
	return r.clear(ctx)
}

// takeOutAfter removes tasks that another process, or an earlier step, has put back.
func (r *Runner) takeOutAfter(ctx context.Context, note *Note) error {
	if err := r.settleDrafts(ctx, note); err != nil {
		return err
	}
	return r.takeOut(ctx, note)
}

// settleDrafts makes a pending manifest count if it is committed, and have no effect otherwise.
func (r *Runner) settleDrafts(ctx context.Context, note *Note) error {
	if len(note.Drafts) > 0 {
		if err := r.abandon(ctx, note); err != nil {
			return err
		}
	}
	if err := r.sweep(ctx, note); err != nil {
		return err
	}
	note.Committed, note.Drafts, note.Paths = false, nil, nil
	return r.write(ctx, note)
}

// clearNoted deletes this process's note, if there still is one.
func (r *Runner) clearNoted(ctx context.Context) error {
	r.noting.Lock()
	defer r.noting.Unlock()
	if r.body == nil {
		return nil
	}
	return r.putNote(ctx, nil)
}

// longestRestore is how long a process that archives continues with restores before it archives
// again.
const longestRestore = time.Minute

// restoreAll continues with waiting requests, and deletes old ones that have ended. Requests that
// have failed before are tried only if again is true. A request records why it fails, and does not
// hold up the others; the error is the first one's.
func (r *Runner) restoreAll(ctx context.Context, again bool) (failed error) {
	all, err := Restores(ctx, r.o.Store)
	if err != nil {
		return err
	}
	end, over := time.Now().Add(longestRestore), 0
	for i := len(all) - 1; i >= 0; i-- {
		t := all[i]
		for !t.Ended() && (t.Error == "" || again) && time.Now().Before(end) {
			t, err = r.restore(ctx, t.ID)
			if atWork(err) || ctx.Err() != nil {
				return err
			}
			if err != nil {
				err = fmt.Errorf("restore %v: %w", all[i].ID, err)
				r.o.Log.Warn("archive", "error", err)
				if failed == nil {
					failed = err
				}
				break
			}
			if t.Ended() {
				r.o.Log.Info("restore", "id", t.ID, "state", t.State, "tasks", t.Restored, "skipped", t.Skipped)
			}
		}
		if t.Ended() {
			if over++; over > keepEnded {
				forget := func(*Restore, bool) (*Restore, error) { return nil, nil }
				if err := change(ctx, r.o.Store, restoreKind, t.ID.String(), forget); err != nil {
					return err
				}
			}
		}
	}
	return failed
}
