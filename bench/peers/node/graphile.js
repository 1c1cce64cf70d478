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
  return {
    enqueue: (tasks) => utils.addJobs(tasks.map(({ args, runAt }) => ({ identifier: "work", payload: args, runAt }))),
    async work(handle) {
      const runner = await run({
        pgPool: pool,
        logger,
        noHandleSignals: true,
        taskList: { work: (payload) => handle(payload.n) },
        preset: { worker: { concurrentJobs: plan.workers, ...batching } },
      });
      return () => runner.stop();
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
