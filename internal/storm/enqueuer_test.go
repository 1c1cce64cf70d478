//go:build unix

package storm

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"strings"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/store/sqlite/sqlitefile"
)

const (
	queue = "storm"

	kindEcho   = "echo"   // built in: its output is its args
	kindEffect = "effect" // records its args
	kindFlaky  = "flaky"  // records its args, and asks for a retry at the first attempt
	kindSlow   = "slow"   // records its args after a second
)

// playEnqueuer enqueues until it is killed. The args of each task are its own id, which is recorded once the task is
// acknowledged.
func playEnqueuer(database, acks string) int {
	if err := enqueueForEver(context.Background(), database, acks); err != nil {
		fmt.Fprintln(os.Stderr, "enqueuer:", err)
	}
	return 1
}

func enqueueForEver(ctx context.Context, database, acks string) error {
	s, err := sqlitefile.Open(ctx, database)
	if err != nil {
		return err
	}
	client, err := tusk.NewClient(s, &tusk.ClientConfig{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	file, err := os.OpenFile(acks, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	for {
		if left, err := unfinished(ctx, client); err != nil {
			return err
		} else if left > 400 {
			time.Sleep(50 * time.Millisecond) // the machine is slow: enqueue no more than it can handle
			continue
		}
		results, err := client.EnqueueMany(ctx, someTasks())
		if err != nil {
			return err
		}
		var lines strings.Builder
		for _, r := range results {
			fmt.Fprintln(&lines, r.ID)
		}
		if _, err := file.WriteString(lines.String()); err != nil { // a single write: all or nothing
			return err
		}
		time.Sleep(rand.N(100 * time.Millisecond))
	}
}

func someTasks() []tusk.NewTask {
	tasks := make([]tusk.NewTask, 1+rand.IntN(60))
	for i := range tasks {
		id := tusk.NewID()
		args, _ := json.Marshal(id.String()) // a string can always be encoded
		o := &tusk.Options{Queue: queue, ID: id, Priority: int16(rand.IntN(3)),
			Backoff: tusk.ConstantBackoff(100 * time.Millisecond)}
		kind := kindEcho
		switch rand.IntN(20) {
		case 0:
			kind = kindEffect
		case 1:
			kind = kindFlaky
		case 2:
			o.Delay = rand.N(2 * time.Second)
		}
		tasks[i] = tusk.NewTask{Args: tusk.RawArgs{Name: kind, JSON: args}, Options: o}
	}
	return tasks
}

func unfinished(ctx context.Context, client *tusk.Client) (n int64, err error) {
	counts, err := client.Store().Count(ctx)
	for _, c := range counts {
		n += c.Tasks
	}
	return n, err
}
