package storetest_test

import (
	"testing"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/memory"
	"github.com/tuskqueue/tusk/store/storetest"
)

// inMemory is the reference engine. All its handles are the same.
var inMemory = storetest.Engine{
	New: func(testing.TB) func() store.Store {
		s := memory.New()
		return func() store.Store { return s }
	},
}

func TestTheReferenceEngineKeepsTheContract(t *testing.T) { storetest.Run(t, inMemory) }

func TestTheReferenceEngineDoesWhatItDoes(t *testing.T) { storetest.Compare(t, inMemory) }

func TestTheReferenceEngineReruns(t *testing.T) { storetest.Reruns(t, inMemory, 20_000) }

func BenchmarkTheReferenceEngine(b *testing.B) { storetest.Bench(b, inMemory) }
