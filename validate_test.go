package tusk

import (
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// The rows of the bad-input catalogue that concern a producer's input. Each error must name
// the field and the limit, and nothing may be stored.
func TestBadInputIsRefusedByName(t *testing.T) {
	noon := time.Date(2027, 6, 1, 12, 0, 0, 0, time.UTC)
	deep := strings.Repeat("[", 65) + strings.Repeat("]", 65)
	for _, c := range []struct {
		name string
		args Args
		o    Options
		code string
		says string
	}{
		{"no args", nil, Options{}, "missing", "args"},
		{"empty kind", RawArgs{Name: ""}, Options{}, "invalid_name", "kind"},
		{"kind with upper case", RawArgs{Name: "SendEmail"}, Options{}, "invalid_name", "a-z"},
		{"kind with SQL", RawArgs{Name: `x'; drop table task; --`}, Options{}, "invalid_name", "kind"},
		{"kind with a path", RawArgs{Name: "../etc"}, Options{}, "invalid_name", "kind"},
		{"kind with dots", RawArgs{Name: "a..b"}, Options{}, "invalid_name", "without .."},
		{"kind that looks alike", RawArgs{Name: "раураl"}, Options{}, "invalid_name", "kind"},
		{"reserved kind", RawArgs{Name: "_tusk"}, Options{}, "invalid_name", "kind"},
		{"queue with a space", RawArgs{Name: "k"}, Options{Queue: "a b"}, "invalid_name", "queue"},
		{"queue of 65", RawArgs{Name: "k"}, Options{Queue: strings.Repeat("q", 65)}, "invalid_name", "1 to 64"},
		{"tenant with a quote", RawArgs{Name: "k"}, Options{Tenant: `"`}, "invalid_name", "tenant"},
		{"tenant with a wildcard", RawArgs{Name: "k"}, Options{Tenant: "%"}, "invalid_name", "tenant"},
		{"key too long", RawArgs{Name: "k"}, Options{Key: strings.Repeat("k", 256)}, "too_long", "255"},
		{"key with NUL", RawArgs{Name: "k"}, Options{Key: "a\x00"}, "invalid_text", "U+0000"},
		{"key with bad UTF-8", RawArgs{Name: "k"}, Options{Key: "\xff"}, "invalid_utf8", "UTF-8"},
		{"tag with bidi override", RawArgs{Name: "k"}, Options{Tags: []string{"a\u202eb"}}, "invalid_text", "U+202E"},
		{"empty tag", RawArgs{Name: "k"}, Options{Tags: []string{""}}, "invalid_tag", "1 to 64"},
		{"17 tags", RawArgs{Name: "k"}, Options{Tags: strings.Split(strings.Repeat("t,", 16)+"t", ",")}, "too_many", "16"},
		{"attempts of -1", RawArgs{Name: "k"}, Options{MaxAttempts: -1}, "out_of_range", "1000"},
		{"attempts of a billion", RawArgs{Name: "k"}, Options{MaxAttempts: 1e9}, "out_of_range", "1000"},
		{"negative timeout", RawArgs{Name: "k"}, Options{Timeout: -1}, "out_of_range", "timeout"},
		{"timeout of ten years", RawArgs{Name: "k"}, Options{Timeout: 87600 * time.Hour}, "out_of_range", "7d"},
		{"negative delay", RawArgs{Name: "k"}, Options{Delay: -time.Minute}, "invalid_duration", "negative"},
		{"delay beyond reason", RawArgs{Name: "k"}, Options{Delay: math.MaxInt64}, "out_of_range", "3650d"},
		{"run time in year 10000", RawArgs{Name: "k"}, Options{RunAt: time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)},
			"invalid_time", "10000"},
		{"run time in 11 years", RawArgs{Name: "k"}, Options{RunAt: time.Now().AddDate(11, 0, 0)}, "out_of_range", "ahead"},
		{"run time in year 0", RawArgs{Name: "k"}, Options{RunAt: time.Date(0, 1, 1, 0, 0, 0, 0, time.UTC)}, "invalid_time",
			"0000-01-01"},
		{"run time that nobody set", RawArgs{Name: "k"}, Options{RunAt: At(time.Time{})}, "invalid_time", "never set"},
		{"run time of a zero number", RawArgs{Name: "k"}, Options{RunAt: time.UnixMilli(0)}, "invalid_time", "1970-01-01"},
		{"run time before 1971", RawArgs{Name: "k"}, Options{RunAt: time.Unix(31535999, 0)}, "invalid_time", "1971"},
		{"run time and delay", RawArgs{Name: "k"}, Options{RunAt: time.Now(), Delay: time.Hour}, "not_both", "one of them"},
		{"expiry of zero", RawArgs{Name: "k"}, Options{ExpiresAt: At(time.Time{})}, "invalid_time", "expires at"},
		{"deadline of zero", RawArgs{Name: "k"}, Options{Deadline: At(time.Time{})}, "invalid_time", "deadline"},
		{"expiry before the run time", RawArgs{Name: "k"}, Options{RunAt: noon, ExpiresAt: noon.Add(-time.Minute)},
			"before_run_time", "expires at: ends at 2027-06-01T11:59:00Z, but the run time is 2027-06-01T12:00:00Z"},
		{"expiry at the run time", RawArgs{Name: "k"}, Options{RunAt: noon, ExpiresAt: noon}, "before_run_time",
			"12:00:00Z"},
		{"expiry before the delay is over", RawArgs{Name: "k"}, Options{Delay: time.Hour, ExpiresIn: time.Minute},
			"before_run_time", "expires in"},
		{"expiry long before the run time", RawArgs{Name: "k"}, Options{RunAt: noon, ExpiresIn: time.Minute},
			"before_run_time", "expires in"},
		{"deadline before the run time", RawArgs{Name: "k"}, Options{RunAt: noon, Deadline: noon.Add(-time.Minute)},
			"before_run_time", "deadline: ends at 2027-06-01T11:59:00Z"},
		{"deadline before the delay is over", RawArgs{Name: "k"}, Options{Delay: time.Hour, DeadlineIn: time.Hour},
			"before_run_time", "deadline in"},
		{"source time of zero", RawArgs{Name: "k"}, Options{SourceTime: At(time.Time{})}, "invalid_time", "source time"},
		{"source time of a zero number", RawArgs{Name: "k"}, Options{SourceTime: time.UnixMilli(0)}, "invalid_time",
			"source time"},
		{"source time in milliseconds", RawArgs{Name: "k"}, Options{Key: "k", OnConflict: Rerun,
			SourceTime: time.Unix(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).UnixMilli(), 0)}, "out_of_range", "2262-04-11"},
		{"rerun without a key", RawArgs{Name: "k"}, Options{OnConflict: Rerun}, "needs_key", "on conflict"},
		{"source time without rerun", RawArgs{Name: "k"}, Options{Key: "k", SourceTime: time.Now()}, "needs_rerun",
			"source time"},
		{"unknown backoff", RawArgs{Name: "k"}, Options{Backoff: Backoff{Shape: "cubic"}}, "invalid_backoff",
			"constant, linear or exponential"},
		{"backoff without a base", RawArgs{Name: "k"}, Options{Backoff: ExponentialBackoff(0, time.Hour, 0.2)},
			"out_of_range",
			"such as 1s"},
		{"jitter of 2", RawArgs{Name: "k"}, Options{Backoff: Backoff{Base: 1, Jitter: 2}}, "out_of_range", "0 to 1"},
		{"jitter not a number", RawArgs{Name: "k"}, Options{Backoff: Backoff{Base: 1, Jitter: math.NaN()}},
			"out_of_range", "0 to 1"},
		{"metadata too large", RawArgs{Name: "k"}, Options{Metadata: map[string]string{"a": strings.Repeat("x", 17<<10)}},
			"too_large", "16384"},
		{"args that are no JSON", RawArgs{"k", []byte(`{`)}, Options{}, "invalid_json", "JSON"},
		{"two values", RawArgs{"k", []byte(`{} {}`)}, Options{}, "invalid_json", "JSON"},
		{"trailing garbage", RawArgs{"k", []byte(`{}x`)}, Options{}, "invalid_json", "JSON"},
		{"byte order mark", RawArgs{"k", []byte("\xef\xbb\xbf{}")}, Options{}, "invalid_json", "JSON"},
		{"NaN", RawArgs{"k", []byte(`{"a":NaN}`)}, Options{}, "invalid_json", "JSON"},
		{"bad UTF-8", RawArgs{"k", []byte("\"\xff\"")}, Options{}, "invalid_utf8", "UTF-8"},
		{"escaped NUL", RawArgs{"k", []byte(`{"a":"\u0000"}`)}, Options{}, "nul_not_allowed", "u0000"},
		{"lone surrogate", RawArgs{"k", []byte(`"\ud800"`)}, Options{}, "invalid_utf8", "d800"},
		{"lone low surrogate", RawArgs{"k", []byte(`"\udc00 "`)}, Options{}, "invalid_utf8", "dc00"},
		{"too deep", RawArgs{"k", []byte(deep)}, Options{}, "json_too_complex", "64"},
		{"too large", RawArgs{"k", []byte(`"` + strings.Repeat("x", 256<<10) + `"`)}, Options{}, "args_too_large", "262144"},
		{"the input of a stage that is no JSON", NewPipeline("p").Stage("s", nil).Start(json.RawMessage("{")),
			Options{}, "invalid_json", "of json.RawMessage cannot be encoded: unexpected end of JSON input"},
		{"a type that cannot be encoded", channelArgs{}, Options{}, "invalid_json", "channelArgs"},
	} {
		t.Run(c.name, func(t *testing.T) {
			client := &Client{config: ClientConfig{MaxArgsBytes: MaxArgsBytes}}
			_, err := client.Enqueue(t.Context(), c.args, &c.o)
			var bad *InvalidError
			if !errors.As(err, &bad) || !errors.Is(err, ErrInvalid) {
				t.Fatalf("got %v", err)
			}
			if bad.Code != c.code || !strings.Contains(bad.Error(), c.says) {
				t.Errorf("got %s, %v", bad.Code, bad)
			}
			if len(bad.Error()) > 400 {
				t.Errorf("the error repeats its input: %d bytes", len(bad.Error()))
			}
		})
	}
}

