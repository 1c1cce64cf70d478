package cron_test

import (
	"errors"
	"strings"
	"testing"
	"time"
	_ "time/tzdata" // the tests must not depend on the machine's zones

	"github.com/tuskqueue/tusk/cron"
)

func TestParseErrors(t *testing.T) {
	tests := []struct{ expr, want string }{
		{"", "expression is empty, want 5 fields (minute, hour, day of month, month, day of week)"},
		{" \t ", "expression is empty"},
		{"CRON_TZ=UTC", "expression is empty"},
		{"* * * *", "found 4 fields, want 5: minute, hour, day of month, month, day of week"},
		{"0 * * * * *", "found 6 fields, want 5"},
		{"0 0 * * * * 2026",
			"found 7 fields, want 5: minute, hour, day of month, month, day of week (seconds and years are not supported)"},

		{"60 * * * *", `minute field "60": 60 is out of range, allowed are 0-59`},
		{"* 24 * * *", `hour field "24": 24 is out of range, allowed are 0-23`},
		{"* * 0 * *", `day of month field "0": 0 is out of range, allowed are 1-31`},
		{"* * 32 * *", `day of month field "32": 32 is out of range, allowed are 1-31`},
		{"* * * 0 *", `month field "0": 0 is out of range, allowed are 1-12 or JAN-DEC`},
		{"* * * 13 *", `month field "13": 13 is out of range`},
		{"* * * * 8", `day of week field "8": 8 is out of range, allowed are 0-7 or SUN-SAT`},
		{"99999999999999999999 * * * *", "99999999999999999999 is out of range, allowed are 0-59"},

		{"*/0 * * * *", `minute field "*/0": step "0" is out of range, allowed are 1-60`},
		{"*/61 * * * *", `step "61" is out of range, allowed are 1-60`},
		{"* */25 * * *", `hour field "*/25": step "25" is out of range, allowed are 1-24`},
		{"*/ * * * *", `step "" is out of range`},
		{"*/-1 * * * *", `step "-1" is out of range`},
		{"*/5/5 * * * *", `step "5/5" is out of range`},
		{"30-10 * * * *", `minute field "30-10": range 30-10 runs backwards, want low-high within 0-59`},
		{"* * * DEC-JAN *", "range DEC-JAN runs backwards"},
		{"* * * * FRI-SUN", "range FRI-SUN runs backwards, want low-high within 0-7 or SUN-SAT"},
		{"1, * * * *", `minute field "1,": a value is missing, allowed are 0-59`},
		{",1 * * * *", "a value is missing"},
		{"1- * * * *", "a value is missing"},
		{"-1 * * * *", "a value is missing"},
		{"1-2-3 * * * *", `"2-3" is not a value`},
		{"+1 * * * *", `"+1" is not a value, allowed are 0-59`},
		{"1.5 * * * *", `"1.5" is not a value`},
		{"** * * * *", `"**" is not a value`},
		{"*-5 * * * *", `"*" is not a value`},
		{"MON * * * *", `minute field "MON": "MON" is not a value`},
		{"* * * MON *", `month field "MON": "MON" is not a value, allowed are 1-12 or JAN-DEC`},
		{"* * * * JAN", `day of week field "JAN": "JAN" is not a value`},
		{"\x00 * * * *", `minute field "\x00"`},
		{"\xff * * * *", `minute field "\xff"`},
		{"٣ * * * *", "is not a value"},

		{"* * L * *", `day of month field "L": "L": L, W and # are not supported, allowed are 1-31`},
		{"* * L-3 * *", "L, W and # are not supported"},
		{"* * 15W * *", "L, W and # are not supported"},
		{"* * LW * *", "L, W and # are not supported"},
		{"* * * * 5L", `day of week field "5L": "5L": L, W and # are not supported`},
		{"* * * * 5#2", "L, W and # are not supported"},
		{"* * * * mon#1", "L, W and # are not supported"},

		{"* * 31 2 *", `day of month field "31" with month field "2": the schedule never fires`},
		{"* * 31 2,4,6,9,11 *", "the schedule never fires"},
		{"* * 30 FEB ?", "the schedule never fires"},

		{"@fortnightly",
			`macro "@fortnightly" is unknown, want @hourly, @daily, @midnight, @weekly, @monthly, @yearly, @annually or @every`},
		{"@reboot", `macro "@reboot" is unknown`},
		{"@", `macro "@" is unknown`},
		{"@daily 5", `macro @daily stands alone, found "5" after it`},
		{"@every", "@every wants one duration such as 1h30m, found 0 words"},
		{"@every 1h 30m", "found 2 words"},
		{"@every soon", `@every "soon": want a duration such as 90s, 1h30m or 7d`},
		{"@every 0s", `@every "0s" is too short, want at least 1s`},
		{"@every -1s", `@every "-1s": is negative`},
		{"@every 999ms", "is too short"},
		{"@every 1500ms", `@every "1500ms" is not a whole number of seconds`},
		{"@every 9999999h", "want a duration"},

		{"CRON_TZ=Mars/Phobos * * * * *", `zone "Mars/Phobos" is unknown, want an IANA name such as Europe/Berlin or UTC`},
		{"TZ=../../etc/localtime * * * * *", `zone "../../etc/localtime" is not a zone name`},
		{"TZ=/etc/localtime * * * * *", "is not a zone name"},
		{"TZ=Europe/ * * * * *", "is not a zone name"},
		{"TZ=Europe\\Berlin * * * * *", "is not a zone name"},
		{"TZ=Europe * * * * *", "is unknown"},
		{"TZ= * * * * *", "zone is empty"},
		{"TZ=Local * * * * *", `zone "Local" depends on the machine`},
		{"TZ=localtime * * * * *", "depends on the machine"},
		{"TZ=UTC TZ=UTC * * * * *", "found 6 fields"},

		{strings.Repeat(" ", 300), "expression is 300 bytes long, at most 256 are allowed"},
		{strings.Repeat("1,", 118) + "1 * * * *", "expression with its zone is 257 bytes long, at most 256 are allowed"},
	}
	for _, test := range tests {
		s, err := cron.Parse(test.expr)
		if err == nil {
			t.Errorf("Parse(%q) succeeded", test.expr)
			continue
		}
		if !strings.HasPrefix(err.Error(), "cron: ") || !strings.Contains(err.Error(), test.want) {
			t.Errorf("Parse(%q)\n got %v\nwant %s", test.expr, err, test.want)
		}
		if never := strings.Contains(test.want, "never fires"); errors.Is(err, cron.ErrNeverFires) != never {
			t.Errorf("Parse(%q): errors.Is(ErrNeverFires) = %v, want %v", test.expr, !never, never)
		}
		if s != (cron.Schedule{}) {
			t.Errorf("Parse(%q) returned a schedule with its error", test.expr)
		}
	}
}

