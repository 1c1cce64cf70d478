package peers

import (
	"context"
	"time"

	"github.com/hibiken/asynq"

	"github.com/tuskqueue/tusk/bench/harness"
)

const asynqSettings = "EnqueueContext one by one (it has no call for batches), 16 at once; Concurrency as the " +
	"workers; TaskCheckInterval 20 ms (default 1 s), DelayedTaskCheckInterval 100 ms (default 5 s); "

var asynqContenders = []Contender{
	{Name: "Asynq", Server: Redis, Version: module("github.com/hibiken/asynq"), New: newAsynq,
		Cannot:   []string{"tenants", "held", "readers"},
		Settings: asynqSettings + "appendfsync always, as durable as the others"},
	{Name: "Asynq", Variant: "fsync every second", Aside: true, Server: RedisEvery,
		Version: module("github.com/hibiken/asynq"), New: newAsynq, Cannot: []string{"tenants", "held", "readers"},
		Settings: asynqSettings + "appendfsync everysec: what was acknowledged in the last second may be lost"},
}

func newAsynq(string) harness.Peer { return &asynqPeer{} }

type asynqPeer struct {
	plan      harness.Plan
	redis     asynq.RedisClientOpt
	client    *asynq.Client
	inspector *asynq.Inspector
}

func (a *asynqPeer) Open(_ context.Context, p harness.Plan) error {
	a.plan = p
	a.redis = asynq.RedisClientOpt{Addr: p.Target}
	a.client, a.inspector = asynq.NewClient(a.redis), asynq.NewInspector(a.redis)
	return nil
}

func (a *asynqPeer) Enqueue(ctx context.Context, tasks []harness.Task) error {
	return atOnce(16, tasks, func(t harness.Task) error {
		var options []asynq.Option
		if !t.RunAt.IsZero() {
			options = append(options, asynq.ProcessAt(t.RunAt))
		}
		_, err := a.client.EnqueueContext(ctx, asynq.NewTask("work", t.JSON()), options...)
		return err
	})
}

func (a *asynqPeer) Work(ctx context.Context, handle func(n int)) error {
	server := asynq.NewServer(a.redis, asynq.Config{Concurrency: a.plan.Workers, LogLevel: asynq.FatalLevel,
		TaskCheckInterval: 20 * time.Millisecond, DelayedTaskCheckInterval: 100 * time.Millisecond})
	err := server.Start(asynq.HandlerFunc(func(_ context.Context, t *asynq.Task) error {
		n, err := harness.Number(t.Payload())
		if err == nil {
			handle(n)
		}
		return err
	}))
	if err != nil {
		return err
	}
	<-ctx.Done()
	server.Shutdown()
	return nil
}

func (a *asynqPeer) Left(context.Context) (int, error) {
	info, err := a.inspector.GetQueueInfo("default")
	if err != nil {
		return 0, err
	}
	return info.Pending + info.Active + info.Scheduled + info.Retry, nil
}

func (a *asynqPeer) Close() error { return a.client.Close() }
