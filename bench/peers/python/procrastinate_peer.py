"""procrastinate, asynchronous."""

import asyncio

import procrastinate

from drive import serve


class Peer:
    def __init__(self, plan):
        self.plan = plan
        self.app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=plan["target"], max_size=20))
        self.handle = None

        @self.app.task(name="work", queue="work")
        async def work(n, pad):
            await self.handle(n)

        self.task = work

    async def enqueue(self, tasks, run_at):
        await self.task.configure(schedule_at=run_at).batch_defer_async(*tasks)

    async def work(self, handle):
        self.handle = handle
        worker = asyncio.create_task(self.app.run_worker_async(
            queues=["work"], concurrency=self.plan["workers"], fetch_job_polling_interval=0.02,
            install_signal_handlers=False))

        async def stop():
            worker.cancel()
            await asyncio.gather(worker, return_exceptions=True)

        return stop

    async def left(self):
        rows = await self.app.connector.execute_query_all_async(
            "select count(*) from procrastinate_jobs where status in ('todo', 'doing')")
        return rows[0]["count"]

    async def close(self):
        await self.app.close_async()


async def make_peer(plan):
    peer = Peer(plan)
    await peer.app.open_async()
    await peer.app.schema_manager.apply_schema_async()
    return peer


asyncio.run(serve(make_peer))
