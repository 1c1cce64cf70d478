package tusk_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/store/memory"
)

// Args that are too large for the database are stored elsewhere, and read as a stream. Here they are
// in a map in memory; archive.NewPayloads stores them in a folder or an object store.
func ExampleContent() {
	ctx, cancel := context.WithCancel(context.Background())
	client, _ := tusk.NewClient(memory.New(), &tusk.ClientConfig{Payloads: &shelfOf{objects: map[string][]byte{}}})
	mux := tusk.NewMux()
	tusk.HandleKind(mux, "import", func(ctx context.Context, t *tusk.Task[tusk.Content]) error {
		r, err := t.Args.Open(ctx)
		if err != nil {
			return err
		}
		defer r.Close()
		rows := 0
		for d := json.NewDecoder(r); d.More(); {
			token, err := d.Token()
			if err != nil {
				return err
			}
			if token == "row" {
				rows++
			}
		}
		return t.StreamOutput(ctx, strings.NewReader(fmt.Sprint(rows)))
	})
	worker, _ := tusk.NewWorker(client, mux, nil)
	events, _ := worker.Subscribe(tusk.EventCompleted)
	done := make(chan error)
	go func() { done <- worker.Run(ctx) }()

	rows := strings.NewReader("[" + strings.Repeat(`"row", `, 100_000) + "null]")
	enqueued, err := client.Enqueue(ctx, tusk.StreamArgs{Name: "import", JSON: rows}, nil)
	fmt.Println(enqueued.Result, err)
	<-events
	task, _ := client.Get(ctx, enqueued.ID)
	output, _ := client.OutputOf(task).Bytes(ctx)
	args, _ := client.ArgsOf(task)
	rest, _ := args.OpenAt(ctx, args.Size()-5)
	end, _ := io.ReadAll(rest)
	fmt.Println(string(output), args.Large(), args.Size(), string(end))
	cancel()
	<-done
	// Output:
	// added <nil>
	// 100000 true 700006 null]
}

// Large JSON is sent in parts over an unreliable connection, and assembled when all parts have arrived.
func ExampleClient_WritePart() {
	ctx := context.Background()
	client, _ := tusk.NewClient(memory.New(), &tusk.ClientConfig{Payloads: &shelfOf{objects: map[string][]byte{}}})
	sum := func(text string) string {
		hash := sha256.Sum256([]byte(text))
		return hex.EncodeToString(hash[:])
	}
	parts := []string{`{"words":"` + strings.Repeat("many ", 40_000), strings.Repeat("more ", 40_000) + `"}`}
	upload := tusk.Upload{Owner: "importer", ID: tusk.NewID(), SHA256: sum(strings.Join(parts, ""))}
	for _, part := range parts {
		if client.HasPart(ctx, upload, sum(part)) != nil { // it has not arrived yet
			n, err := client.WritePart(ctx, upload, sum(part), strings.NewReader(part))
			fmt.Println(n, err)
		}
		upload.Parts = append(upload.Parts, sum(part))
	}
	whole, _ := client.Uploaded(ctx, upload)
	defer whole.Close()
	e, err := client.Enqueue(ctx, tusk.StreamArgs{Name: "import", JSON: whole}, nil)
	task, _ := client.Get(ctx, e.ID)
	args, _ := client.ArgsOf(task)
	fmt.Println(e.Result, err, args.SHA256() == upload.SHA256)
	err = client.RemoveParts(ctx, upload)
	fmt.Println(err, client.HasPart(ctx, upload, upload.Parts[0]) != nil)
	// Output:
	// 200010 <nil>
	// 200002 <nil>
	// added <nil> true
	// <nil> true
}
