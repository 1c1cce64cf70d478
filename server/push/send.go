package push

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/internal/duration"
	"github.com/tuskqueue/tusk/internal/reach"
)

const (
	maxAnswer  = 1 << 20
	maxSent    = 4 << 20 // bytes of args
	shownBytes = 300     // bytes of a response that an attempt's error shows
)

// Message is the body of a webhook.
type Message struct {
	Type      string    `json:"type"` // always "task"
	Timestamp time.Time `json:"timestamp"`
	Data      Data      `json:"data"`
}

// Data is the task to run.
type Data struct {
	ID       string            `json:"id"`
	Kind     string            `json:"kind"`
	Queue    string            `json:"queue"`
	Tenant   string            `json:"tenant,omitempty"`
	Args     json.RawMessage   `json:"args"`
	Attempt  int               `json:"attempt"`
	Max      int               `json:"max_attempts"`
	Tags     []string          `json:"tags,omitempty"`
	Key      string            `json:"key,omitempty"`
	Metadata map[string]string `json:"metadata,omitempty"`
	Schedule string            `json:"schedule,omitempty"`
	Tick     time.Time         `json:"tick,omitzero"`
	Workflow string            `json:"workflow,omitempty"` // the workflow, pipeline run or parent that it belongs to
	Name     string            `json:"name,omitempty"`     // in the workflow
	Inputs   []Input           `json:"inputs,omitempty"`   // what it needed, with up to 512 KiB of outputs
	// NextInputs is set if there are more inputs: GET /lease/inputs has those after this one.
	NextInputs string    `json:"next_inputs,omitempty"`
	EnqueuedAt time.Time `json:"enqueued_at"`
	LeaseID    string    `json:"lease_id"` // for the lease routes of the API
}

func dataOf(l *tusk.Lent) Data {
	args := json.RawMessage(l.Args)
	if len(args) == 0 {
		args = json.RawMessage("{}")
	}
	d := Data{ID: l.ID.String(), Kind: l.Kind, Queue: l.Queue,
		Tenant: l.Tenant, Args: args, Attempt: l.Attempt, Max: l.MaxAttempts, Tags: l.Tags, Key: l.Key, Metadata: l.Metadata,
		Schedule: l.Schedule, Tick: l.Tick, Name: l.Node, EnqueuedAt: l.EnqueuedAt.UTC(), LeaseID: l.Receipt.String()}
	if !l.Workflow.IsZero() {
		d.Workflow = l.Workflow.String()
	}
	return d
}

func bodyOf(d Data, now time.Time) ([]byte, error) {
	m := Message{Type: "task", Timestamp: now.UTC().Truncate(time.Millisecond), Data: d}
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false) // send args unchanged
	err := e.Encode(m)
	return bytes.TrimSpace(out.Bytes()), err
}

// goTo is the response header that names the pipeline stage at which a task continues.
const goTo = "Tusk-Go-To"

var errHandedOver = errors.New("the endpoint ends the task by the API")

// send calls the endpoint with one task, and reports how the attempt ended.
func (s *sender) send(hard context.Context, d *document, l tusk.Lent) {
	defer s.note(hard) // after the verdict, which must not wait for it
	timeout := d.Timeout
	if l.Timeout > 0 {
		timeout = l.Timeout
	}
	ctx, cancel := context.WithTimeoutCause(hard, timeout,
		fmt.Errorf("%w after %s", tusk.ErrTimeout, duration.Text(timeout)))
	defer cancel()
	ctx, end := context.WithCancelCause(ctx)
	beating := make(chan struct{})
	go func() {
		defer close(beating)
		s.beat(ctx, l.Receipt, end)
	}()
	output, err := s.call(ctx, d, l)
	end(nil)
	<-beating
	switch cause := context.Cause(ctx); {
	case errors.Is(err, errHandedOver):
		s.handOver(hard, l.Receipt, timeout)
		return
	case err == nil, !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded):
	case errors.Is(cause, tusk.ErrTimeout), errors.Is(cause, tusk.ErrCancelled), errors.Is(cause, tusk.ErrLeaseLost):
		err = cause
	default:
		err = tusk.ErrShutdown // hard was cancelled: another server runs the task
	}
	if !errors.Is(err, tusk.ErrLeaseLost) {
		s.finish(hard, tusk.Verdict{Receipt: l.Receipt, Err: err, Output: output})
	}
}

// beat extends the lease until ctx ends. It calls end if the task is cancelled or the lease is lost.
func (s *sender) beat(ctx context.Context, r tusk.Receipt, end context.CancelCauseFunc) {
	ticker := time.NewTicker(beatEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		answer := s.puller.Extend(ctx, tusk.Extension{Receipt: r, Lease: lease})[0]
		switch {
		case answer.Cancelled:
			end(tusk.ErrCancelled)
		case answer.Err != nil:
			end(tusk.ErrLeaseLost)
		}
	}
}

// beatEvery is much shorter than a lease. It is also how soon a call notices a cancel.
const beatEvery = time.Second