type channelArgs struct{ C chan int }

func (channelArgs) Kind() string { return "channel" }

func TestTheZeroTimeIsRefusedInChangesAndSchedules(t *testing.T) {
	client := &Client{config: ClientConfig{MaxArgsBytes: MaxArgsBytes}}
	for _, at := range []time.Time{At(time.Time{}), time.UnixMilli(0), time.Unix(31535999, 0)} {
		for _, op := range []store.Op{store.Retry, store.Reschedule} {
			if err := validateChange(Change{Op: op, RunAt: at}); !errors.Is(err, ErrInvalid) {
				t.Errorf("%v to %v: %v", op, at, err)
			}
		}
		s := Schedule{Name: "s", Spec: "@every 7d", Start: at, Args: RawArgs{Name: "k"}}
		if _, err := client.scheduleDocument(s); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "start") {
			t.Errorf("start %v: %v", at, err)
		}
	}
	if err := validateChange(Change{Op: store.Retry, RunAt: time.Now(), Delay: 1}); !errors.Is(err, ErrInvalid) {
		t.Errorf("a run time and a delay: %v", err)
	}
	if at := time.Unix(31536000, 0); !At(at).Equal(at) || validateInstant("run at", At(at)) != nil {
		t.Error("the first moment of 1971 is refused")
	}
}

