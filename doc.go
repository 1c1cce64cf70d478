// Package tusk is a task queue and scheduler that lives in a database that its users already run.
//
// A producer describes work as a value of an Args type and enqueues it with a Client. A Worker claims tasks and
// runs the handler registered for their kind. A store keeps everything in between: any engine under store, from
// store/memory in tests to store/sqlite in one file.
//
//	type SendEmail struct{ To string }
//
//	func (SendEmail) Kind() string { return "send_email" }
//
//	mux := tusk.NewMux()
//	tusk.Handle(mux, func(ctx context.Context, t *tusk.Task[SendEmail]) error {
//		return send(ctx, t.Args.To)
//	})
//	client, err := tusk.NewClient(engine, nil)
//	_, err = client.Enqueue(ctx, SendEmail{To: "ada@example.com"}, nil)
//	worker, err := tusk.NewWorker(client, mux, nil)
//	err = worker.Run(ctx) // until ctx ends, then stops gracefully
//
// # The life of a task
//
//	Enqueue ─▶ scheduled ─┐                    ┌─▶ completed
//	       └────────────▶ available ─▶ running ┼─▶ retryable ─▶ available …
//	                          ▲           │    ├─▶ cancelled
//	                          └─ rescued ─┘    └─▶ discarded
//
// A task runs at least once. Of all its attempts, exactly one completion is accepted: a worker that was thought
// dead cannot overwrite the result of its successor. A handler that writes to the same database and ends with
// CompleteTx has its effects exactly once. docs/guarantees.md lists the guarantees and their limits.
//
// This package may import store and the packages under internal; it imports no engine.
package tusk
