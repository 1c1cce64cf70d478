// pg-boss. Jobs are fetched and completed in batches, which its workers do when
// batchSize says so.
import pg from "pg";
import { PgBoss } from "pg-boss";
import { serve } from "./drive.js";

await serve(async (plan) => {
  const boss = new PgBoss({ connectionString: plan.target, max: 20, useListenNotify: true });
  boss.on("error", (e) => process.stderr.write(`${e}\n`));
  await boss.start();
  await boss.createQueue("work", { partition: true, notify: true });
  const counting = new pg.Client({ connectionString: plan.target });
  await counting.connect();
  const batchSize = plan.work > 0 ? 1 : plan.batch;
  const pollers = plan.work > 0 ? plan.workers : 2;
  return {
    enqueue: (tasks) => boss.insert("work", tasks.map(({ args, runAt }) => ({ data: args, startAfter: runAt }))),
    async work(handle) {
      const options = { batchSize, localConcurrency: pollers, pollingIntervalSeconds: 0.5, notifyPollingIntervalSeconds: 0.5, burstWhenBatchFull: true };
      await boss.work("work", options, (jobs) => Promise.all(jobs.map((job) => handle(job.data.n))));
      return () => boss.offWork("work", { wait: true });
    },
    async left() {
      const { rows } = await counting.query("select count(*) from pgboss.job where name = 'work' and state < 'completed'");
      return Number(rows[0].count);
    },
    async close() {
      await counting.end();
      await boss.stop({ graceful: true, close: true });
    },
  };
});
