package archive

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	places "github.com/tuskqueue/tusk/archive/place"
	"github.com/tuskqueue/tusk/archive/place/placetest"
	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/memory"
	"github.com/tuskqueue/tusk/store/storetest"
)

// A real object store is killed while it receives an archive, and started again. Nothing is lost,
// nothing is there twice, and pyarrow can read it there.
func TestAnObjectStoreThatIsKilledLosesNothing(t *testing.T) {
	placetest.Each(t, killedWhileItTakesAnArchive)
}

func killedWhileItTakesAnArchive(t *testing.T, server *placetest.Server) {
	b, err := places.Open(t.Context(), server.URL("deep/in/it"))
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	s, worker := memory.New(), storetest.NewID()
	r := keeper(t, s, b)
	stopped, stop := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
				r.due = time.Time{} // so that it also merges
				_, _ = r.Step(t.Context())
			}
		}
	}()
	var ids []store.ID
	for round := range 3 {
		for range 4 {
			ids = append(ids, run(t, s, worker, 300, "mail")...)
			time.Sleep(40 * time.Millisecond)
		}
		if round == 2 {
			break
		}
		server.Kill()
		ids = append(ids, run(t, s, worker, 100, "other")...)
		if err := server.Again(); err != nil {
			t.Fatal(err)
		}
	}
	close(stop)
	<-stopped
	drain(t, r)
	times := archived(t, b)
	for _, id := range ids {
		if times[id.String()] != 1 {
			t.Errorf("task %v is in the archive %d times", id, times[id.String()])
		}
	}
	if left, err := s.List(t.Context(), store.Filter{}); err != nil || len(left) != 0 || len(times) != len(ids) {
		t.Errorf("%d tasks are left in the database, %d archived of %d: %v", len(left), len(times), len(ids), err)
	}
	a := New(b, t.TempDir())
	if task, err := a.Find(t.Context(), ids[7]); err != nil || string(task.Args) != `{"n": 7}` {
		t.Errorf("look-up: %s, %v", task.Args, err)
	}
	readByPyarrow(t, server, "deep/in/it", len(ids))
}

// readByPyarrow counts the tasks of an archive in an object store, as an analyst would.
func readByPyarrow(t *testing.T, server *placetest.Server, prefix string, tasks int) {
	t.Helper()
	script := fmt.Sprintf(`
import json, pyarrow.dataset as ds, pyarrow.fs as fs
place, path = %s
tasks = ds.dataset(path, filesystem=place, format="parquet", partitioning="hive", exclude_invalid_files=False)
table = tasks.to_table(columns=["id", "queue", "state"])
ids, queues = (table[name].to_pylist() for name in ["id", "queue"])
print(json.dumps([table.num_rows, len(set(ids)), sorted(set(str(q) for q in queues))]))`,
		server.Pyarrow(prefix))
	cmd := exec.CommandContext(t.Context(), python(t), "-c", script)
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, said.String())
	}
	var got [3]any
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatal(err)
	}
	if want := [3]any{float64(tasks), float64(tasks), []any{"mail", "other"}}; fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("pyarrow reads %v, want %v", got, want)
	}
}
