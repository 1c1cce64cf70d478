package duration

import (
	"testing"
	"time"
)

func TestDurationsTakeDaysAndWeeks(t *testing.T) {
	for text, want := range map[string]string{"90s": "1m30s", "7d": "168h0m0s", "1d12h": "36h0m0s", "2w": "336h0m0s",
		"0.5d": "12h0m0s", "0s": "0s", "90": "1m30s", "1.5": "1.5s", "0": "0s"} {
		if got, err := Parse(text); err != nil || got.String() != want {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "-5", "1e3", "5.", "1d5", "99999999999", "d", "-1d", "5mo", "1d-5h", "9e18s", "1e5d",
		"99999999w", "1y", "NaNs", "106751d24h24h"} {
		if got, err := Parse(text); err == nil {
			t.Errorf("%q: %v", text, got)
		}
	}
}

func TestAUnitIsAskedForWhereANumberMeansSomethingElse(t *testing.T) {
	for text, want := range map[string]string{"30d": "720h0m0s", "72h": "72h0m0s", "0": "0s", "30": "", "1.5": ""} {
		got, err := ParseUnit(text)
		if want == "" && err == nil || want != "" && (err != nil || got.String() != want) {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
}

func TestNoDurationIsRefusedWhereItWouldMeanTheDefault(t *testing.T) {
	for _, text := range []string{"0", "0s", "0d"} {
		if _, err := ParseKept(text); err == nil {
			t.Errorf("kept for %s", text)
		}
		if _, err := ParsePositive(text); err == nil {
			t.Errorf("%s is above 0", text)
		}
	}
	if d, err := ParseKept("30d"); err != nil || d != 720*time.Hour {
		t.Error(d, err)
	}
}

func TestDurationsAreWrittenAsTheyAreRead(t *testing.T) {
	for _, text := range []string{"1m30s", "24h", "1h30m", "36h", "7d", "3650d", "100ms", "0s", "10m", "1h0m5s"} {
		d, err := Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := Text(d); got != text {
			t.Errorf("%s: %s", text, got)
		}
	}
	if got := Text(-time.Hour); got != "-1h" {
		t.Error(got)
	}
}
