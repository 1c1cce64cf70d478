package storetest_test

import (
	"testing"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/memory"
	"github.com/tuskqueue/tusk/store/storetest"
)

func TestMemory(t *testing.T) {
	storetest.Run(t, storetest.Engine{New: func(testing.TB) func() store.Store {
		s := memory.New()
		return func() store.Store { return s }
	}})
}