// A task whose run time is absolute and whose end is relative, or the other way round, is fine although the client's
// clock is a few minutes off.
func TestATaskIsNotRefusedBecauseOfAClock(t *testing.T) {
	now := time.Now()
	for _, o := range []Options{
		{RunAt: now.Add(5 * time.Minute), ExpiresIn: time.Minute},
		{RunAt: now.Add(5 * time.Minute), DeadlineIn: time.Minute},
		{Delay: 5 * time.Minute, ExpiresAt: now.Add(time.Minute)},
		{Delay: 5 * time.Minute, Deadline: now.Add(time.Minute)},
	} {
		if err := validateEnds(&o, now); err != nil {
			t.Errorf("%+v: %v", o, err)
		}
		o.RunAt, o.Delay = now.Add(12*time.Minute), 0
		if err := validateEnds(&o, now); !errors.Is(err, ErrInvalid) {
			t.Errorf("%+v: %v", o, err)
		}
	}
}

func TestGoodInputIsKeptAsItIs(t *testing.T) {
	client := &Client{config: ClientConfig{MaxArgsBytes: MaxArgsBytes}}
	for _, text := range []string{
		`{}`, `null`, `12345678901234567890.000`, `1e400`, `-0`, `"\\u0000"`, `"\ud83d\ude00"`, `"\\"`, `["{", "\"["]`,
		`{"kind":"a","kind":"b"}`, strings.Repeat("[", 64) + strings.Repeat("]", 64),
	} {
		n, err := client.encode(NewTask{Args: RawArgs{"k", []byte(text)}})
		if err != nil || string(n.Args) != text {
			t.Errorf("%s became %s, %v", text, n.Args, err)
		}
	}
	if n, err := client.encode(NewTask{Args: RawArgs{Name: "k"}}); err != nil || string(n.Args) != "{}" ||
		n.Settings != nil || n.Queue != "default" {
		t.Errorf("%+v, %v", n, err)
	}
}