func TestParseInRejectsBadDefaultZone(t *testing.T) {
	for _, zone := range []string{"", "Local", "Mars/Phobos", "../UTC", "UTC * *"} {
		if _, err := cron.ParseIn("* * * * *", zone); err == nil {
			t.Errorf("ParseIn(zone %q) succeeded", zone)
		}
	}
	if _, err := cron.ParseIn("TZ=UTC * * * * *", "Mars/Phobos"); err != nil {
		t.Errorf("a zone in the expression must win over the default: %v", err)
	}
}

// Expressions on one line are spelled differently and tick alike.
func TestEquivalentExpressions(t *testing.T) {
	groups := [][]string{
		{"0 * * * *", "@hourly", "0 ? ? ? ?", " 0\t*  * * * ", "00 */1 * * *", "*/60 * * * *"},
		{"0 0 * * *", "@daily", "@midnight", "0 0 * JAN-DEC *", "0 0 1-31 * *", "CRON_TZ=UTC 0 0 * * *", "TZ=UTC @daily"},
		{"0 0 * * 0", "@weekly", "0 0 * * 7", "0 0 * * sun", "0 0 ? * SUN", "0 0 * * 7/2", "0 0 */1 * 0"},
		{"0 0 1 * *", "@monthly", "0 0 1 */1 *", "0 0 1,1-1 * *"},
		{"0 0 1 1 *", "@yearly", "@annually", "0 0 1 jan *", "0 0 */31 1 ?"},
		{"0 9 * * 1-5", "0 9 * * MON-FRI", "0 9 * * mon,Tue,WED,4-5"},
		{"0 9 * * 6,0", "0 9 * * 6-7", "0 9 * * SAT,SUN", "0 9 * * */6"},
		{"5,20,35,50 1 * * *", "5/15 1 * * *", "5-59/15 1 * * *"},
		{"@every 2w", "@every 14d", "@every 13d24h", "@every 336h"},
		{"@every 90m", "@every 1h30m", "@every 5400s", "TZ=Asia/Tokyo @every 1h30m0s"},
		{"0 12 * * *", "0 12 1-31 * 1"},
		{"0 12 * * 1-2", "0 12 */1 * 1-2", "0 12 ? * MON,TUE"},
	}
	for _, group := range groups {
		first := mustParse(t, group[0], "UTC")
		for _, expr := range group[1:] {
			other := mustParse(t, expr, "UTC")
			a, b := at("2023-11-28T10:17:00Z"), at("2023-11-28T10:17:00Z")
			for range 200 {
				if a, b = first.Next(a), other.Next(b); !a.Equal(b) {
					t.Errorf("%q ticks at %v, %q at %v", group[0], a, expr, b)
					break
				}
			}
		}
	}
}

