package store_test

import (
	"reflect"
	"testing"

	"github.com/tuskqueue/tusk/store"
)

func FuzzDurations(f *testing.F) {
	var d store.Durations
	d.Add(1)
	d.Add(1 << 40)
	f.Add(d.Encode())
	f.Add([]byte{})
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, b []byte) {
		var d store.Durations
		if d.Decode(b) != nil {
			return
		}
		var again store.Durations
		if err := again.Decode(d.Encode()); err != nil || !reflect.DeepEqual(d, again) {
			t.Fatalf("%x: %+v became %+v, %v", b, d, again, err)
		}
	})
}
