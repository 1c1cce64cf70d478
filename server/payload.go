package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"mime"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/tuskqueue/tusk"
)

// Args and outputs that are too large for the database come in parts, which are put together when the
// task is enqueued or completed, and go out whole or by ranges. Nothing of them is in memory but what
// is on its way.

const (
	// transferCost is how much memory a part, or a whole upload, takes while it is written: what the
	// client of an object store keeps of it, and what is on its way.
	transferCost = 10 << 20
	// transferTime is how long it may take to put an upload together.
	transferTime = 10 * time.Minute
)

// UploadInput is an upload whose parts have come.
type UploadInput struct {
	ID     string   `json:"id" rule:"id" doc:"the one in the paths of its parts, chosen by who uploads"`
	Parts  []string `json:"parts" rule:"sum" minItems:"1" maxItems:"1024" doc:"the SHA-256 of each part, in their order"`
	SHA256 string   `json:"sha256" rule:"sum" doc:"of the whole, which is JSON of up to 1 GiB"`
}

// Part is a part of an upload that is kept.
type Part struct {
	Upload string `json:"upload"`
	SHA256 string `json:"sha256"`
	Bytes  int64  `json:"bytes,omitempty" doc:"of a part that has just come"`
}

// LargeContent is what is known of args that are kept outside the database.
type LargeContent struct {
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"`
}

type byPart struct {
	Upload tusk.ID `path:"upload" doc:"any id; only its owner reaches the parts of an upload"`
	SHA256 string  `path:"sha256" rule:"sum" doc:"of the part, in hexadecimal"`
}

// upload is one of the caller's.
func (c *call) upload(id tusk.ID) tusk.Upload { return tusk.Upload{Owner: c.who.ID, ID: id} }

func putPart(c *call, in byPart) (Part, error) {
	if kind, _, err := mime.ParseMediaType(c.r.Header.Get("Content-Type")); err != nil || kind != "application/octet-stream" {
		return Part{}, problem(http.StatusUnsupportedMediaType, "unsupported_media_type", "want Content-Type: application/octet-stream")
	}
	if c.r.ContentLength > tusk.MaxPartBytes {
		return Part{}, partTooLarge()
	}
	if err := c.take(transferCost); err != nil {
		return Part{}, err
	}
	control := http.NewResponseController(c.w)
	_ = control.SetWriteDeadline(time.Now().Add(transferTime))
	body := &steady{from: http.MaxBytesReader(c.w, c.r.Body, tusk.MaxPartBytes), control: control}
	n, err := c.client.WritePart(c.r.Context(), c.upload(in.Upload), in.SHA256, body)
	_ = control.SetReadDeadline(time.Time{})
	switch {
	case errors.As(err, new(*http.MaxBytesError)):
		err = partTooLarge()
	case errors.Is(err, os.ErrDeadlineExceeded):
		err = problem(http.StatusRequestTimeout, "body_too_slow", "64 KiB of the part took more than %v: send it again", partTime)
	case err != nil:
		err = payloadProblem(err)
	}
	return Part{Upload: in.Upload.String(), SHA256: in.SHA256, Bytes: n}, err
}

func partTooLarge() error {
	return problem(http.StatusRequestEntityTooLarge, "body_too_large", "a part has at most %d bytes", tusk.MaxPartBytes)
}

func getPart(c *call, in byPart) (Part, error) {
	err := c.client.HasPart(c.r.Context(), c.upload(in.Upload), in.SHA256)
	if errors.Is(err, fs.ErrNotExist) {
		err = problem(http.StatusNotFound, "not_found", "the part is not there: upload it")
	} else if err != nil {
		err = payloadProblem(err)
	}
	return Part{Upload: in.Upload.String(), SHA256: in.SHA256}, err
}

// payloadProblem says what became of an upload or a download.
func payloadProblem(err error) error {
	switch {
	case errors.As(err, new(*tusk.InvalidError)):
		return err
	case errors.Is(err, tusk.ErrNoPayloads):
		return problem(http.StatusNotFound, "no_payloads", "this server keeps no large args and outputs: start it with --archive")
	case errors.Is(err, fs.ErrNotExist):
		return problem(http.StatusConflict, "part_missing", "a part of the upload is not there: upload it again; parts are kept for a day")
	}
	return err
}

// assembled has do read an upload of the caller as one.
func (c *call) assembled(in UploadInput, do func(ctx context.Context, whole io.Reader) error) error {
	id, err := tusk.ParseID(in.ID)
	if err != nil {
		return err
	}
	if err := c.take(transferCost); err != nil {
		return err
	}
	control := http.NewResponseController(c.w)
	_ = control.SetReadDeadline(time.Time{})
	_ = control.SetWriteDeadline(time.Now().Add(transferTime + 30*time.Second))
	ctx, cancel := context.WithTimeout(c.r.Context(), transferTime)
	defer cancel()
	u := c.upload(id)
	u.Parts, u.SHA256 = in.Parts, in.SHA256
	whole, err := c.client.Uploaded(ctx, u)
	if err != nil {
		return payloadProblem(err)
	}
	defer whole.Close()
	return do(ctx, whole)
}

