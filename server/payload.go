package server

import (
	"cmp"
	"context"
	"errors"
	"io"
	"io/fs"
	"mime"
	"net/http"
	"os"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/server/push"
)

// Args and outputs that are too large for the database arrive in parts. The parts are assembled when the task is
// enqueued or completed, and are sent whole or as ranges. Only the bytes in transit are in memory.

const (
	// transferCost is how much memory a part, or a whole upload, takes while it is written: the buffers of the object
	// store's client, and the bytes in transit.
	transferCost = 10 << 20
	// transferTime is how long assembling an upload may take.
	transferTime = 10 * time.Minute
	// removeTime is how long deleting its parts may take.
	removeTime = time.Minute
)

// UploadInput is an upload whose parts have arrived.
type UploadInput struct {
	ID     string   `json:"id" rule:"id" doc:"the id in the paths of its parts, chosen by the client"`
	Parts  []string `json:"parts" rule:"sum" minItems:"1" maxItems:"1024" doc:"the SHA-256 of each part, in their order"`
	SHA256 string   `json:"sha256" rule:"sum" doc:"of the whole, which is JSON of up to 1 GiB"`
}

// Part is a stored part of an upload.
type Part struct {
	Upload string `json:"upload"`
	SHA256 string `json:"sha256"`
	Bytes  int64  `json:"bytes,omitempty" doc:"of a part that has just been received"`
}

// LargeContent describes args or an output that are kept outside the database.
type LargeContent = push.LargeContent

type byPart struct {
	Upload tusk.ID `path:"upload" doc:"any id; only its owner can use the parts of an upload"`
	SHA256 string  `path:"sha256" rule:"sum" doc:"of the part, in hexadecimal"`
}

// upload identifies an upload of the caller.
func (c *call) upload(id tusk.ID) tusk.Upload { return tusk.Upload{Owner: c.who.ID, ID: id} }

// transfer waits for the memory of an upload, unless too many uploads of the caller are in progress. The upload
// counts as in progress until done is called.
func (c *call) transfer() (done func(), err error) {
	place, full := c.rooms.uploads.queue(c.who.ID, 1)
	if full != "" {
		p := refuse(c.r.Context(), "%s", full)
		p.Status, p.Code = http.StatusTooManyRequests, "too_many_uploads"
		return nil, p
	}
	if err := c.take(transferCost); err != nil {
		place.leave()
		return nil, err
	}
	return place.leave, nil
}

func putPart(c *call, in byPart) (Part, error) {
	if kind, _, err := mime.ParseMediaType(c.r.Header.Get("Content-Type")); err != nil ||
		kind != "application/octet-stream" {
		return Part{}, problem(http.StatusUnsupportedMediaType, "unsupported_media_type",
			"want Content-Type: application/octet-stream")
	}
	if c.r.ContentLength > tusk.MaxPartBytes {
		return Part{}, partTooLarge()
	}
	done, err := c.transfer()
	if err != nil {
		return Part{}, err
	}
	defer done()
	control := http.NewResponseController(c.w)
	_ = control.SetWriteDeadline(time.Now().Add(transferTime))
	body := &steady{from: http.MaxBytesReader(c.w, c.r.Body, tusk.MaxPartBytes), control: control}
	pace := &paced{from: body, call: c}
	defer pace.end()
	n, err := c.client.WritePart(c.r.Context(), c.upload(in.Upload), in.SHA256, pace)
	_ = control.SetReadDeadline(time.Time{})
	switch {
	case errors.As(err, new(*http.MaxBytesError)):
		err = partTooLarge()
	case errors.Is(err, os.ErrDeadlineExceeded):
		err = problem(http.StatusRequestTimeout, "body_too_slow", "64 KiB of the part took more than %v: send it again",
			partTime)
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

// payloadProblem turns an error of an upload or download into a problem.
func payloadProblem(err error) error {
	switch {
	case errors.As(err, new(*tusk.InvalidError)):
		return err
	case errors.Is(err, tusk.ErrNoPayloads):
		return problem(http.StatusNotFound, "no_payloads",
			"this server keeps no large args and outputs: start it with --archive")
	case errors.Is(err, fs.ErrNotExist):
		return problem(http.StatusConflict, "part_missing",
			"a part of the upload is not there: upload it again; parts are kept until they are put together, for a day at most")
	}
	return err
}

// assembled lets do read an upload of the caller as a whole. If do succeeds, the parts are deleted.
func (c *call) assembled(in UploadInput, do func(ctx context.Context, whole io.Reader) error) error {
	id, err := tusk.ParseID(in.ID)
	if err != nil {
		return err
	}
	done, err := c.transfer()
	if err != nil {
		return err
	}
	defer done()
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
	pace := &paced{from: whole, call: c}
	defer pace.end()
	if err := do(ctx, pace); err != nil {
		return err
	}
	ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), removeTime)
	defer cancel()
	if err := c.client.RemoveParts(ctx, u); err != nil {
		c.log.Warn("upload: parts are left until they are swept", "request", c.id, "error", err)
	}
	return nil
}

// storedBefore finds the task of an upload whose parts are gone, because its request succeeded but the response was
// lost.
func (c *call) storedBefore(t TaskInput, o *tusk.Options) (tusk.Enqueued, bool) {
	if t.Key == "" || o.OnConflict != tusk.Skip && o.OnConflict != tusk.Once {
		return tusk.Enqueued{}, false
	}
	f := tusk.Filter{Queues: []string{cmp.Or(t.Queue, tusk.DefaultQueue)}, Tenants: []string{t.Tenant}, Key: t.Key,
		Limit: 1, NoArgs: true}
	found, err := c.client.List(c.r.Context(), f)
	if err != nil || len(found) == 0 || o.OnConflict == tusk.Skip && found[0].State.Finished() {
		return tusk.Enqueued{}, false
	}
	return tusk.Enqueued{ID: found[0].ID, Result: tusk.Skipped}, true
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
		return out, fieldProblem(http.StatusUnprocessableEntity, "args_twice", "task.args",
			"leave them out: they are the upload")
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
		if errors.Is(err, fs.ErrNotExist) {
			if stored, ok := c.storedBefore(t, options); ok {
				e, err = stored, nil
			}
		}
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
		GoTo    *string     `json:"go_to,omitempty" rule:"optional-name" doc:"as for /lease/complete"`
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

// leased reads the receipt of a task that the caller may work on. If the task has ended, Finish will notice.
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

// largeArgs returns the size of args that are stored outside the database.
func (c *call) largeArgs(l *tusk.Lent) *LargeContent {
	content, err := c.puller.Args(l)
	if err != nil || !content.Large() {
		return nil
	}
	return &LargeContent{Bytes: content.Size(), SHA256: content.SHA256()}
}
