package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/tuskqueue/tusk"
)

// This file serves args and outputs unchanged, whole or as ranges.

type leasedArgsInput struct {
	LeaseID string `header:"Lease-Id" rule:"header" doc:"required: the lease_id of the task"`
	Range   string `header:"Range" rule:"range" doc:"such as bytes=1048576-2097151; only the first range counts"`
}

func downloadLeased(c *call, in leasedArgsInput) (nothing, error) {
	r, err := c.leased(in.LeaseID)
	if err != nil {
		return nothing{}, err
	}
	t, err := c.client.Get(c.r.Context(), r.ID)
	if err == nil && (t.Task.Lease != r.Lease || t.State != tusk.StateRunning) || errors.Is(err, tusk.ErrNotFound) {
		err = tusk.ErrLeaseLost
	}
	if err != nil {
		return nothing{}, err
	}
	content, err := c.client.ArgsOf(t)
	if err != nil {
		return nothing{}, err
	}
	return nothing{}, c.give(content, in.Range)
}

type downloadInput struct {
	ID    tusk.ID `path:"id" doc:"of the task"`
	Range string  `header:"Range" rule:"range" doc:"such as bytes=1048576-2097151; only the first range counts"`
}

func downloadArgs(c *call, in downloadInput) (nothing, error) {
	t, err := c.anywhere(in.ID)
	if err != nil {
		return nothing{}, err
	}
	content, err := c.client.ArgsOf(t)
	if err != nil {
		return nothing{}, err
	}
	return nothing{}, c.give(content, in.Range)
}

func downloadOutput(c *call, in downloadInput) (nothing, error) {
	t, err := c.anywhere(in.ID)
	if err != nil {
		return nothing{}, err
	}
	return nothing{}, c.giveOutput(c.client.OutputOf(t), in.Range)
}

// anywhere returns a task that the caller may see, from the database or else from the archive.
func (c *call) anywhere(id tusk.ID) (*tusk.TaskInfo, error) {
	t, err := c.visible(id)
	if errors.Is(err, tusk.ErrNotFound) && c.config.Archive != nil {
		return c.fromArchive(id, err)
	}
	return t, err
}

// give sends content, or the requested range of it.
func (c *call) give(content tusk.Content, asked string) error {
	from, to, status, err := rangeOf(asked, content.Size())
	h := c.w.Header()
	if err != nil {
		h.Set("Content-Range", fmt.Sprintf("bytes */%d", content.Size()))
		return err
	}
	open := content.Open
	if status == http.StatusPartialContent {
		open = func(ctx context.Context) (io.ReadCloser, error) { return content.OpenAt(ctx, from) }
	}
	if err := c.take(transferCost); err != nil {
		return err
	}
	r, err := open(c.r.Context())
	if err != nil {
		return payloadProblem(err)
	}
	defer r.Close()
	h.Set("Content-Type", "application/json")
	h.Set("Accept-Ranges", "bytes")
	h.Set("Cache-Control", "no-store")
	if sum := content.SHA256(); sum != "" {
		h.Set("ETag", `"`+sum+`"`)
	}
	h.Set("Content-Length", strconv.FormatInt(to-from, 10))
	if status == http.StatusPartialContent {
		h.Set("Content-Type", "application/octet-stream")
		h.Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, to-1, content.Size()))
	}
	_ = http.NewResponseController(c.w).SetReadDeadline(time.Time{})
	c.w.WriteHeader(status)
	if c.r.Method == http.MethodHead {
		return nil
	}
	if err := c.pass(r, to-from); err != nil {
		c.log.Warn("download: cut short", "request", c.id, "error", err)
		panic(http.ErrAbortHandler) // after the header, this is the only way to report an error
	}
	return nil
}

// pass sends left bytes. It sends the last of them only after the content has proved to be complete.
func (c *call) pass(r io.Reader, left int64) error {
	buffer := make([]byte, part)
	for left > 0 {
		piece := buffer[:min(left, part)]
		if _, err := io.ReadFull(r, piece); err != nil {
			return err
		}
		if left -= int64(len(piece)); left == 0 {
			if _, err := r.Read(make([]byte, 1)); err != nil && err != io.EOF {
				return err
			}
		}
		if err := c.send(piece); err != nil {
			return err
		}
	}
	return nil
}

// rangeOf reads a range of bytes. Text that is not a single range means everything.
func rangeOf(asked string, size int64) (from, to int64, status int, err error) {
	text, ok := strings.CutPrefix(asked, "bytes=")
	first, last, dash := strings.Cut(text, "-")
	if !ok || !dash {
		return 0, size, http.StatusOK, nil
	}
	number := func(text string) int64 {
		n, err := strconv.ParseUint(text, 10, 62)
		if err != nil {
			return -1
		}
		return int64(n)
	}
	a, b := number(first), number(last)
	switch {
	case first == "" && b >= 0:
		from, to = max(size-b, 0), size
	case a >= 0 && last == "":
		from, to = a, size
	case a >= 0 && b >= a:
		from, to = a, min(b+1, size)
	default:
		return 0, size, http.StatusOK, nil
	}
	if from >= to {
		return 0, 0, 0, problem(http.StatusRequestedRangeNotSatisfiable, "range_not_satisfiable", "there are %d bytes", size)
	}
	return from, to, http.StatusPartialContent, nil
}
