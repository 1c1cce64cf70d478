package store

import (
	"cmp"
	"time"
)

// Record is a small named document.
type Record struct {
	Kind, Name string // not empty
	Version    int64  // 0 if it does not exist
	Body       []byte
	UpdatedAt  time.Time // by the engine's clock; every write sets it
}

// RecordFilter selects documents of one kind. They are sorted by name.
type RecordFilter struct {
	Kind  string
	Names []string // only documents with these names; nil means all
	After string   // only names that follow this one
	Limit int      // maximum number of documents; 0 means all
	// Backward starts with the last name, and Before leaves only names that precede it; empty means all. Neither
	// can be combined with Names or After, or used with kinds that begin with ManyRecords.
	Backward bool
	Before   string
}

// Until is the name before which a list that runs backward starts. It follows all names in use.
func (f *RecordFilter) Until() string { return cmp.Or(f.Before, "\U0010FFFF") }

// ManyRecords is the prefix of the kinds that may have millions of documents. The names of such documents consist of
// letters, digits and dashes, at most 100 bytes. Read them by Names. A list of them, which needs a Limit, may omit
// what was written in the last seconds.
const ManyRecords = "many:"

// PutRecord writes a record; see Recorder.
type PutRecord struct {
	Record Record
	Tasks  []NewTask
	Term   int64 // the leader's term that the write requires; 0: none
}

// Updated is the result of UpdateRecords for one document.
type Updated struct {
	Version  int64      // the new version; 0 if the stored version was not the given one: nothing was written
	Enqueued []Enqueued // the results for its tasks
}

// EnqueueUpdated enqueues the tasks of the documents that UpdateRecords has rewritten, in one call. It is a helper
// for engines. The versions in updated must be set.
func EnqueueUpdated(puts []PutRecord, updated []Updated, enqueue func([]NewTask) ([]Enqueued, error)) error {
	var tasks []NewTask
	for i := range puts {
		if updated[i].Version != 0 {
			tasks = append(tasks, puts[i].Tasks...)
		}
	}
	if len(tasks) == 0 {
		return nil
	}
	results, err := enqueue(tasks)
	if err != nil {
		return err
	}
	for i := range puts {
		if n := len(puts[i].Tasks); updated[i].Version != 0 {
			updated[i].Enqueued, results = results[:n:n], results[n:]
		}
	}
	return nil
}
