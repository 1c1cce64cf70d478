package push

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// The scheme of standardwebhooks.com: HMAC-SHA256 over "id.timestamp.body".
const (
	headerID        = "webhook-id"
	headerTimestamp = "webhook-timestamp"
	headerSignature = "webhook-signature"

	secretPrefix = "whsec_"
	version      = "v1,"
	secretBytes  = 32
	tolerance    = 5 * time.Minute
)

// ErrSignature says that a request was not signed with the secret, or was signed too long ago.
var ErrSignature = errors.New("the webhook's signature is not valid")

// NewSecret returns a new secret as text.
func NewSecret() string {
	key := make([]byte, secretBytes)
	rand.Read(key) // never fails, as its documentation promises
	return secretPrefix + base64.StdEncoding.EncodeToString(key)
}

func keyOf(secret string) ([]byte, error) {
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, secretPrefix))
	if err != nil || len(key) == 0 {
		return nil, errors.New("the secret of a webhook is whsec_ and base64")
	}
	return key, nil
}

// Sign sets the three headers of a webhook, with a signature by each secret.
func Sign(h http.Header, id string, at time.Time, body []byte, secrets []string) error {
	stamp := strconv.FormatInt(at.Unix(), 10)
	signatures := make([]string, len(secrets))
	for i, secret := range secrets {
		key, err := keyOf(secret)
		if err != nil {
			return err
		}
		signatures[i] = version + base64.StdEncoding.EncodeToString(digest(key, id, stamp, body))
	}
	h.Set(headerID, id)
	h.Set(headerTimestamp, stamp)
	h.Set(headerSignature, strings.Join(signatures, " "))
	return nil
}

func digest(key []byte, id, stamp string, body []byte) []byte {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(id + "." + stamp + "."))
	mac.Write(body)
	return mac.Sum(nil)
}

// Verify is for the receiver: it checks the signature of a request, and that it is at most five minutes old. The
// error is ErrSignature, or describes a bad secret.
func Verify(secret string, h http.Header, body []byte, now time.Time) error {
	key, err := keyOf(secret)
	if err != nil {
		return err
	}
	stamp := h.Get(headerTimestamp)
	seconds, err := strconv.ParseInt(stamp, 10, 64)
	if err != nil {
		return fmt.Errorf("%w: no timestamp", ErrSignature)
	}
	if age := now.Sub(time.Unix(seconds, 0)); age > tolerance || age < -tolerance {
		return fmt.Errorf("%w: it is from another time", ErrSignature)
	}
	want := digest(key, h.Get(headerID), stamp, body)
	for _, text := range strings.Fields(h.Get(headerSignature)) {
		rest, ok := strings.CutPrefix(text, version)
		got, err := base64.StdEncoding.DecodeString(rest)
		if ok && err == nil && hmac.Equal(got, want) {
			return nil
		}
	}
	return ErrSignature
}
