package archive

import (
	"os"
	"reflect"
	"testing"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// full returns a task with all fields set.
func full() store.Task {
	at := func(s int64) time.Time { return time.Unix(1_800_000_000+s, 123_456_000).UTC() }
	return store.Task{
		ID: store.ID{1, 2, 3}, Kind: "mail", Queue: "q", Tenant: "acme", Priority: -7, Key: "k",
		Args: []byte(`{"a": 1}`), Tags: []string{"x", "y"}, Workflow: store.ID{4}, Settings: []byte{0, 255, 1},
		Turn: true, Partition: "p", State: store.Discarded, Attempt: 3, Crashes: 1, Reason: "gave up", Damage: "bent",
		EnqueuedAt: at(0), RunAt: at(1), ExpiresAt: at(2), ClaimedAt: at(3), FinishedAt: at(4),
		Detail: &store.Detail{
			Attempts: []store.Attempt{
				{Number: 1, Worker: store.ID{5}, StartedAt: at(1), EndedAt: at(2), Outcome: store.Retryable, Error: "e",
					Trace: "t", Fingerprint: "f"},
				{Number: 3, Worker: store.ID{6}, StartedAt: at(3), EndedAt: at(4), Outcome: store.Discarded, Error: "e2",
					Fingerprint: "f2"},
			},
			Changed:  &store.LastChange{At: at(1), How: store.WasMoved},
			Output:   []byte(`[1]`),
			Progress: &store.Progress{Percent: 12.5, Message: "half"},
			Logs:     []store.LogLine{{At: at(3), Attempt: 3, Level: "INFO", Text: "line"}},
			Needs: []store.NeedState{
				{Need: store.Need{Task: store.ID{7}, OnFailure: store.WaitOnFailure}, State: store.Completed},
				{Need: store.Need{Task: store.ID{8}}},
			},
		}}
}

func TestAFileGivesBackWhatWasWritten(t *testing.T) {
	want := full()
	plain := store.Task{ID: store.ID{9}, Kind: "k", Queue: "q", State: store.Completed, Args: []byte(`{}`),
		Detail: &store.Detail{}}
	f, err := newFile(t.TempDir(), Partition{new(calendar).of(want.FinishedAt), want.Queue})
	if err != nil {
		t.Fatal(err)
	}
	defer f.discard()
	for _, task := range []store.Task{plain, want} {
		if err := f.add(rowOf(&task)); err != nil {
			t.Fatal(err)
		}
	}
	about, err := f.close()
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(f.spool.Name())
	if err != nil || info.Size() != about.Bytes || about.Tasks != 2 || about.MinID != want.ID.String() {
		t.Errorf("the file is said to be %+v: %v", about, err)
	}
	var got []store.Task
	if err := eachRow(f.spool, func(r *Row) error {
		task, err := r.Task("q")
		got = append(got, task)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	for i, want := range []store.Task{plain, want} {
		if !reflect.DeepEqual(got[i], want) {
			t.Errorf("read:\n%+v\n%+v\nwant:\n%+v\n%+v", got[i], got[i].Detail, want, want.Detail)
		}
	}
}
