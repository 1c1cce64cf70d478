package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/tuskqueue/tusk/store"
)

func TestAfter(t *testing.T) {
	boom := errors.New("boom")
	always := func(int, error) time.Duration { return time.Minute }
	for _, c := range []struct {
		name     string
		task     store.Task
		settings Settings
		end      End
		state    store.State
		attempt  int
		crashes  int
		delay    time.Duration
		failed   bool
		reason   string
	}{
		{name: "success completes", task: store.Task{Attempt: 2, Crashes: 1}, state: store.Completed, attempt: 2},
		{name: "a failure is retried by the default policy", task: store.Task{Attempt: 3}, end: End{Err: boom},
			state: store.Retryable, attempt: 3, delay: 4 * time.Second, failed: true},
		{name: "a failure is retried by the task's policy", task: store.Task{Attempt: 3}, end: End{Err: boom},
			settings: Settings{Backoff: Backoff{Shape: Linear, Base: 5 * time.Minute}},
			state:    store.Retryable, attempt: 3, delay: 15 * time.Minute, failed: true},
		{name: "a failure is retried by the handler's policy", task: store.Task{Attempt: 1},
			end:   End{Err: boom, Retry: always},
			state: store.Retryable, attempt: 1, delay: time.Minute, failed: true},
		{name: "a failure names its own delay", task: store.Task{Attempt: 1},
			end:   End{Err: &RetryError{time.Hour, boom}, Retry: always},
			state: store.Retryable, attempt: 1, delay: time.Hour, failed: true},
		{name: "the last attempt gives up", task: store.Task{Attempt: 2}, end: End{Err: boom},
			settings: Settings{MaxAttempts: 2},
			state:    store.Discarded, attempt: 2, failed: true, reason: "gave up after 2 attempts"},
		{name: "the default limit is 25", task: store.Task{Attempt: 25}, end: End{Err: boom},
			state: store.Discarded, attempt: 25, failed: true, reason: "gave up after 25 attempts"},
		{name: "a named delay does not beat the limit", task: store.Task{Attempt: 1}, settings: Settings{MaxAttempts: 1},
			end: End{Err: &RetryError{time.Hour, boom}}, state: store.Discarded, attempt: 1, failed: true,
			reason: "gave up after 1 attempt"},
		{name: "a snooze refunds the attempt", task: store.Task{Attempt: 1},
			end:   End{Err: &SnoozeError{Delay: time.Hour}},
			state: store.Scheduled, attempt: 0, delay: time.Hour},
		{name: "a wait for children refunds the attempt", task: store.Task{Attempt: 1},
			end:   End{Err: ErrWait, Children: true},
			state: store.Pending, attempt: 0},
		{name: "a wait without children is a failure", task: store.Task{Attempt: 3}, end: End{Err: ErrWait},
			state: store.Retryable, attempt: 3, delay: 4 * time.Second, failed: true},
		{name: "a wrapped snooze is a snooze", task: store.Task{Attempt: 1},
			end:   End{Err: fmt.Errorf("later: %w", &SnoozeError{Delay: time.Hour})},
			state: store.Scheduled, attempt: 0, delay: time.Hour},
		{name: "an unknown kind refunds the attempt and keeps the crashes", task: store.Task{Attempt: 1, Crashes: 2},
			end:   End{Err: &UnknownKindError{}},
			state: store.Scheduled, attempt: 0, crashes: 2, delay: 5 * time.Second},
		{name: "a kind that nobody has comes back ever more rarely", task: store.Task{Attempt: 1},
			end:   End{Err: &UnknownKindError{Times: 1}},
			state: store.Scheduled, delay: 10 * time.Second},
		{name: "and in 15 seconds at the latest", task: store.Task{Attempt: 1}, end: End{Err: &UnknownKindError{Times: 1000}},
			state: store.Scheduled, delay: 15 * time.Second},
		{name: "when the leader knows of it, it is put off for an hour", task: store.Task{Attempt: 1, Crashes: 1},
			end:   End{Err: &UnknownKindError{Times: 1, Noted: true}},
			state: store.Retryable, crashes: 1, delay: time.Hour, failed: true},
		{name: "and each time for as long as it has existed",
			task:  store.Task{Attempt: 1, EnqueuedAt: at(0), ClaimedAt: at(7)},
			end:   End{Err: &UnknownKindError{Noted: true}},
			state: store.Retryable, delay: 7 * time.Hour, failed: true},
		{name: "a day at the most", task: store.Task{Attempt: 1, EnqueuedAt: at(0), ClaimedAt: at(99)},
			end:   End{Err: &UnknownKindError{Noted: true}},
			state: store.Retryable, delay: 24 * time.Hour, failed: true},
		{name: "until its expiry", task: store.Task{Attempt: 1, EnqueuedAt: at(0), ClaimedAt: at(8), ExpiresAt: at(9)},
			end:   End{Err: &UnknownKindError{Noted: true}},
			state: store.Retryable, delay: time.Hour, failed: true},
		{name: "until its deadline", task: store.Task{Attempt: 1, EnqueuedAt: at(0), ClaimedAt: at(8)},
			settings: Settings{Deadline: at(10)},
			end:      End{Err: &UnknownKindError{Noted: true}},
			state:    store.Retryable, delay: 2 * time.Hour, failed: true},
		{name: "a kind that another worker has is not put off", task: store.Task{Attempt: 1},
			end:   End{Err: &UnknownKindError{Elsewhere: true, Noted: true}},
			state: store.Scheduled, delay: 100 * time.Millisecond},
		{name: "a kind that another worker has is soon there", task: store.Task{Attempt: 1},
			end:   End{Err: &UnknownKindError{Elsewhere: true}},
			state: store.Scheduled, delay: 100 * time.Millisecond},
		{name: "and leaves this worker alone when that one is busy", task: store.Task{Attempt: 1},
			end: End{Err: &UnknownKindError{Elsewhere: true, Times: 3}}, state: store.Scheduled, delay: 5 * time.Second},
		{name: "chance brings it back to this worker while that one is free", task: store.Task{Attempt: 1},
			end: End{Err: &UnknownKindError{Elsewhere: true, Free: true, Times: 9}}, state: store.Scheduled,
			delay: 100 * time.Millisecond},
		{name: "that one is free and leaves it alone", task: store.Task{Attempt: 1},
			end: End{Err: &UnknownKindError{Elsewhere: true, Free: true, Times: 30}}, state: store.Scheduled,
			delay: 5 * time.Second},
		{name: "a shutdown hands back and keeps the crashes", task: store.Task{Attempt: 4, Crashes: 1},
			end:   End{Err: ErrShutdown},
			state: store.Available, attempt: 3, crashes: 1},
		{name: "a cancelled task is cancelled", task: store.Task{Attempt: 1}, end: End{Err: ErrCancelled},
			state: store.Cancelled, attempt: 1, reason: "cancelled while it ran"},
		{name: "a handler cancels", task: store.Task{Attempt: 1},
			end:   End{Err: &StopError{State: store.Cancelled, Reason: "not needed"}},
			state: store.Cancelled, attempt: 1, reason: "not needed"},
		{name: "a handler discards with an error", task: store.Task{Attempt: 1},
			end:   End{Err: &StopError{State: store.Discarded, Reason: "bad", Err: boom}},
			state: store.Discarded, attempt: 1, failed: true, reason: "bad"},
		{name: "a handler's negative delay is none", task: store.Task{Attempt: 1},
			end: End{Err: boom, Retry: func(int, error) time.Duration { return -time.Hour }}, state: store.Retryable, attempt: 1,
			failed: true},
		{name: "a hung handler fails its attempt", task: store.Task{Attempt: 1},
			end:   End{Err: boom, Hung: true, Trace: "stack"},
			state: store.Retryable, attempt: 1, delay: time.Second, failed: true},
		{name: "a hung handler fails its last attempt", task: store.Task{Attempt: 2}, end: End{Err: boom, Hung: true},
			settings: Settings{MaxAttempts: 2},
			state:    store.Discarded, attempt: 2, failed: true, reason: "gave up after 2 attempts"},
		{name: "a cancel that a hung handler ignores cancels the task and says why", task: store.Task{Attempt: 1},
			end:   End{Err: ErrCancelled, Hung: true},
			state: store.Cancelled, attempt: 1, failed: true, reason: "cancelled while it ran"},
		{name: "a hung handler past its deadline is discarded", task: store.Task{Attempt: 1},
			end:   End{Err: ErrDeadline, Hung: true},
			state: store.Discarded, attempt: 1, failed: true, reason: "its deadline passed while it ran"},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.task.Kind = "k"
			out := After(&c.task, c.settings, c.end, 0)
			if out.State != c.state || out.Attempt != c.attempt || out.Crashes != c.crashes || out.Delay != c.delay ||
				out.Reason != c.reason {
				t.Errorf("got %v attempt %d crashes %d delay %v reason %q", out.State, out.Attempt, out.Crashes,
					out.Delay, out.Reason)
			}
			if strings.HasPrefix(out.Error, "hung: ") != c.end.Hung || out.Trace != c.end.Trace {
				t.Errorf("error %q, trace %q", out.Error, out.Trace)
			}
			if (out.Error != "") != c.failed || (out.Fingerprint != "") != c.failed {
				t.Errorf("error %q, fingerprint %q", out.Error, out.Fingerprint)
			}
		})
	}
}

