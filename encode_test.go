package tusk

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/tuskqueue/tusk/store/memory"
)

type numbered struct{ N int }

func (numbered) Kind() string { return "numbered" }

// moody has an Options method whose result varies.
type moody struct{ N int }

func (moody) Kind() string { return "moody" }

func (m moody) Options() Options {
	return Options{Queue: fmt.Sprint("q", m.N%3), MaxAttempts: 1 + m.N%2}
}

func TestATaskAmongOthersIsEncodedAsByItself(t *testing.T) {
	client, err := NewClient(memory.New(), nil)
	if err != nil {
		t.Fatal(err)
	}
	options := []*Options{nil, {}, {Queue: "other", Tags: []string{"a"}, MaxAttempts: 3, Timeout: time.Minute},
		{ID: NewID(), Key: "k"},
		{Unique: &Unique{}}, {Queue: "Broken"}, {Priority: 7, Metadata: map[string]string{"a": "b"}}}
	var tasks []NewTask
	for n := range 200 {
		o := options[n*n/7%len(options)]
		for range 1 + n%3 {
			tasks = append(tasks, NewTask{[]Args{numbered{n}, moody{n}, RawArgs{"raw", fmt.Appendf(nil, " [%d] ", n)}, nil,
				RawArgs{Name: "Broken"}}[n%5], o})
		}
	}
	l := listOf(len(tasks))
	together := encoder{client: client, id: func() ID { return ID{1} }, json: l.encode}
	for i := range tasks {
		alone := encoder{client: client, id: together.id, json: json.Marshal}
		want := listOf(1).tasks
		expected, err := alone.encode(&want[0], &tasks[i]), together.encode(&l.tasks[i], &tasks[i])
		if fmt.Sprint(err) != fmt.Sprint(expected) {
			t.Fatalf("task %d: %v, want %v", i, err, expected)
		}
		if err == nil && !reflect.DeepEqual(l.tasks[i], want[0]) {
			t.Fatalf("task %d: %+v, want %+v", i, l.tasks[i], want[0])
		}
	}
}

func TestEnqueuesAtTheSameTimeKeepTheirArgsApart(t *testing.T) {
	engine := memory.New()
	client, err := NewClient(engine, nil)
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for hand := range 4 {
		all.Go(func() {
			for range 20 {
				tasks := make([]NewTask, 1+hand*40)
				for i := range tasks {
					tasks[i] = NewTask{Args: numbered{i}}
				}
				results, err := client.EnqueueMany(context.Background(), tasks)
				if err != nil {
					t.Error(err)
					return
				}
				for i, r := range results {
					stored, err := client.Get(context.Background(), r.ID)
					if err != nil || !bytes.Equal(stored.Args, fmt.Appendf(nil, `{"N":%d}`, i)) {
						t.Errorf("task %d has %s, %v", i, stored.Args, err)
					}
				}
			}
		})
	}
	all.Wait()
}
