package tusk

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/tuskqueue/tusk/internal/duration"
	"github.com/tuskqueue/tusk/internal/lifecycle"
	"github.com/tuskqueue/tusk/internal/payload"
	"github.com/tuskqueue/tusk/internal/tick"
)

// Limits of a task. The error of a task that exceeds one names the limit.
const (
	MaxArgsBytes     = 256 << 10 // default; ClientConfig can change it
	MaxArgsDepth     = 64        // nesting of arrays and objects
	MaxKeyBytes      = 255       // of a key or a partition
	MaxTags          = 16
	MaxTagBytes      = 64       // of each tag
	MaxMetadataBytes = 16 << 10 // of the metadata as JSON
	MaxAttemptsLimit = 1000
	MaxTimeout       = 7 * 24 * time.Hour
	MaxAhead         = 10 * 365 * 24 * time.Hour // how far ahead a task may be scheduled
	MaxBatch         = 10000                     // tasks in one EnqueueMany call
	MaxOutputBytes   = 256 << 10                 // of the output as JSON

	hardMaxArgsBytes = 16 << 20
)

// ValidateName validates the name of a queue, a kind, a tenant or a schedule; what says which, for the error. The
// error is an *InvalidError.
//
// A name has 1 to 64 of the characters a-z 0-9 _ . : - and begins with a letter or a digit. It must not contain
// two consecutive dots. Only lower case is allowed, so that no two names differ only by case, and nothing needs
// escaping in SQL, HTML, a path or a shell.
func ValidateName(what, name string) error {
	if !isName(name) {
		return invalid(what, "invalid_name",
			"%q is not a name: want 1 to 64 of a-z 0-9 _ . : - that begin with a letter or digit, without ..", cutText(name))
	}
	return nil
}

func isName(name string) bool {
	for i := range len(name) {
		switch c := name[i]; {
		case 'a' <= c && c <= 'z' || '0' <= c && c <= '9':
		case i > 0 && (c == '_' || c == ':' || c == '-'):
		case i > 0 && c == '.' && name[i-1] != '.':
		default:
			return false
		}
	}
	return 1 <= len(name) && len(name) <= 64
}

// ReservedKey reports whether a key has the form of the keys that Tusk generates for schedules and for
// Options.Unique. Callers cannot enqueue with such a key.
func ReservedKey(key string) bool {
	return strings.HasPrefix(key, uniquePrefix) || strings.HasPrefix(key, tick.KeyPrefix)
}

func validateOwnKey(key string) error {
	if ReservedKey(key) {
		return invalid("key", "reserved",
			"%q begins with %s or %s, which are kept for unique tasks and schedules: take another key, or set unique",
			cutText(key), uniquePrefix, tick.KeyPrefix)
	}
	return validateKey("key", key)
}

func validateKey(field, key string) error {
	if len(key) > MaxKeyBytes {
		return invalid(field, "too_long", "has %d bytes, at most %d are allowed", len(key), MaxKeyBytes)
	}
	return validateText(field, key)
}

func validateTags(tags []string) error {
	if len(tags) > MaxTags {
		return invalid("tags", "too_many", "has %d tags, at most %d are allowed", len(tags), MaxTags)
	}
	for _, tag := range tags {
		if tag == "" || len(tag) > MaxTagBytes {
			return invalid("tags", "invalid_tag", "%q: a tag has 1 to %d bytes", cutText(tag), MaxTagBytes)
		}
		if err := validateText("tags", tag); err != nil {
			return err
		}
	}
	return nil
}

// validateText refuses text that some engine cannot store or a screen cannot show.
func validateText(field, text string) error {
	if !utf8.ValidString(text) {
		return invalid(field, "invalid_utf8", "is not valid UTF-8")
	}
	for _, r := range text {
		if unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) {
			return invalid(field, "invalid_text", "has the control character %U", r)
		}
	}
	return nil
}

// validateArgs validates the JSON of a task's args.
func validateArgs(args []byte, limit int) error {
	switch {
	case len(args) > limit:
		return invalid("args", "args_too_large",
			"has %d bytes, at most %d are allowed: let an object store take larger ones, or pass a reference", len(args), limit)
	case !utf8.Valid(args):
		return invalid("args", "invalid_utf8", "is not valid UTF-8")
	case !json.Valid(args):
		return invalid("args", "invalid_json", "is not one JSON value: %v", jsonProblem(args))
	case envelopeOf(args) != nil:
		return invalid("args", "reserved",
			`has "$encrypted" as encrypted args do, which only their own task can read: pass the args in the clear`)
	case payload.Reserved(args):
		return errReserved("args")
	}
	return checkJSON(args)
}

func jsonProblem(args []byte) error {
	var v any
	return json.Unmarshal(args, &v)
}

// checkJSON checks valid JSON for what not every engine can store: NUL, lone surrogates and excessive nesting.
func checkJSON(text []byte) error {
	if bytes.Contains(text, []byte(`\u`)) {
		if err := checkEscapes(text); err != nil {
			return err
		}
	}
	if bytes.Count(text, []byte{'{'})+bytes.Count(text, []byte{'['}) <= MaxArgsDepth {
		return nil
	}
	depth, quoted := 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			if depth++; depth > MaxArgsDepth {
				return invalid("args", "json_too_complex", "is nested deeper than %d levels", MaxArgsDepth)
			}
		case c == '}' || c == ']':
			depth--
		}
	}
	return nil
}

