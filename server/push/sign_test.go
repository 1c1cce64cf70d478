package push

import (
	"errors"
	"net/http"
	"testing"
	"time"
)

// The test vector comes from the scheme's own libraries.
func TestSignaturesAreThoseOfStandardWebhooks(t *testing.T) {
	const secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	h, body, at := http.Header{}, []byte(`{"test": 2432232314}`), time.Unix(1614265330, 0)
	if err := Sign(h, "msg_p5jXN8AQM9LWM0D4loKWxJek", at, body, []string{secret}); err != nil {
		t.Fatal(err)
	}
	if got := h.Get("webhook-signature"); got != "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=" {
		t.Error(got)
	}
	if err := Verify(secret, h, body, at.Add(time.Minute)); err != nil {
		t.Error(err)
	}
	refused := func(what, secret string, h http.Header, body []byte, now time.Time) {
		t.Helper()
		if err := Verify(secret, h, body, now); !errors.Is(err, ErrSignature) {
			t.Errorf("%s: %v", what, err)
		}
	}
	refused("another body", secret, h, []byte(`{"test": 1}`), at)
	refused("another secret", NewSecret(), h, body, at)
	refused("too old", secret, h, body, at.Add(6*time.Minute))
	refused("from the future", secret, h, body, at.Add(-6*time.Minute))
	refused("no headers", secret, http.Header{}, body, at)
	for _, name := range []string{headerID, headerTimestamp, headerSignature} {
		changed := h.Clone()
		changed.Set(name, "1614265331")
		refused(name, secret, changed, body, at)
	}
	// Two secrets sign together; either is enough.
	other := NewSecret()
	if err := Sign(h, "id", at, body, []string{other, secret}); err != nil {
		t.Fatal(err)
	}
	for _, s := range []string{other, secret} {
		if err := Verify(s, h, body, at); err != nil {
			t.Error(err)
		}
	}
	if err := Verify("whsec_%", h, body, at); err == nil {
		t.Error("a secret that is none is taken")
	}
}

func TestASecretThatWasReplacedSignsForADay(t *testing.T) {
	now := time.Now()
	d := document{Secrets: []secret{{Text: "new"}, {Text: "old", Until: now.Add(time.Hour)},
		{Text: "older", Until: now.Add(-time.Hour)}}}
	if got := d.usable(now); len(got) != 2 || got[0] != "new" || got[1] != "old" {
		t.Error(got)
	}
}