// handOver leaves a task to the endpoint, which has the given time to end it.
func (s *sender) handOver(hard context.Context, r tusk.Receipt, timeout time.Duration) {
	extension := tusk.Extension{Receipt: r, Lease: min(max(timeout, lease), tusk.MaxPullLease)}
	if err := s.puller.Extend(hard, extension)[0].Err; err != nil && !errors.Is(err, tusk.ErrLeaseLost) {
		s.log.Warn("push: hand over", "task", r.ID, "error", err)
	}
}

// finish tries to report a verdict until the puller accepts it or the lease ends.
func (s *sender) finish(hard context.Context, v tusk.Verdict) {
	for pause := 100 * time.Millisecond; ; pause = min(2*pause, 5*time.Second) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(hard), 5*time.Second)
		refused, err := s.puller.Finish(ctx, []tusk.Verdict{v})
		cancel()
		if err == nil && errors.Is(refused[0], tusk.ErrInvalid) {
			v.Err = tusk.Discard(refused[0]) // the endpoint named a stage that does not exist, and is not asked again
			continue
		}
		if err == nil {
			return
		}
		s.log.Warn("push: finish", "task", v.Receipt.ID, "error", err)
		answer := s.puller.Extend(hard, tusk.Extension{Receipt: v.Receipt, Lease: lease})[0]
		if answer.Err != nil || hard.Err() != nil {
			return // another worker has the task now and runs it again
		}
		select {
		case <-hard.Done():
		case <-time.After(pause):
		}
	}
}

// call sends the request and interprets the response as the end of an attempt.
func (s *sender) call(ctx context.Context, d *document, l tusk.Lent) (output json.RawMessage, err error) {
	now := time.Now()
	if err := s.loadArgs(ctx, &l); err != nil {
		return nil, err
	}
	data := dataOf(&l)
	if err := s.addInputs(ctx, &data, &l); err != nil {
		return nil, err
	}
	body, err := bodyOf(data, now)
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, d.URL, bytes.NewReader(body))
	if err != nil {
		return nil, errors.New("the endpoint's URL cannot be used")
	}
	h := request.Header
	h.Set("Content-Type", "application/json")
	h.Set("User-Agent", "tusk")
	h.Set("Tusk-Task-Id", l.ID.String())
	h.Set("Tusk-Task-Kind", l.Kind)
	h.Set("Tusk-Task-Queue", l.Queue)
	h.Set("Tusk-Task-Attempt", strconv.Itoa(l.Attempt))
	if err := Sign(h, l.ID.String(), now, body, d.usable(now)); err != nil {
		return nil, err
	}
	response, err := s.client.Do(request)
	if err != nil {
		return nil, s.unreached(ctx, d, request, err)
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return nil, s.unreached(ctx, d, request, err)
	}
	return s.judge(d, response, answer)
}

// loadArgs reads args that are stored outside the database.
func (s *sender) loadArgs(ctx context.Context, l *tusk.Lent) error {
	content, err := s.puller.Args(l)
	if err != nil || !content.Large() {
		return err
	}
	if content.Size() > maxSent {
		return tusk.Discard(fmt.Errorf("its args have %d bytes: an endpoint gets %d at most", content.Size(), maxSent))
	}
	l.Args, err = content.Bytes(ctx)
	return err
}

// unreached explains why there was no response, without the URL, which may contain a secret.
func (s *sender) unreached(ctx context.Context, d *document, r *http.Request, err error) error {
	if context.Cause(ctx) != nil {
		return ctx.Err()
	}
	text := reach.Unreached(r, err)
	s.unheard(d.URL, text)
	if errors.Is(err, reach.ErrTarget) { // an attempt cannot fix this, so it is not counted
		return tusk.Snooze(time.Minute)
	}
	return errors.New("endpoint not reached: " + text)
}

func (s *sender) judge(d *document, r *http.Response, answer []byte) (output json.RawMessage, err error) {
	answer = bytes.TrimSpace(answer)
	switch {
	case r.StatusCode == http.StatusAccepted:
		s.heard(d.URL, 0, "")
		return nil, errHandedOver
	case r.StatusCode/100 == 2:
		s.heard(d.URL, 0, "")
		if json.Valid(answer) && tusk.ValidateOutput(answer) == nil {
			output = answer
		}
		if stage, given := r.Header[goTo]; given {
			return output, tusk.GoTo(stage[0])
		}
		return output, nil
	}
	text := fmt.Sprintf("%s answered %s", r.Request.URL.Host, r.Status)
	if len(answer) > 0 {
		text += ": " + strings.ToValidUTF8(string(answer[:min(len(answer), shownBytes)]), "")
	}
	err = errors.New(text)
	if r.StatusCode == http.StatusTooManyRequests || r.StatusCode == http.StatusServiceUnavailable {
		if after, ok := reach.RetryAfter(r.Header.Get("Retry-After"), time.Now()); ok {
			s.heard(d.URL, after, r.Status)
			return nil, tusk.RetryAfter(after, err)
		}
	}
	s.heard(d.URL, 0, "")
	return nil, err
}
