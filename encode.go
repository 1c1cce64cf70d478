package tusk

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/tuskqueue/tusk/internal/lifecycle"
	"github.com/tuskqueue/tusk/internal/payload"
	"github.com/tuskqueue/tusk/store"
)

// encode validates a task and converts it to the store's form.
func (c *Client) encode(t NewTask) (n store.NewTask, err error) {
	e := encoder{client: c, id: NewID, json: json.Marshal}
	err = e.encode(&n, &t)
	return n, err
}

// KeyAt returns the key of a task that is enqueued at a given time: its own, or the one that Unique derives. A
// skipped task duplicates the task with that key.
func (c *Client) KeyAt(t NewTask, at time.Time) (string, error) {
	e := encoder{client: c, id: NewID, json: json.Marshal}
	var n store.NewTask
	err := e.encode(&n, &t)
	if err == nil && e.unique != nil {
		err = e.unique.key(&n, at)
	}
	return n.Key, err
}

// encodeBy is like encode, for a task created by an attempt of another task, whose key the new one may inherit.
// Streamed args are read.
func (c *Client) encodeBy(ctx context.Context, by *TaskInfo, t NewTask) (n store.NewTask, err error) {
	e := encoder{client: c, ctx: ctx, by: by.ID, key: by.Key, id: NewID, json: json.Marshal}
	err = e.encode(&n, &t)
	return n, err
}

// encoder converts tasks to the store's form.
type encoder struct {
	client *Client
	id     func() ID
	json   func(any) ([]byte, error)
	ctx    context.Context // for reading streamed args; nil if there can be none
	only   bool            // only validate: streamed args are not read
	by     ID              // the task whose attempt creates the tasks; zero means none
	key    string          // the key that tasks without a key may inherit

	// Most tasks of a call have the same options as the previous one.
	of     *Options
	known  bool          // whether same and unique hold the result for those options
	same   store.NewTask // all but kind, args and, usually, id
	unique *Unique
}

// encode validates a task and writes it to n.
func (e *encoder) encode(n *store.NewTask, t *NewTask) (err error) {
	if t.Args == nil {
		return invalid("args", "missing", "is nil")
	}
	if err := e.encodeOptions(t); err != nil {
		return err
	}
	*n = e.same
	if n.ID.IsZero() {
		n.ID = e.id()
	}
	n.Kind = t.Args.Kind()
	if err := ValidateName("kind", n.Kind); err != nil {
		if s, ok := t.Args.(stageArgs); ok {
			return s.problem()
		}
		return err
	}
	if from := openerOf(t.Args); from != nil {
		n.Args, err = e.readArgs(n, from)
		return err
	}
	if n.Args, err = e.encodeArgs(t.Args); err == nil && e.unique != nil {
		err = e.unique.key(n, time.Now())
	}
	return err
}

// encodeOptions makes sure that the encoder holds the options of a task.
func (e *encoder) encodeOptions(t *NewTask) (err error) {
	typed, own := t.Args.(interface{ Options() Options })
	if e.known && !own && e.of == t.Options {
		return nil
	}
	var o Options
	if t.Options != nil {
		o = *t.Options
	}
	if own {
		o = o.withDefaults(typed.Options())
	}
	e.same, err = encodeOptions(&o)
	e.of, e.known, e.unique = t.Options, err == nil && !own, o.Unique
	return err
}

// encodeOptions validates options and converts them to the store's form.
func encodeOptions(o *Options) (n store.NewTask, err error) {
	n = store.NewTask{ID: o.ID, Queue: o.Queue, Tenant: o.Tenant, Priority: o.Priority, Tags: o.Tags,
		RunAt: ceilMillisecond(o.RunAt), Delay: o.Delay, ExpiresAt: ceilMillisecond(o.ExpiresAt), ExpiresIn: o.ExpiresIn,
		Partition: o.Partition, Key: o.Key, OnConflict: o.OnConflict, SourceTime: o.SourceTime.Truncate(time.Millisecond)}
	if n.Queue == "" {
		n.Queue = DefaultQueue
	}
	settings := lifecycle.Settings{MaxAttempts: o.MaxAttempts, Timeout: o.Timeout, Stall: o.StallTimeout,
		Backoff: o.Backoff,
		Weight:  o.Weight, Deadline: o.Deadline.Truncate(time.Millisecond), DeadlineIn: o.DeadlineIn, Ephemeral: o.Ephemeral,
		Source: n.SourceTime}
	if len(o.Metadata) > 0 {
		if settings.Metadata, err = json.Marshal(o.Metadata); err != nil {
			return n, invalid("metadata", "invalid_metadata", "%v", err)
		}
	}
	if err := errors.Join(
		ValidateName("queue", n.Queue),
		validateTenant(n.Tenant),
		validateOwnKey(n.Key),
		validateKey("partition", n.Partition),
		validateTags(n.Tags),
		validateRun(n.RunAt, n.Delay),
		validateInstant("expires at", n.ExpiresAt),
		validateAhead("expires in", n.ExpiresIn),
		validateInstant("deadline", o.Deadline),
		validateAhead("deadline in", o.DeadlineIn),
		validateEnds(o, time.Now()),
		validateSource(o.SourceTime),
		validateConflict(o),
		validateEphemeral(o),
		validateSettings(settings),
		o.Unique.validate(o),
	); err != nil {
		return n, firstOf(err)
	}
	if n.Settings, err = settings.Encode(); err != nil {
		return n, fmt.Errorf("settings: %w", err)
	}
	return n, nil
}

