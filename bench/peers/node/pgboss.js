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
  const everyday = plan.order === "everyday";
  const pool = everyday ? new pg.Pool({ connectionString: plan.target, max: 10 }) : undefined;
  if (plan.shape === "in tx") await pool.query("create table users_row (id bigint primary key, note varchar(100) not null)");
  const shaped = ({ n }) =>
    ({ unique: { singletonKey: String(n) }, delayed: { startAfter: new Date(Date.now() + 1000) }, retried: { retryLimit: 2, retryDelay: 1 } })[plan.shape] ?? {};
  const inTx = async ({ n, args }) => {
    const client = await pool.connect();
    try {
      await client.query("begin");
      await client.query("insert into users_row (id, note) values ($1, 'ordered')", [n]);
      await boss.send("work", args, { db: { executeSql: (text, values) => client.query(text, values) } });
      await client.query("commit");
    } finally {
      client.release();
    }
  };
  const batchSize = plan.work > 0 ? 1 : plan.batch;
  const pollers = plan.work > 0 ? plan.workers : 2;
  return {
    enqueueShaped: (task) => (plan.shape === "in tx" ? inTx(task) : boss.send("work", task.args, shaped(task))),
    enqueue: (tasks) => boss.insert("work", tasks.map(({ args, runAt }) => ({ data: args, startAfter: runAt }))),
    async work(handle) {
      const options = { batchSize, localConcurrency: pollers, pollingIntervalSeconds: 0.5, notifyPollingIntervalSeconds: 0.5, burstWhenBatchFull: true };
      if (!everyday) {
        await boss.work("work", options, (jobs) => Promise.all(jobs.map((job) => handle(job.data.n))));
        return () => boss.offWork("work", { wait: true });
      }
      const failed = new Set();
      const once = async ([job]) => {
        await handle(job.data.n);
        if (plan.shape !== "retried" || failed.has(job.id)) return;
        failed.add(job.id);
        throw new Error("the first attempt fails");
      };
      const all = [boss];
      for (let i = 1; i < plan.processes; i++) {
        const other = new PgBoss({ connectionString: plan.target, max: 20, useListenNotify: true });
        other.on("error", (e) => process.stderr.write(`${e}\n`));
        all.push(await other.start());
      }
      for (const one of all) await one.work("work", { batchSize: 1, localConcurrency: plan.workers }, once);
      return () => Promise.all(all.map((one) => one.offWork("work", { wait: true })));
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
