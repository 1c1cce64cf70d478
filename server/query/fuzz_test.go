package query

import (
	"errors"
	"net/url"
	"reflect"
	"testing"
)

// FuzzQuery reads queries from strangers. A rejected query gives an *Error, and an accepted one survives being
// encoded.
func FuzzQuery(f *testing.F) {
	for _, raw := range []string{"state=running,failed&queue=a&queue=b", "from=24h&until=2026-01-01",
		"args=order.id=17&from=1h", "args=.&from=1h", "tag=%00&key=%ff", "state=" + "x,y,z", "from=-1h"} {
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		values, err := url.ParseQuery(raw)
		if err != nil {
			return
		}
		q := FromValues(values)
		var known *Error
		if _, err := q.Filter(); err != nil && !errors.As(err, &known) {
			t.Fatalf("%q: %v", raw, err)
		}
		if again := FromValues(q.Values()); !reflect.DeepEqual(again.Values(), q.Values()) {
			t.Fatalf("%q became %v, and that %v", raw, q.Values(), again.Values())
		}
	})
}