// A task that is late already is not the mistake of its producer: it is discarded when it is claimed.
func TestAnEndInThePastIsAccepted(t *testing.T) {
	past := time.Now().Add(-time.Hour)
	for _, o := range []Options{{ExpiresAt: past}, {Deadline: past}, {RunAt: past.Add(-time.Hour), ExpiresAt: past},
		{Delay: time.Hour, ExpiresIn: 2 * time.Hour, DeadlineIn: 3 * time.Hour}} {
		if _, err := encodeOptions(&o); err != nil {
			t.Errorf("%+v: %v", o, err)
		}
	}
}

func TestABatchWithABadTaskNamesAllOfThem(t *testing.T) {
	client := &Client{config: ClientConfig{MaxArgsBytes: MaxArgsBytes}}
	good, bad := NewTask{Args: RawArgs{Name: "k"}}, NewTask{Args: RawArgs{Name: "K"}}
	_, err := client.EnqueueMany(t.Context(), []NewTask{good, bad, good, bad})
	var batch *BatchError
	if !errors.As(err, &batch) || len(batch.Items) != 2 || batch.Items[1] == nil || batch.Items[3] == nil ||
		!errors.Is(err, ErrInvalid) {
		t.Error(err)
	}
	_, err = client.EnqueueMany(t.Context(), make([]NewTask, MaxBatch+1))
	if err == nil || !strings.Contains(err.Error(), "10000") {
		t.Error(err)
	}
	if got, err := client.EnqueueMany(t.Context(), nil); got != nil || err != nil {
		t.Error("an empty batch:", got, err)
	}
}

func TestRunTimesAreRoundedUp(t *testing.T) {
	at := time.Unix(1, 1)
	if got := ceilMillisecond(at); got.Before(at) || got.Sub(at) > time.Millisecond {
		t.Error(got)
	}
	if !ceilMillisecond(time.Time{}).IsZero() {
		t.Error("no time became a time")
	}
}

func FuzzArgs(f *testing.F) {
	for _, seed := range []string{`{}`, `"\u0000"`, `"\ud800\udc00"`, `[[[]]]`, `{"a":"\\"}`, "\xff"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, args []byte) {
		if err := validateArgs(args, 1<<20); err != nil && !errors.Is(err, ErrInvalid) {
			t.Errorf("%q: %v", args, err)
		}
	})
}

func FuzzName(f *testing.F) {
	f.Add("a.b:c")
	f.Fuzz(func(t *testing.T, name string) {
		if ValidateName("queue", name) == nil && strings.ContainsAny(name, "'\"`%*/\\<> \n\x00") {
			t.Errorf("%q is accepted", name)
		}
	})
}

func TestAClientNeedsAStore(t *testing.T) {
	if _, err := NewClient(nil, nil); !errors.Is(err, ErrInvalid) {
		t.Error(err)
	}
	var nothing store.Store
	if _, ok := store.As[store.Notifier](nothing); ok {
		t.Error("a nil store has a capability")
	}
}