// at returns a time with the given hour.
func at(hour int) time.Time { return time.Date(2030, 1, 1, hour, 0, 0, 0, time.UTC) }

func TestAWorkersDeathIsNotAFailureUntilTheThird(t *testing.T) {
	task := &store.Task{Kind: "k", Attempt: 1}
	for _, begun := range []bool{true, false} {
		first := Died(task, Settings{MaxAttempts: 1}, begun, 0)
		if first.State != store.Retryable || first.Delay != 0 || first.Attempt != 0 || first.Crashes != 1 {
			t.Errorf("first crash: %+v", first)
		}
	}
	task.Crashes = 1
	if second := Died(task, Settings{}, true, 0); second.State != store.Retryable || second.Delay != time.Second ||
		second.Crashes != 2 {
		t.Errorf("second crash: %+v", second)
	}
	task.Crashes = 2
	third := Died(task, Settings{}, true, 0)
	if third.State != store.Discarded || !strings.HasPrefix(third.Reason, "quarantined") || third.Attempt != 1 {
		t.Errorf("third crash: %+v", third)
	}
}

func TestWhatLosesItsWorkerKeepsItsTurn(t *testing.T) {
	for crashes, keeps := range []bool{true, true, false} {
		if out := Died(&store.Task{Kind: "k", Attempt: 1, Crashes: crashes, Turn: true}, Settings{}, true,
			0); out.KeepTurn != keeps {
			t.Errorf("after %d crashes: %+v", crashes, out)
		}
	}
	if out := Died(&store.Task{Kind: "k", Attempt: 1}, Settings{}, true, 0); out.KeepTurn {
		t.Errorf("without a turn: %+v", out)
	}
}