// firstOf returns the first of joined errors: reporting one mistake at a time is enough.
func firstOf(err error) error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return joined.Unwrap()[0]
	}
	return err
}

func (e *encoder) encodeArgs(args Args) ([]byte, error) {
	most := e.client.config.MaxArgsBytes
	if e.client.config.Payloads != nil {
		most = MaxPayloadBytes
	}
	if raw, ok := args.(RawArgs); ok {
		text := bytes.TrimSpace(raw.JSON)
		if len(text) == 0 {
			text = []byte("{}")
		}
		return text, validateArgs(text, most)
	}
	text, err := e.json(args)
	if err != nil {
		for by := (*json.MarshalerError)(nil); errors.As(err, &by); {
			err = by.Err
		}
		var value any = args
		if stage, ok := args.(stageArgs); ok {
			value = stage.input
		}
		return nil, invalid("args", "invalid_json", "of %T cannot be encoded: %v", value, err)
	}
	if len(text) > most {
		return nil, validateArgs(text, most)
	}
	if payload.Reserved(text) {
		return nil, errReserved("args")
	}
	return text, checkJSON(text)
}

// withDefaults fills the fields that the caller left unset with the defaults of the args type.
func (o Options) withDefaults(defaults Options) Options {
	if o.Queue == "" {
		o.Queue = defaults.Queue
	}
	if o.Priority == 0 {
		o.Priority = defaults.Priority
	}
	if o.MaxAttempts == 0 {
		o.MaxAttempts = defaults.MaxAttempts
	}
	if o.Timeout == 0 {
		o.Timeout = defaults.Timeout
	}
	if o.StallTimeout == 0 {
		o.StallTimeout = defaults.StallTimeout
	}
	if o.Backoff == (Backoff{}) {
		o.Backoff = defaults.Backoff
	}
	if o.Tags == nil {
		o.Tags = defaults.Tags
	}
	if o.Tenant == "" {
		o.Tenant = defaults.Tenant
	}
	if o.Partition == "" {
		o.Partition = defaults.Partition
	}
	if o.Weight == 0 {
		o.Weight = defaults.Weight
	}
	if o.Deadline.IsZero() && o.DeadlineIn == 0 {
		o.Deadline, o.DeadlineIn = defaults.Deadline, defaults.DeadlineIn
	}
	o.Ephemeral = o.Ephemeral || defaults.Ephemeral
	if o.Key == "" && o.Unique == nil {
		o.Key, o.OnConflict, o.Unique = defaults.Key, defaults.OnConflict, defaults.Unique
	}
	return o
}

func validateEphemeral(o *Options) error {
	if o.Ephemeral && (o.OnConflict == Rerun || o.OnConflict == Once) {
		return invalid("ephemeral", "needs_history",
			"does not go together with rerun and once, which know by the history what was before")
	}
	return nil
}

func validateTenant(tenant string) error {
	if tenant == "" {
		return nil
	}
	return ValidateName("tenant", tenant)
}

// ceilMillisecond rounds up to the precision that every engine can store, so that nothing runs early.
func ceilMillisecond(t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	floor := t.Truncate(time.Millisecond)
	if floor.Before(t) {
		return floor.Add(time.Millisecond)
	}
	return floor
}

// list holds the tasks of one call, in the form passed to the engine, and their args. It is reused because long
// lists are a large part of what an enqueue allocates.
type list struct {
	tasks []store.NewTask
	args  bytes.Buffer
	json  *json.Encoder
}

var lists = sync.Pool{New: func() any {
	l := new(list)
	l.json = json.NewEncoder(&l.args)
	return l
}}

// maxKept is the maximum memory for args that is kept with a list.
const maxKept = 4 << 20

func listOf(n int) *list {
	l := lists.Get().(*list)
	l.tasks = slices.Grow(l.tasks, n)[:n]
	return l
}

// encode is json.Marshal into the list's own memory.
func (l *list) encode(v any) ([]byte, error) {
	at := l.args.Len()
	if err := l.json.Encode(v); err != nil {
		return nil, err
	}
	end := l.args.Len() - 1 // the text is followed by a line break
	return l.args.Bytes()[at:end:end], nil
}

// recycle returns a list for reuse once nothing reads it any more.
func (l *list) recycle() {
	clear(l.tasks)
	l.tasks = l.tasks[:0]
	if l.args.Reset(); l.args.Cap() > maxKept {
		l.args = bytes.Buffer{}
	}
	lists.Put(l)
}
