package mysql

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/rules"
)

// columns are the columns that readRow reads.
const columns = "place, n, lap, id, queue, kind, priority, state, attempt, crashes, enqueued_at, run_at, expires_at, " +
	"claimed_at, finished_at, worker, failure, fingerprint, tenant, tkey, tags, settings, reason, workflow, part, " +
	"needs, needed, " +
	"awaits, turn, args"

// withoutArgs are the columns for work that needs no args, which may be large.
var withoutArgs = strings.TrimSuffix(columns, "args") + "null"

func init() {
	for name, text := range texts {
		prefixed := "t." + strings.ReplaceAll(columns, ", ", ", t.")
		texts[name] = strings.NewReplacer(":columns of t", prefixed, ":columns without args", withoutArgs,
			":columns", columns).Replace(text)
	}
}

// row is a task as it is stored.
type row struct {
	ref
	rules.Row
	failure     group // the error group of the latest failed attempt
	fingerprint string
	fresh       bool   // it is new
	ready       *ready // the row of tusk_ready that lists it; nil if none
	// For a waiting task: since when it has waited for its turn; 0 for the time of the statement.
	since int64
	// For a locked or new task: the fields as they are in the database.
	stored fields
}

// How a task relates to turns.
const (
	noTurn    = 0
	takesTurn = 1 // it runs only in its turn
	holdsTurn = 2 // it has its turn
)

func (r *row) turn() int8 {
	switch {
	case !r.Turn:
		return noTurn
	case r.HasTurn:
		return holdsTurn
	}
	return takesTurn
}

func (r *row) readTurn(turn int8) { r.Turn, r.HasTurn = turn != noTurn, turn == holdsTurn }

func (r *row) stage() stage { return stage{r.lap, r.State} }

// running reports whether a row that was read without a lock is running.
func (r *row) running() bool { return r.State == store.Available && r.ready == nil }

// readRow reads :columns. A running task looks available; only the leases know better.
func readRow(rows *sql.Rows, more ...any) (*row, error) {
	r := &row{}
	var id, queue, kind, worker, failure, fingerprint, tenant, key, tags, settings, reason, workflow, part, args []byte
	var enqueued, run, claimed, finished int64
	var expires sql.NullInt64
	var turn int8
	err := rows.Scan(append([]any{&r.place, &r.n, &r.lap, &id, &queue, &kind, &r.Priority, &r.State,
		&r.Attempt, &r.Crashes, &enqueued, &run, &expires, &claimed, &finished, &worker, &failure, &fingerprint, &tenant,
		&key, &tags, &settings, &reason, &workflow, &part, &r.Open, &r.Needed, &r.Awaits, &turn, &args}, more...)...)
	if err != nil {
		return nil, err
	}
	copy(r.ID[:], id)
	copy(r.failure[:], failure)
	copy(r.Workflow[:], workflow)
	r.readTurn(turn)
	r.Partition = string(part)
	// It may have none; reading its needs shows that.
	r.Needs = true
	r.fingerprint = string(fingerprint)
	r.Queue, r.Kind, r.Tenant, r.Key, r.Reason = string(queue), string(kind), string(tenant), string(key), string(reason)
	r.Settings, r.Args = settings, args
	r.EnqueuedAt, r.RunAt = instant(enqueued), instant(run)
	if expires.Valid {
		r.ExpiresAt = instant(expires.Int64)
	}
	r.ClaimedAt, r.FinishedAt = orZero(claimed), orZero(finished)
	if r.State.Finished() {
		// Readers remove it again, because it belongs to the attempt.
		copy(r.Worker[:], worker)
	}
	r.readTags(tags)
	return r, nil
}

// readLent reads a task as tusk_claim returns it, the time of its claim, and its lap.
func readLent(rows *sql.Rows, claimed *int64, lap *int32) (*row, error) {
	r := &row{}
	var id, queue, kind, tenant, key, tags, settings, workflow, part sql.RawBytes
	var enqueued, run int64
	var expires sql.NullInt64
	var turn int8
	err := rows.Scan(claimed, lap, &r.place, &r.n, &r.lap, &id, &queue, &kind, &r.Priority, &r.Attempt, &r.Crashes,
		&enqueued, &run, &expires, &tenant, &key, &tags, &settings, &workflow, &part, &turn, &r.Args)
	if err != nil {
		return nil, err
	}
	copy(r.ID[:], id)
	copy(r.Workflow[:], workflow)
	r.State = store.Available
	r.Queue, r.Kind, r.Tenant, r.Key, r.Settings = string(queue), string(kind), string(tenant), string(key),
		slices.Clone(settings)
	r.readTurn(turn)
	r.Partition = string(part)
	r.EnqueuedAt, r.RunAt = instant(enqueued), instant(run)
	if expires.Valid {
		r.ExpiresAt = instant(expires.Int64)
	}
	r.readTags(tags)
	return r, nil
}

func (r *row) readTags(tags []byte) {
	if len(tags) == 0 {
		return
	}
	if err := json.Unmarshal(tags, &r.Tags); err != nil {
		r.Damage = "its tags cannot be read: " + err.Error()
	}
}

// readLocked reads a task that may be changed.
func readLocked(rows *sql.Rows) (*row, error) {
	r, err := readRow(rows)
	if err == nil {
		r.stored = r.fields()
	}
	return r, err
}

func instant(micros int64) time.Time { return time.UnixMicro(micros).UTC() }

// orZero converts an instant, where 0 means that it has not come.
func orZero(micros int64) time.Time {
	if micros == 0 {
		return time.Time{}
	}
	return instant(micros)
}

// microsOrZero is the inverse of orZero.
func microsOrZero(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

// microsOrNull returns an instant, or null if it is zero.
func microsOrNull(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t.UnixMicro()
}

// textOrNull returns a text, or null if it is empty. Texts are sent as bytes, so that no character set changes them.
func textOrNull(text string) any {
	if text == "" {
		return nil
	}
	return []byte(text)
}

// nanos converts a source time.
func nanos(n int64) time.Time { return time.Unix(0, n).UTC() }

// nanosOrNull returns a source time, or null if it is zero.
func nanosOrNull(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t.UnixNano()
}

func bytesOrNull(b []byte) any {
	if b == nil {
		return nil
	}
	return b
}

func idOrNull[T ~[16]byte](id T) any {
	if id == (T{}) {
		return nil
	}
	return id[:]
}

func tagsOrNull(tags []string) any {
	if len(tags) == 0 {
		return nil
	}
	b, err := json.Marshal(tags)
	if err != nil {
		panic(err) // strings can always be encoded
	}
	return b
}

// labels returns what the task can be found by, apart from its queue and kind.
func (r *row) labels() (all []string) {
	if label := stateLabel(r.State); label != "" && !r.InLine() {
		all = append(all, label)
	}
	if r.Tenant != "" {
		all = append(all, "t"+r.Tenant)
	}
	if r.Key != "" {
		all = append(all, "k"+r.Key)
	}
	if !r.Workflow.IsZero() {
		all = append(all, "w"+string(r.Workflow[:]))
	}
	if r.fingerprint != "" {
		all = append(all, "e"+r.fingerprint)
	}
	for _, tag := range r.Tags {
		all = append(all, "g"+tag)
	}
	return all
}

// stateLabel returns the label of tasks in a state, or an empty string if there is none.
func stateLabel(state store.State) string {
	switch state {
	case store.Scheduled, store.Pending, store.Retryable, store.Cancelled, store.Discarded:
		return fmt.Sprintf("s%d", state)
	}
	return ""
}