func TestACrashCountsAgainstASuspectOnlyIfItsHandlerHadBegun(t *testing.T) {
	for _, crashes := range []int{1, 2} {
		out := Died(&store.Task{Kind: "k", Attempt: 1, Crashes: crashes}, Settings{}, false, 0)
		if out.State != store.Retryable || out.Crashes != crashes || out.Attempt != 0 || out.Delay != 0 {
			t.Errorf("only read ahead, after %d crashes: %+v", crashes, out)
		}
	}
}

func TestADeadlineEndsATask(t *testing.T) {
	claimed := time.Unix(1e9, 0)
	task := &store.Task{Kind: "k", Attempt: 1, EnqueuedAt: claimed.Add(-time.Minute), ClaimedAt: claimed}
	boom, snooze := errors.New("boom"), &SnoozeError{Delay: 10 * time.Second}
	for _, c := range []struct {
		name     string
		settings Settings
		err      error
		want     store.State
	}{
		{"it ended well, if late", Settings{Deadline: claimed.Add(time.Second)}, nil, store.Completed},
		{"it ran until then", Settings{Deadline: claimed.Add(time.Second)}, fmt.Errorf("%w: x", ErrDeadline),
			store.Discarded},
		{"the retry would be late", Settings{Deadline: claimed.Add(5 * time.Second),
			Backoff: Backoff{Shape: Constant, Base: 3 * time.Second}}, boom, store.Discarded},
		{"the retry comes in time", Settings{Deadline: claimed.Add(6 * time.Second),
			Backoff: Backoff{Shape: Constant, Base: 3 * time.Second}}, boom, store.Retryable},
		{"the snooze is too long", Settings{DeadlineIn: 71 * time.Second}, snooze, store.Discarded},
		{"the snooze is not", Settings{DeadlineIn: 73 * time.Second}, snooze, store.Scheduled},
		{"the earlier counts", Settings{DeadlineIn: time.Hour, Deadline: claimed.Add(time.Second)}, snooze, store.Discarded},
		{"handed back", Settings{Deadline: claimed.Add(time.Second)}, ErrShutdown, store.Available},
	} {
		out := After(task, c.settings, End{Err: c.err, Ran: 2 * time.Second}, 0)
		if out.State != c.want || (c.want == store.Discarded) != strings.Contains(out.Reason, "deadline") {
			t.Errorf("%s: %v, %q", c.name, out.State, out.Reason)
		}
	}
	if out := Late(task); out.State != store.Discarded || out.Attempt != 0 || out.Error != "" {
		t.Errorf("%+v", out)
	}
}

