package access

import (
	"errors"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/bcrypt"

	"github.com/tuskqueue/tusk/store/memory"
)

func TestAnUnknownNameIsAsSlowAsAWrongPassword(t *testing.T) {
	hash, err := hashOf("a password of somebody")
	if err != nil {
		t.Fatal(err)
	}
	somebodys, err1 := bcrypt.Cost([]byte(hash))
	nobodys, err2 := bcrypt.Cost(nobody)
	if err1 != nil || err2 != nil || nobodys != somebodys {
		t.Errorf("nobody's hash costs %d, %v, somebody's %d, %v", nobodys, err2, somebodys, err1)
	}
}

func TestAGuessIsCountedBeforeItIsChecked(t *testing.T) {
	var f failures
	now := time.Now()
	burst := quota{"a", 3}
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
		f.begin(now, quota{"mallory", 2})
	}
	for i := range maxCounted + 10 {
		f.begin(now, quota{fmt.Sprint(i), 2})
		if _, room := f.begin(now, quota{"mallory", 2}); room {
			t.Fatalf("forgotten after %d others", i)
		}
	}
	if len(f.byKey) > maxCounted {
		t.Errorf("%d counters", len(f.byKey))
	}
}

func TestARefusedGuessMakesNoCounter(t *testing.T) {
	var f failures
	now, from := time.Now(), quota{"from", 3}
	for i := range 100 {
		_, room := f.begin(now, from, quota{fmt.Sprint("from ", i), 2})
		if room != (i < 3) {
			t.Fatalf("guess %d: %v", i, room)
		}
	}
	if len(f.byKey) != 4 {
		t.Errorf("%d counters, want the address's and those of three names", len(f.byKey))
	}
}

func TestWhatIsGivenBackLeavesNoCounter(t *testing.T) {
	var f failures
	for i := range 100 {
		g, room := f.begin(time.Now(), quota{"from", 3}, quota{fmt.Sprint("from ", i), 2})
		if !room {
			t.Fatal(i)
		}
		g.right()
	}
	if len(f.byKey) != 0 || f.order.Len() != 0 {
		t.Errorf("%d counters of guesses that were given back", len(f.byKey))
	}
}

func TestNamesThatNobodyCanHaveCountAsOne(t *testing.T) {
	g := Gate{Book: NewBook(memory.New())}
	r := httptest.NewRequest("POST", "/login", nil)
	for _, name := range []string{strings.Repeat("x", 1<<20), strings.Repeat("y", 65), "a/b"} {
		if _, err := g.Login(httptest.NewRecorder(), r, name, "wrong"); !errors.Is(err, ErrWrong) {
			t.Fatal(err)
		}
	}
	for key := range g.failures.byKey {
		if len(key) > 200 {
			t.Errorf("a counter is kept by a key of %d bytes", len(key))
		}
	}
	if len(g.failures.byKey) != 2 {
		t.Errorf("%d counters", len(g.failures.byKey))
	}
}

func TestWhatSucceededIsKeptWhateverIsRefused(t *testing.T) {
	now := time.Now()
	log := []Entry{{WhoID: "ada", Result: "ok", At: now.Add(-AuditAge - time.Hour)},
		{WhoID: "ada", Result: "ok", At: now.Add(-time.Hour)}}
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
