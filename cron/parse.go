package cron

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/tuskqueue/tusk/internal/duration"
)

// MaxLength is the length of the longest accepted expression in bytes, including its zone.
const MaxLength = 256

// ErrNeverFires is wrapped by the error for an expression that no date matches,
// such as 31 February.
var ErrNeverFires = errors.New("the schedule never fires")

// Parse parses an expression. Its zone is UTC unless it names one itself.
func Parse(expr string) (Schedule, error) { return ParseIn(expr, "UTC") }

// ParseIn parses an expression. Its zone is the given IANA zone unless it names one itself.
//
// The zone is a name and not a *time.Location because a schedule outlives the process: its String
// has to mean the same on every machine.
func ParseIn(expr, zone string) (Schedule, error) {
	s, err := parse(expr, zone)
	if err != nil {
		return Schedule{}, fmt.Errorf("cron: %w", err)
	}
	return s, nil
}

const fieldOrder = "minute, hour, day of month, month, day of week"

var macros = map[string]string{
	"@hourly":   "0 * * * *",
	"@daily":    "0 0 * * *",
	"@midnight": "0 0 * * *",
	"@weekly":   "0 0 * * 0",
	"@monthly":  "0 0 1 * *",
	"@yearly":   "0 0 1 1 *",
	"@annually": "0 0 1 1 *",
}

func parse(expr, zone string) (Schedule, error) {
	if len(expr) > MaxLength {
		return Schedule{}, fmt.Errorf("expression is %d bytes long, at most %d are allowed", len(expr), MaxLength)
	}
	words := strings.Fields(expr)
	if len(words) > 0 {
		if name, ok := cutZonePrefix(words[0]); ok {
			zone, words = name, words[1:]
		}
	}
	if len(words) == 0 {
		return Schedule{}, fmt.Errorf("expression is empty, want 5 fields (%s), a macro such as @daily, or @every",
			fieldOrder)
	}
	loc, err := loadZone(zone)
	if err != nil {
		return Schedule{}, err
	}
	s := Schedule{text: strings.Join(words, " "), zone: zone, loc: loc}
	if n := len(s.String()); n > MaxLength {
		return Schedule{}, fmt.Errorf("expression with its zone is %d bytes long, at most %d are allowed", n, MaxLength)
	}
	switch {
	case words[0] == "@every":
		s.period, err = parsePeriod(words[1:])
	case strings.HasPrefix(words[0], "@"):
		expansion, ok := macros[words[0]]
		switch {
		case !ok:
			err = fmt.Errorf(
				"macro %q is unknown, want @hourly, @daily, @midnight, @weekly, @monthly, @yearly, @annually or @every", words[0])
		case len(words) > 1:
			err = fmt.Errorf("macro %s stands alone, found %q after it", words[0], words[1])
		default:
			s.fields, err = parseFields(strings.Fields(expansion))
		}
	default:
		s.fields, err = parseFields(words)
	}
	return s, err
}

func cutZonePrefix(word string) (zone string, ok bool) {
	if zone, ok = strings.CutPrefix(word, "CRON_TZ="); ok {
		return zone, true
	}
	return strings.CutPrefix(word, "TZ=")
}

// loadZone accepts only IANA names. It refuses names that mean something else on another machine,
// and anything that could leave the zone directory.
func loadZone(name string) (*time.Location, error) {
	const allowed = "want an IANA name such as Europe/Berlin or UTC"
	switch {
	case name == "":
		return nil, fmt.Errorf("zone is empty, %s", allowed)
	case strings.EqualFold(name, "Local") || strings.EqualFold(name, "localtime"):
		return nil, fmt.Errorf("zone %q depends on the machine, %s", name, allowed)
	}
	for _, part := range strings.Split(name, "/") {
		if part == "" || strings.Trim(part, zoneLetters) != "" {
			return nil, fmt.Errorf("zone %q is not a zone name, %s", name, allowed)
		}
	}
	loc, err := time.LoadLocation(name)
	if err != nil {
		return nil, fmt.Errorf("zone %q is unknown, %s", name, allowed)
	}
	return loc, nil
}

const zoneLetters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_+-"

func parsePeriod(words []string) (seconds int64, err error) {
	if len(words) != 1 {
		return 0, fmt.Errorf("@every wants one duration such as 1h30m, found %d words", len(words))
	}
	period, err := duration.Parse(words[0])
	switch {
	case err != nil:
		return 0, fmt.Errorf("@every %q: %w", words[0], err)
	case period < time.Second:
		return 0, fmt.Errorf("@every %q is too short, want at least 1s", words[0])
	case period%time.Second != 0:
		return 0, fmt.Errorf("@every %q is not a whole number of seconds", words[0])
	}
	return int64(period / time.Second), nil
}

func parseFields(words []string) (f fields, err error) {
	if len(words) != 5 {
		return f, fmt.Errorf("found %d fields, want 5: %s (seconds and years are not supported)", len(words), fieldOrder)
	}
	var parsed [5]field
	for i, word := range words {
		if parsed[i], err = kinds[i].parse(word); err != nil {
			return f, fmt.Errorf("%s field %q: %w", kinds[i].name, word, err)
		}
	}
	minute, hour, dom, month, dow := parsed[0], parsed[1], parsed[2], parsed[3], parsed[4]
	f = fields{
		minute: minute.mask, hour: hour.mask, dom: dom.mask, month: month.mask,
		dow:    (dow.mask | dow.mask>>7) & (1<<7 - 1), // Sunday is 0 or 7
		domAny: dom.any, dowAny: dow.any,
		elapsed: hour.wild,
	}
	if !f.fires() {
		return f, fmt.Errorf("day of month field %q with month field %q: %w", words[2], words[3], ErrNeverFires)
	}
	return f, nil
}
