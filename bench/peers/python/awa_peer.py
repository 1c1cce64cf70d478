"""awa, through its package for Python: its engine is compiled, handlers are Python."""

import asyncio
from dataclasses import dataclass

import awa

from drive import serve


@dataclass
class Work:
    n: int
    pad: str


class Peer:
    def __init__(self, plan):
        self.plan = plan
        self.client = awa.AsyncClient(plan["target"], max_connections=20)

    async def enqueue(self, tasks, run_at):
        await self.client.enqueue_many_copy([Work(**a) for a in tasks], queue="work", run_at=run_at)

    async def work(self, handle):
        # A client starts once: each run of the workers is a client of its own.
        client = awa.AsyncClient(self.plan["target"], max_connections=20)

        @client.task(Work, queue="work")
        async def work(job):
            await handle(job.args.n)

        await client.start(
            [{"name": "work", "max_workers": self.plan["workers"], "claim_batch_size": self.plan["batch"],
              "claimers": 2}],
            poll_interval_ms=20, promote_interval_ms=100)

        async def stop():
            await client.shutdown(timeout_ms=10000)
            await client.close()

        return stop

    async def left(self):
        return sum(s.total_queued for s in await self.client.queue_stats())

    async def close(self):
        await self.client.close()


async def make_peer(plan):
    peer = Peer(plan)
    await peer.client.migrate()
    return peer


asyncio.run(serve(make_peer))