func TestString(t *testing.T) {
	tests := []struct{ expr, zone, want string }{
		{" 5  4\t* * MON ", "UTC", "CRON_TZ=UTC 5 4 * * MON"},
		{"5 4 * * *", "Europe/Berlin", "CRON_TZ=Europe/Berlin 5 4 * * *"},
		{"TZ=Asia/Tokyo @daily", "Europe/Berlin", "CRON_TZ=Asia/Tokyo @daily"},
		{"@every 90m", "UTC", "CRON_TZ=UTC @every 90m"},
	}
	for _, test := range tests {
		if got := mustParse(t, test.expr, test.zone).String(); got != test.want {
			t.Errorf("ParseIn(%q, %q).String() = %q, want %q", test.expr, test.zone, got, test.want)
		}
	}
}

func TestWords(t *testing.T) {
	tests := []struct{ expr, want string }{
		{"* * * * *", "every minute"},
		{"*/15 * * * *", "every 15 minutes"},
		{"5/15 * * * *", "at minutes 5, 20, 35 and 50 of every hour"},
		{"@hourly", "every hour"},
		{"5 * * * *", "at minute 5 of every hour"},
		{"@daily", "at 00:00 every day"},
		{"@weekly", "at 00:00 on Sunday"},
		{"@monthly", "at 00:00 on day 1 of the month"},
		{"@yearly", "at 00:00 on day 1 of the month in January"},
		{"30 2 * * MON-FRI", "at 02:30 on Monday to Friday"},
		{"30 2 * * 6,7", "at 02:30 on Saturday and Sunday"},
		{"30 2 * * */6", "at 02:30 on Saturday and Sunday"},
		{"0 9,17 * 1-3,6 *", "at 09:00 and 17:00 every day in January to March and June"},
		{"0 0 13 * 5", "at 00:00 on day 13 of the month or on Friday"},
		{"0 0 1-7,15 * *", "at 00:00 on days 1 to 7 and 15 of the month"},
		{"0 */2 * * *", "every 2 hours"},
		{"30 */6 * * *", "at 00:30, 06:30, 12:30 and 18:30 every day"},
		{"30 */4 * * *", "every 4 hours at minute 30"},
		{"30 9-17 * * 1-5", "every hour from 09:30 to 17:30 on Monday to Friday"},
		{"*/15 9-17 * * *", "every 15 minutes of hours 9 to 17"},
		{"* 2 * * *", "every minute of hour 2"},
		{"0 1,2,5,7,9 * * *", "at minute 0 of hours 1, 2, 5, 7 and 9"},
		{"CRON_TZ=Europe/Berlin 30 2 * * *", "at 02:30 every day, Europe/Berlin time"},
		{"@every 1h", "every hour"},
		{"@every 7d", "every 7 days"},
		{"@every 1s", "every second"},
		{"@every 45m", "every 45 minutes"},
		{"TZ=Asia/Tokyo @every 1h1m30s", "every 1 hour 1 minute 30 seconds"},
	}
	for _, test := range tests {
		if got := mustParse(t, test.expr, "UTC").Words(); got != test.want {
			t.Errorf("%q in words\n got %s\nwant %s", test.expr, got, test.want)
		}
	}
}

func mustParse(t testing.TB, expr, zone string) cron.Schedule {
	t.Helper()
	s, err := cron.ParseIn(expr, zone)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func at(text string) time.Time {
	instant, err := time.Parse(time.RFC3339, text)
	if err != nil {
		panic(err)
	}
	return instant
}
