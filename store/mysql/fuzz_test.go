package mysql

import (
	"strings"
	"testing"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/rules"
)

func FuzzSpans(f *testing.F) {
	f.Add([]byte{})
	f.Add(encodeSpans([]span{{place: 1, first: 0, last: 9, lap: 3}, {place: -5, first: -3, last: 3}}))
	f.Add(encodeSpans([]span{{place: 1, first: 32766, last: 32767}}))
	f.Add([]byte("no span"))
	f.Fuzz(func(t *testing.T, b []byte) {
		spans, err := decodeSpans(b)
		if err != nil {
			return
		}
		if again := encodeSpans(spans); string(again) != string(b) {
			t.Fatalf("%x became %x", b, again)
		}
		if len(spans) > 4 { // each may stand for 65,536 tasks
			spans = spans[:4]
		}
		refs := refsOf(spans)
		joined := refsOf(spansOf(refs))
		if len(joined) != len(refs) {
			t.Fatalf("%v: %d tasks became %d", spans, len(refs), len(joined))
		}
	})
}

func FuzzGiven(f *testing.F) {
	long := strings.Repeat("x", 255)
	f.Add([]byte{})
	f.Add(encodeGiven([]*row{{ref: ref{place: -1, n: 32767}, Row: rules.Row{Task: store.Task{Queue: long, Tenant: long,
		Partition: long}}}, {ref: ref{place: 1}}}))
	f.Add([]byte("nobody has a turn"))
	f.Fuzz(func(t *testing.T, b []byte) {
		rows, err := decodeGiven(b)
		again := encodeGiven(rows)
		if err == nil && string(again) != string(b) || !strings.HasPrefix(string(b), string(again)) {
			t.Fatalf("%x became %x", b, again)
		}
	})
}

func FuzzDatabaseURL(f *testing.F) {
	for _, dsn := range []string{"mysql://user:secret@host:3306/db", "mariadb://u@[::1]/db?tls=true", "mysql://",
		"mysql:///db?socket=/run/s", "mysql://u:p%40ss@h/d",
		"mysql://u:p@ss@h/d", "mysql://h/a/b", "postgres://h/d", "mysql://h/d?nonsense=1", "%zz"} {
		f.Add(dsn)
	}
	f.Fuzz(func(t *testing.T, dsn string) {
		const secret = "hunter2hunter2"
		if _, _, err := parse(strings.Replace(dsn, "secret", secret, 1)); err != nil &&
			strings.Contains(err.Error(), secret) && !strings.Contains(dsn, "?") {
			t.Fatalf("the error tells the password: %v", err)
		}
	})
}
