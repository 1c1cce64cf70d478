package peers

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/mikestefanello/backlite"

	"github.com/tuskqueue/tusk/bench/harness"
)

var backliteContenders = []Contender{{
	Name: "backlite", Server: SQLite, Version: module("github.com/mikestefanello/backlite"),
	New: func(string) harness.Peer { return &backlitePeer{} },
	Settings: "Add of a batch; NumWorkers as the workers (with fewer it waits 100 ms whenever all are busy)" +
		goqiteCommon, Cannot: []string{"tenants"},
}}

type backlitePeer struct {
	plan   harness.Plan
	db     *sql.DB
	client *backlite.Client
}

// backliteTask is the args with the settings of the queue, as backlite wants them.
type backliteTask harness.Args

func (backliteTask) Config() backlite.QueueConfig {
	return backlite.QueueConfig{Name: "default", MaxAttempts: 3, Timeout: time.Minute}
}

func (b *backlitePeer) Open(ctx context.Context, p harness.Plan) (err error) {
	b.plan = p
	if b.db, err = openFile(p.Target); err != nil {
		return err
	}
	if b.client, err = b.newClient(); err != nil {
		return err
	}
	return b.client.Install()
}

func (b *backlitePeer) newClient() (*backlite.Client, error) {
	return backlite.NewClient(backlite.ClientConfig{DB: b.db, NumWorkers: b.plan.Workers, ReleaseAfter: time.Hour})
}

func (b *backlitePeer) Enqueue(ctx context.Context, tasks []harness.Task) error {
	batch := make([]backlite.Task, len(tasks))
	for i, t := range tasks {
		batch[i] = backliteTask(t.Args())
	}
	add := b.client.Add(batch...).Ctx(ctx)
	if at := tasks[0].RunAt; !at.IsZero() {
		add = add.At(at)
	}
	_, err := add.Save()
	return err
}

// Work runs the client that tasks are added to, because that one learns of them in memory.
func (b *backlitePeer) Work(ctx context.Context, handle func(n int)) error {
	b.client.Register(backlite.NewQueue(func(_ context.Context, t backliteTask) error {
		handle(t.N)
		return nil
	}))
	b.client.Start(context.WithoutCancel(ctx))
	<-ctx.Done()
	parting, done := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer done()
	if !b.client.Stop(parting) {
		return errors.New("did not stop")
	}
	return nil
}

func (b *backlitePeer) Left(ctx context.Context) (int, error) {
	return countRows(ctx, b.db, "select count(*) from backlite_tasks")
}

func (b *backlitePeer) Close() error { return b.db.Close() }