func TestOnlyWhatIsEphemeralAndCompletedIsForgotten(t *testing.T) {
	for _, c := range []struct {
		task     store.Task
		settings Settings
		err      error
		want     bool
	}{
		{store.Task{}, Settings{Ephemeral: true}, nil, true},
		{store.Task{}, Settings{}, nil, false},
		{store.Task{}, Settings{Ephemeral: true}, errors.New("x"), false},
		{store.Task{Workflow: store.ID{1}}, Settings{Ephemeral: true}, nil, false},
	} {
		if out := After(&c.task, c.settings, End{Err: c.err}, 0); out.Forget != c.want {
			t.Errorf("%+v: %v", c, out.Forget)
		}
	}
}

func TestExpiredIsADeadLetterWithoutAnAttempt(t *testing.T) {
	out := Expired(&store.Task{Attempt: 1})
	if out.State != store.Discarded || out.Attempt != 0 || out.Reason == "" || out.Error != "" {
		t.Errorf("%+v", out)
	}
}

func TestBackoffNeverOverflows(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := Backoff{
			Shape:  rapid.SampledFrom([]Shape{"", Constant, Linear, Exponential}).Draw(t, "shape"),
			Base:   time.Duration(rapid.Int64Range(0, math.MaxInt64).Draw(t, "base")),
			Max:    time.Duration(rapid.Int64Range(0, math.MaxInt64).Draw(t, "max")),
			Jitter: rapid.Float64Range(0, 1).Draw(t, "jitter"),
		}
		n := rapid.IntRange(1, math.MaxInt32).Draw(t, "attempt")
		delay := b.Delay(n, rapid.Float64Range(0, 0.999999).Draw(t, "random"))
		limit := b.Max
		if limit == 0 {
			limit = max(defaultMax, b.Base)
		}
		if delay < 0 || delay > limit && limit < 1<<53 {
			t.Fatalf("%+v after attempt %d: %v", b, n, delay)
		}
	})
}

