package tusk

import (
	"bytes"
	"errors"
	"testing"
	"time"
)

func TestIdsAreUUIDsOfVersion7ThatGrowEvenWhenTheClockStandsStill(t *testing.T) {
	var m minter
	at := time.UnixMilli(1_700_000_000_123).Add(999_999)
	before := m.mint(at)
	if text := before.String(); text[:15] != "018bcfe5-687b-7" || text[15:18] != "f42" {
		t.Errorf("%s does not tell its time", text)
	}
	for i := range 10_000 {
		if i == 5_000 {
			at = at.Add(-time.Hour)
		}
		id := m.mint(at)
		if bytes.Compare(id[:], before[:]) <= 0 {
			t.Fatalf("%s after %s", id, before)
		}
		if id[6]>>4 != 7 || id[8]>>6 != 2 {
			t.Fatalf("%s is no UUID of version 7", id)
		}
		before = id
	}
}

func TestIdsOfOneInstantDifferBetweenProcesses(t *testing.T) {
	var a, b minter
	at := time.Now()
	for range 1000 {
		if x, y := a.mint(at), b.mint(at); x == y || bytes.Equal(x[8:], y[8:]) {
			t.Fatalf("%s and %s", x, y)
		}
	}
}

func TestTheIDOfZerosIsRefused(t *testing.T) {
	if _, err := ParseID("00000000-0000-0000-0000-000000000000"); !errors.Is(err, ErrInvalid) {
		t.Errorf("in a filter it stands for all tasks: %v", err)
	}
}