type enqueueLargeInput struct {
	Body struct {
		Task   TaskInput   `json:"task" doc:"without args, and without unique"`
		Upload UploadInput `json:"upload"`
	}
}

func enqueueLarge(c *call, in enqueueLargeInput) (EnqueuedTask, error) {
	var out EnqueuedTask
	t := in.Body.Task
	if len(t.Args) > 0 {
		return out, fieldProblem(http.StatusUnprocessableEntity, "args_twice", "task.args", "leave them out: they are the upload")
	}
	if err := allowed(c.who, t.Queue, t.Tenant); err != nil {
		return out, err
	}
	options, err := t.options()
	if err != nil {
		return out, err
	}
	err = c.assembled(in.Body.Upload, func(ctx context.Context, whole io.Reader) error {
		e, err := c.client.Enqueue(ctx, tusk.StreamArgs{Name: t.Kind, JSON: whole}, options)
		if err == nil {
			out = results([]tusk.Enqueued{e})[0]
		}
		return payloadProblem(err)
	})
	if out.Duplicate {
		c.status = http.StatusOK
	}
	return out, err
}

type completeLargeInput struct {
	Body struct {
		LeaseID string      `json:"lease_id" rule:"lease"`
		Upload  UploadInput `json:"upload" doc:"the output"`
		GoTo    *string     `json:"go_to,omitempty" rule:"optional-name" doc:"as of /lease/complete"`
	}
}

func completeLarge(c *call, in completeLargeInput) (LeaseResult, error) {
	out := LeaseResult{LeaseID: in.Body.LeaseID}
	r, err := c.leased(in.Body.LeaseID)
	if err != nil {
		return out, err
	}
	v, err := LeaseAction{"complete", LeaseActionInput{GoTo: in.Body.GoTo}}.verdict(r)
	if err != nil {
		return out, err
	}
	err = c.assembled(in.Body.Upload, func(ctx context.Context, whole io.Reader) error {
		v.Stream = whole
		ends, err := c.puller.Finish(ctx, []tusk.Verdict{v})
		if err == nil {
			err = ends[0]
		}
		return payloadProblem(err)
	})
	out.OK = err == nil
	return out, err
}

// leased reads the receipt of a task that the caller may work on. One that has ended is for Finish to judge.
func (c *call) leased(text string) (tusk.Receipt, error) {
	r, err := tusk.ParseReceipt(text)
	if err != nil {
		return r, err
	}
	tasks, err := c.puller.Find(c.r.Context(), []tusk.Receipt{r})
	if err == nil && tasks[0] != nil && !c.who.Sees(tasks[0].Queue, tasks[0].Tenant) {
		err = problem(http.StatusForbidden, "forbidden", "your %s may not work on this queue", c.who.Via)
	}
	return r, err
}

// largeArgs says of args that are kept outside the database how large they are.
func (c *call) largeArgs(l *tusk.Lent) *LargeContent {
	content, err := c.puller.Args(l)
	if err != nil || !content.Large() {
		return nil
	}
	return &LargeContent{content.Size(), content.SHA256()}
}

type leasedArgsInput struct {
	LeaseID string `header:"Lease-Id" rule:"header" doc:"needed: the lease_id of the task"`
	Range   string `header:"Range" rule:"range" doc:"one range of bytes, such as bytes=1048576-2097151; others are not looked at"`
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
	Range string  `header:"Range" rule:"range" doc:"one range of bytes, such as bytes=1048576-2097151; others are not looked at"`
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
	content := c.client.OutputOf(t)
	if content.Size() == 0 {
		return nothing{}, problem(http.StatusNotFound, "no_output", "the task has no output")
	}
	return nothing{}, c.give(content, in.Range)
}

// anywhere gets a task of the database, or else of the archive, that the caller may know of.
func (c *call) anywhere(id tusk.ID) (*tusk.TaskInfo, error) {
	t, err := c.visible(id)
	if errors.Is(err, tusk.ErrNotFound) && c.config.Archive != nil {
		return c.archivedTask(id)
	}
	return t, err
}

// give sends content, or the range of it that was asked for.
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
		panic(http.ErrAbortHandler) // the only way to tell after the header
	}
	return nil
}

// pass sends so many bytes. The last of them go only when what was read is known to be whole.
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

// rangeOf reads one range of bytes of a number of them. What is no such range asks for everything.
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
