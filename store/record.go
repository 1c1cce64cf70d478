package store

import "time"

// Record is a small named document.
type Record struct {
	Kind, Name string // not empty
	Version    int64  // 0 if it does not exist
	Body       []byte
	UpdatedAt  time.Time // by the engine's clock; every write sets it
}

// RecordFilter selects documents of one kind.
type RecordFilter struct {
	Kind  string
	Names []string // only these; nil means all
	After string   // only names that follow this one
	Limit int      // the most that are returned; 0 means all
}

// ManyRecords begins the kinds that may hold millions of documents. Their names consist of letters, digits and dashes,
// at most 100 bytes. Read such documents by Names. A list of them, which needs a Limit, may leave out what was written
// in the last seconds.
const ManyRecords = "many:"

// PutRecord writes a record; see Recorder.
type PutRecord struct {
	Record Record
	Tasks  []NewTask
	Term   int64 // the leader's term that the write requires; 0 allows anybody
}

// Updated says what became of one document of UpdateRecords.
type Updated struct {
	Version  int64      // the new version; 0 if the stored version was another, and nothing was written
	Enqueued []Enqueued // what became of its tasks
}

// EnqueueUpdated enqueues the tasks of the documents that UpdateRecords has rewritten, in one call. It is for
// engines, and expects the versions in updated to be set.
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
