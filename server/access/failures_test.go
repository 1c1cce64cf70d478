package access

import (
	"fmt"
	"testing"
	"time"
)

func TestAGuessIsCountedBeforeItIsChecked(t *testing.T) {
	var f failures
	now := time.Now()
	burst := map[string]int{"a": 3}
	for i := range 3 {
		if _, room := f.begin(now, burst); !room {
			t.Fatal(i)
		}
	}
	if _, room := f.begin(now, burst); room {
		t.Error("a fourth guess is let through while three are being checked")
	}
	if _, room := f.begin(now.Add(refill), burst); !room {
		t.Error("nothing is refilled")
	}
	g, room := f.begin(now.Add(2*refill), burst)
	if !room {
		t.Fatal("no room")
	}
	g.right()
	if _, room := f.begin(now.Add(2*refill), burst); !room {
		t.Error("what was right is not given back")
	}
}

func TestTheCounterThatWasUsedLongestAgoGoesFirst(t *testing.T) {
	var f failures
	now := time.Now()
	for range 2 {
		f.begin(now, map[string]int{"mallory": 2})
	}
	for i := range maxCounted + 10 {
		f.begin(now, map[string]int{fmt.Sprint(i): 2})
		if _, room := f.begin(now, map[string]int{"mallory": 2}); room {
			t.Fatalf("forgotten after %d others", i)
		}
	}
	if len(f.byKey) > maxCounted {
		t.Errorf("%d counters", len(f.byKey))
	}
}

func TestWhatSucceededIsKeptWhateverIsRefused(t *testing.T) {
	now := time.Now()
	log := []Entry{{WhoID: "ada", Result: "ok", At: now.Add(-AuditAge - time.Hour)}, {WhoID: "ada", Result: "ok", At: now.Add(-time.Hour)}}
	for range MaxRefused + 100 {
		log = append(log, Entry{WhoID: "mallory", Result: "forbidden", At: now})
	}
	gone := surplus(log, now)
	if len(gone) != 101 {
		t.Errorf("%d entries go", len(gone))
	}
	for _, i := range gone {
		if i == 1 {
			t.Error("what succeeded goes")
		}
	}
	log = log[:0]
	log = append(log, Entry{WhoID: "ada", Result: "ok", At: now})
	for range MaxAudit + 10 {
		log = append(log, Entry{WhoID: "mallory", Result: "ok", At: now})
	}
	for _, i := range surplus(log, now) {
		if i == 0 {
			t.Error("one who does much pushes out what another did")
		}
	}
}
