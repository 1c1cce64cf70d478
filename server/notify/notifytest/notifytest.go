// Package notifytest gives tests a sender whose receivers are on this machine.
//
// It may use package notify.
package notifytest

import (
	"testing"

	"github.com/tuskqueue/tusk/server/notify"
)

// Sender returns a sender that may call 127.0.0.1 without TLS. It is closed with the test.
func Sender(t testing.TB) *notify.Sender {
	t.Helper()
	sender, err := notify.New([]string{"127.0.0.1"}, "", "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(sender.Close)
	return sender
}
