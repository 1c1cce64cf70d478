package server

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/tuskqueue/tusk"
)

// Requests that wait: for a task to lease, or for the end of a task.

type getInput struct {
	byID
	Wait Duration `query:"wait" rule:"duration" doc:"how long to wait for the end of the task, up to 20s; after that, the response has the task as it is"`
}

func getTask(c *call, in getInput) (TaskDetail, error) {
	wait, err := waitOf(in.Wait)
	if err != nil {
		return TaskDetail{}, err
	}
	t, archived, err := c.readTask(in.ID)
	if err == nil && wait > 0 && !t.State.Finished() {
		if err = c.awaitEnd(in.ID, wait); err == nil {
			t, archived, err = c.readTask(in.ID) // it may be out of the caller's sight now, or in the archive
		}
	}
	if err != nil {
		return TaskDetail{}, err
	}
	v := c.detailView(*t)
	v.Archived = archived
	return v, nil
}

// readTask reads a task that the caller may see from the database, or else from the archive.
func (c *call) readTask(id tusk.ID) (t *tusk.TaskInfo, archived bool, err error) {
	t, err = c.visible(id)
	if archived = errors.Is(err, tusk.ErrNotFound) && c.config.Archive != nil; archived {
		t, err = c.fromArchive(id, err)
	}
	return t, archived, err
}

// awaitEnd waits until a task has ended, the time is over or the server shuts down, without a place to work.
func (c *call) awaitEnd(id tusk.ID, wait time.Duration) error {
	c.rest()
	c.limit(wait + longest)
	waiting, err := c.wait(wait)
	if err != nil {
		return err
	}
	defer waiting.leave()
	ctx, cancel := context.WithTimeout(c.r.Context(), wait)
	defer cancel()
	defer context.AfterFunc(c.ending, cancel)()
	err = c.client.AwaitEnd(ctx, id)
	if err != nil && ctx.Err() == nil && !errors.Is(err, tusk.ErrNotFound) {
		return err
	}
	if err := c.admit(); err != nil { // the access may have been revoked meanwhile
		return err
	}
	return c.work()
}

// wait takes one of the places for waiting requests and lets the request take that long.
func (c *call) wait(wait time.Duration) (*stay, error) {
	place, err := c.rooms.waiting.enter(c.r.Context(), c.who.ID, 1)
	if err != nil {
		return nil, err
	}
	control := http.NewResponseController(c.w)
	_ = control.SetReadDeadline(time.Time{})
	_ = control.SetWriteDeadline(time.Now().Add(wait + 30*time.Second))
	return place, nil
}

// waitOf checks how long a request wants to wait.
func waitOf(d Duration) (time.Duration, error) {
	if wait := time.Duration(d); wait >= 0 && wait <= tusk.MaxPullWait {
		return wait, nil
	}
	return 0, fieldProblem(http.StatusUnprocessableEntity, "out_of_range", "wait", "want 0s to %v", tusk.MaxPullWait)
}