func checkEscapes(text []byte) error {
	for i := 0; i < len(text); i++ {
		if text[i] != '\\' {
			continue
		}
		i++
		if text[i] != 'u' {
			continue
		}
		code := hex4(text[i+1:])
		i += 4
		switch {
		case code == 0:
			return invalid("args", "nul_not_allowed", `has the character \u0000, which not every database can store`)
		case code >= 0xDC00 && code <= 0xDFFF:
			return invalid("args", "invalid_utf8", `has the lone surrogate \u%04x`, code)
		case code >= 0xD800 && code <= 0xDBFF:
			if !lowSurrogateFollows(text[i+1:]) {
				return invalid("args", "invalid_utf8", `has the lone surrogate \u%04x`, code)
			}
			i += 6
		}
	}
	return nil
}

func lowSurrogateFollows(text []byte) bool {
	if len(text) < 6 || text[0] != '\\' || text[1] != 'u' {
		return false
	}
	code := hex4(text[2:])
	return code >= 0xDC00 && code <= 0xDFFF
}

// hex4 decodes four hexadecimal digits of JSON that is known to be valid.
func hex4(digits []byte) (code rune) {
	for _, c := range digits[:4] {
		switch {
		case c >= 'a':
			c -= 'a' - 10
		case c >= 'A':
			c -= 'A' - 10
		default:
			c -= '0'
		}
		code = code<<4 | rune(c)
	}
	return code
}

func validateSettings(s lifecycle.Settings) error {
	if s.MaxAttempts < 0 || s.MaxAttempts > MaxAttemptsLimit {
		return invalid("max attempts", "out_of_range", "is %d, want 1 to %d (0: the default, %d)", s.MaxAttempts,
			MaxAttemptsLimit, lifecycle.DefaultMaxAttempts)
	}
	if s.Timeout < 0 || s.Timeout > MaxTimeout {
		return invalid("timeout", "out_of_range", "is %s, want up to %s (0: none)", duration.Text(s.Timeout),
			duration.Text(MaxTimeout))
	}
	if s.Stall < 0 || s.Stall > MaxTimeout {
		return invalid("stall timeout", "out_of_range", "is %s, want up to %s (0: none)", duration.Text(s.Stall),
			duration.Text(MaxTimeout))
	}
	if s.Weight < 0 || s.Weight > maxLimit {
		return invalid("weight", "out_of_range", "is %d, want 1 to %d (0: 1)", s.Weight, maxLimit)
	}
	if len(s.Metadata) > MaxMetadataBytes {
		return invalid("metadata", "too_large", "has %d bytes, at most %d are allowed", len(s.Metadata), MaxMetadataBytes)
	}
	return validateBackoff(s.Backoff)
}

func validateBackoff(b Backoff) error {
	switch b.Shape {
	case "", lifecycle.Constant, lifecycle.Linear, lifecycle.Exponential:
	default:
		return invalid("backoff", "invalid_backoff", "has the unknown shape %q: want constant, linear or exponential",
			cutText(string(b.Shape)))
	}
	if b.Base == 0 && b != (Backoff{}) {
		return invalid("backoff", "out_of_range", "has no base, so every attempt would follow the last one at once: "+
			"set a base, such as 1s, or leave the whole backoff out for the default; constant:1ms retries at once")
	}
	if b.Base < 0 || b.Max < 0 || b.Base > MaxAhead || b.Max > MaxAhead {
		return invalid("backoff", "out_of_range", "base %s and max %s must be between 0 and %s",
			duration.Text(b.Base), duration.Text(b.Max), duration.Text(MaxAhead))
	}
	if b.Max > 0 && b.Max < b.Base {
		return invalid("backoff", "out_of_range",
			"has the base %s above its max %s: exchange them, or leave the max out",
			duration.Text(b.Base), duration.Text(b.Max))
	}
	if !(b.Jitter >= 0 && b.Jitter <= 1) {
		return invalid("backoff", "out_of_range", "jitter is %v, want 0 to 1", b.Jitter)
	}
	return nil
}

// validateConflict validates what to do if a key is taken.
func validateConflict(o *Options) error {
	switch {
	case o.OnConflict != Skip && o.Key == "" && o.Unique == nil:
		return invalid("on conflict", "needs_key", "is for tasks with a key: give them one, or leave it out")
	case !o.SourceTime.IsZero() && o.OnConflict != Rerun:
		return invalid("source time", "needs_rerun", "is for keys with on conflict rerun: set that, or leave it out")
	}
	return nil
}

// cutText shortens input that an error quotes.
func cutText(text string) string {
	const limit = 64
	if len(text) <= limit {
		return text
	}
	return strings.ToValidUTF8(text[:limit], "") + "…"
}

func within[T int | time.Duration](field string, value, low, high T) error {
	if value < low || value > high {
		return invalid(field, "out_of_range", "is %s, want %s to %s", inWords(value), inWords(low), inWords(high))
	}
	return nil
}

// inWords formats a number, or a duration in the form that people write.
func inWords[T int | time.Duration](value T) string {
	if d, ok := any(value).(time.Duration); ok {
		return duration.Text(d)
	}
	return fmt.Sprint(value)
}
