package cli

import (
	"testing"

	"golang.org/x/sys/unix"
)

func TestAWorkerThatRunsCommandsHidesItsMemory(t *testing.T) {
	defer unix.Prctl(unix.PR_SET_DUMPABLE, 1, 0, 0, 0)
	for _, kinds := range []kindFlags{{exec: true}, {commands: []string{"a=true"}}} {
		if err := unix.Prctl(unix.PR_SET_DUMPABLE, 1, 0, 0, 0); err != nil {
			t.Fatal(err)
		}
		if _, err := kinds.mux(); err != nil {
			t.Fatal(err)
		}
		if dumpable, err := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0); dumpable != 0 || err != nil {
			t.Errorf("%+v: dumpable %d, %v", kinds, dumpable, err)
		}
	}
}