func TestBackoffGrows(t *testing.T) {
	for _, c := range []struct {
		b    Backoff
		want []time.Duration
	}{
		{Backoff{}, []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second}},
		{Backoff{Shape: Constant, Base: time.Minute}, []time.Duration{time.Minute, time.Minute}},
		{Backoff{Shape: Linear, Base: 5 * time.Minute}, []time.Duration{5 * time.Minute, 10 * time.Minute, 15 * time.Minute}},
		{Backoff{Shape: Exponential, Base: time.Second, Max: 3 * time.Second},
			[]time.Duration{time.Second, 2 * time.Second, 3 * time.Second}},
	} {
		for i, want := range c.want {
			if got := c.b.Delay(i+1, 0); got != want {
				t.Errorf("%+v attempt %d: got %v, want %v", c.b, i+1, got, want)
			}
		}
	}
}

func TestSettingsSurviveStorage(t *testing.T) {
	for _, s := range []Settings{
		{},
		{MaxAttempts: 3},
		{Timeout: time.Minute, Backoff: Backoff{Shape: Linear, Base: time.Second, Max: time.Hour, Jitter: 0.5}},
		{Metadata: []byte(`{"a":"b"}`), Schedule: "nightly", Tick: time.Unix(1e9, 0).UTC()},
	} {
		stored, err := s.Encode()
		if err != nil {
			t.Fatal(err)
		}
		back, err := DecodeSettings(stored)
		if err != nil || fmt.Sprintf("%+v", back) != fmt.Sprintf("%+v", s) {
			t.Errorf("%+v came back as %+v, %v", s, back, err)
		}
	}
	if stored, _ := (Settings{}).Encode(); stored != nil {
		t.Errorf("default settings are stored as %q", stored)
	}
	if _, err := DecodeSettings([]byte("{")); err == nil {
		t.Error("broken settings are accepted")
	}
}

func TestFingerprintGroupsLikeErrors(t *testing.T) {
	same := [][2]string{
		{"user 17 not found", "user 9000 not found"},
		{`open "/tmp/a": no such file`, `open "/var/b": no such file`},
		{"dial tcp 10.0.0.1:5432: refused", "dial tcp 10.9.8.7:6543: refused"},
		{"task 0193e4a0-6c1f-7d3a-9c59-1f0a2b3c4d5e failed", "task 0193e4a0-6c1f-7d3a-9c59-ffffffffffff failed"},
		{"boom\nline 2", "boom\nanother line"},
	}
	for _, pair := range same {
		if Fingerprint("k", pair[0]) != Fingerprint("k", pair[1]) {
			t.Errorf("differ: %q and %q", pair[0], pair[1])
		}
	}
	if Fingerprint("k", "user not found") == Fingerprint("k", "order not found") {
		t.Error("different errors are one group")
	}
	if Fingerprint("a", "boom") == Fingerprint("b", "boom") {
		t.Error("different kinds are one group")
	}
}

func FuzzFingerprint(f *testing.F) {
	for _, seed := range []string{"", "'", `"unclosed`, "a 'b' c", "\xff\x00", strings.Repeat("x1 ", 100)} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if len(Fingerprint("k", text)) != 16 {
			t.Error(text)
		}
		clean := Clean(text, 32)
		if len(clean) > 32 || !utf8.ValidString(clean) || strings.ContainsRune(clean, 0) {
			t.Errorf("%q is not clean", clean)
		}
	})
}

func TestContextErrorsAreOrdinaryFailures(t *testing.T) {
	if out := After(&store.Task{Attempt: 1}, Settings{}, End{Err: context.DeadlineExceeded},
		0); out.State != store.Retryable {
		t.Errorf("%+v", out)
	}
}

func TestAnAttemptThatWasPutOffBeforeItBeganIsMarked(t *testing.T) {
	for begun, snooze := range map[bool]*SnoozeError{true: {Delay: time.Hour}, false: {Delay: time.Hour, Unbegun: true}} {
		task := &store.Task{Kind: "k", Attempt: 1}
		out := After(task, Settings{}, End{Err: snooze}, 0)
		task.Detail = &store.Detail{Attempts: []store.Attempt{{Outcome: out.State, Fingerprint: out.Fingerprint}}}
		if Unbegun(task) == begun || out.Error != "" || out.Unbegun == begun {
			t.Errorf("begun: %v; %+v", begun, out)
		}
	}
}
