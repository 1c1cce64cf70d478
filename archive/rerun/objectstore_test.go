package rerun

import (
	"testing"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/archive"
	"github.com/tuskqueue/tusk/archive/place/placetest"
	"github.com/tuskqueue/tusk/store/memory"
)

// A rerun reads a real object store that is killed meanwhile. Each task is enqueued once.
func TestARerunFromAnObjectStoreThatIsKilled(t *testing.T) {
	placetest.Each(t, killedWhileItIsRead)
}

func killedWhileItIsRead(t *testing.T, server *placetest.Server) {
	location := server.URL("rerun")
	c, err := carrierOn(t.Context(), memory.New(), location, nil)
	if err != nil {
		t.Fatal(err)
	}
	var tasks []tusk.NewTask
	for i := range 2000 {
		tasks = append(tasks, tusk.NewTask{Args: kindOf("a", i),
			Options: &tusk.Options{Queue: []string{"mail", "other"}[i%2]}})
	}
	ids := shelve(t, c, location, tasks)
	r, err := Start(t.Context(), c.Client.Store(), Rerun{Query: archive.Query{Queues: []string{"mail"}}, Expected: 1000})
	if err != nil {
		t.Fatal(err)
	}
	killed := false
	for { // each try continues where the previous one was interrupted
		ended, err := c.Carry(t.Context(), r.ID, func(now Rerun) {
			if now.Enqueued > 0 && !killed {
				killed = true
				server.Kill()
				if err := server.Again(); err != nil {
					t.Error(err)
				}
			}
		})
		if t.Context().Err() != nil || t.Failed() {
			t.Fatal(err)
		}
		if err == nil {
			if ended.State != Done || ended.Enqueued != 1000 {
				t.Errorf("it ended as %+v", ended)
			}
			break
		}
	}
	times := again(t, c)
	for i, id := range ids {
		if want := (i + 1) % 2; times[id.String()] != want {
			t.Errorf("task %d was enqueued again %d times, want %d", i, times[id.String()], want)
		}
	}
	if !killed {
		t.Error("the object store was not killed")
	}
}
