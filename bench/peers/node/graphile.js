// Graphile Worker. Its batching is on unless the variant says otherwise; the
// settings are those of its performance page.
import { Logger, makeWorkerUtils, run } from "graphile-worker";
import pg from "pg";
import { serve } from "./drive.js";

const logger = new Logger(() => () => {});

await serve(async (plan) => {
  const batching = plan.variant
    ? {}
    : { localQueue: { size: Math.max(plan.batch, plan.workers + 1) }, completeJobBatchDelay: 0, failJobBatchDelay: 0 };
  const pool = new pg.Pool({ connectionString: plan.target, max: 25 });
  pool.on("error", () => {}); // a connection that is closed while idle
  const utils = await makeWorkerUtils({ pgPool: pool, logger });
  await utils.migrate();
  if (plan.shape === "in tx") await pool.query("create table users_row (id bigint primary key, note varchar(100) not null)");
  const shaped = ({ n, tenant }) =>
    ({
      unique: { jobKey: String(n) },
      delayed: { runAt: new Date(Date.now() + 1000) },
      limited: { queueName: `tenant-${tenant}` },
    })[plan.shape] ?? {};
  const inTx = async ({ n, args }) => {
    const client = await pool.connect();
    try {
      await client.query("begin");
      await client.query("insert into users_row (id, note) values ($1, 'ordered')", [n]);
      await client.query("select graphile_worker.add_job('work', $1::json)", [JSON.stringify(args)]);
      await client.query("commit");
    } finally {
      client.release();
    }
  };
  return {
    enqueueShaped: (task) => (plan.shape === "in tx" ? inTx(task) : utils.addJob("work", task.args, shaped(task))),
    enqueue: (tasks) => utils.addJobs(tasks.map(({ args, runAt }) => ({ identifier: "work", payload: args, runAt }))),
    async work(handle) {
      const task = async (payload, helpers) => {
        await handle(payload.n);
        if (plan.shape === "retried" && helpers.job.attempts === 1) throw new Error("the first attempt fails");
      };
      const runners = [];
      for (let i = 0; i < Math.max(plan.processes, 1); i++) {
        let own = pool;
        if (i > 0) {
          own = new pg.Pool({ connectionString: plan.target, max: 25 });
          own.on("error", () => {});
        }
        runners.push(
          await run({
            pgPool: own,
            logger,
            noHandleSignals: true,
            taskList: { work: task },
            preset: { worker: { concurrentJobs: plan.workers, ...batching } },
          }),
        );
      }
      return () => Promise.all(runners.map((runner) => runner.stop()));
    },
    async left() {
      const { rows } = await pool.query("select count(*) from graphile_worker._private_jobs");
      return Number(rows[0].count);
    },
    async close() {
      await utils.release();
      await pool.end();
    },
  };
});
