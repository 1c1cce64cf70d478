"""The harness's runner for Python: what harness/drive.go is for Go.

It reads a plan and prints stages and the result, as harness/runner.go describes.
"""

import asyncio
import json
import sys
import time
import traceback
from datetime import datetime, timedelta, timezone

ARGS_BYTES = 80
BARE = len('{"n":,"pad":""}')


def args(n):
    """The args of task n, 80 bytes of JSON without spaces."""
    return {"n": n, "pad": "x" * (ARGS_BYTES - BARE - len(str(n)))}


async def next_line():
    return await asyncio.to_thread(sys.stdin.readline)


def say(message):
    print(json.dumps(message), flush=True)


async def pause(stage):
    say({"stage": stage})
    await next_line()


class Tally:
    def __init__(self, tasks):
        self.due, self.start = [0.0] * tasks, [0.0] * tasks
        self.calls = self.seen = 0
        self.all = asyncio.Event()

    def handle(self, n):
        if not 0 <= n < len(self.start):
            return
        self.calls += 1
        if self.start[n]:
            return
        self.start[n] = time.monotonic()
        self.seen += 1
        if self.seen == len(self.start):
            self.all.set()

    def waits(self):
        every = sorted(s - d for s, d in zip(self.start, self.due) if s) or [0]

        def at(share):
            return round(every[min(int(share * len(every)), len(every) - 1)] * 1e9)

        return {"p50": at(0.5), "p99": at(0.99), "p999": at(0.999), "max": at(1)}


class Drive:
    def __init__(self, peer, plan):
        self.peer, self.plan = peer, plan
        self.tally = Tally(plan["tasks"])
        self.began = time.monotonic()
        self.took = None
        self.stored = self.next = 0

    async def enqueue(self, numbers, run_at, due):
        for n in numbers:
            self.tally.due[n] = due
        await self.peer.enqueue([args(n) for n in numbers], run_at)
        self.stored += len(numbers)

    async def produce(self):
        if self.plan.get("rate"):
            return await self.pace()
        due = run_at = None
        if self.plan.get("due_in"):
            wait = self.plan["due_in"] / 1e9
            due = self.began + wait
            run_at = datetime.now(timezone.utc) + timedelta(seconds=due - time.monotonic())
        await asyncio.gather(*(self.producer(run_at, due) for _ in range(self.plan["producers"])))
        if due and time.monotonic() > due:
            raise RuntimeError("storing the tasks took longer than until they are due")

    async def producer(self, run_at, due):
        while self.next < self.plan["tasks"]:
            numbers = range(self.next, min(self.next + self.plan["batch"], self.plan["tasks"]))
            self.next = numbers.stop
            await self.enqueue(numbers, run_at, due or time.monotonic())

    async def pace(self):
        open_calls = []
        for n in range(self.plan["tasks"]):
            due = self.began + n / self.plan["rate"]
            await asyncio.sleep(max(due - time.monotonic(), 0))
            open_calls.append(asyncio.create_task(self.enqueue([n], None, due)))
        await asyncio.gather(*open_calls)

    async def consume(self, produce):
        """Runs workers while produce goes on, until all is handled and nothing left."""
        work = self.plan.get("work", 0) / 1e9

        async def handle(n):
            self.tally.handle(n)
            if work:
                await asyncio.sleep(work)

        stop = await self.peer.work(handle)
        await produce()
        await self.tally.all.wait()
        while True:
            self.took = time.monotonic() - self.began  # what is left is known as of the question
            if await self.peer.left() == 0:
                break
            await asyncio.sleep(0.002)
        await stop()


async def history(peer, plan):
    until, made = time.monotonic() + plan.get("patience", 0) / 1e9, 0
    while made < plan.get("history", 0) and time.monotonic() < until:
        tasks = min(50000, plan["history"] - made)
        part = Drive(peer, {"tasks": tasks, "batch": plan["batch"], "producers": plan["producers"]})
        await part.consume(part.produce)
        made += tasks
    return made


async def nothing():
    pass


async def drive(make_peer, plan, result):
    peer = await make_peer(plan)
    result["history"] = await history(peer, plan)
    await pause("ready")
    run = Drive(peer, plan)
    if plan["order"] == "together":
        await run.consume(run.produce)
    else:
        await run.produce()
    if plan["order"] == "backlog":
        await pause("enqueued")
        run.began = time.monotonic()
        run.tally.due = [run.began] * plan["tasks"]
        await run.consume(nothing)
    took = run.took if run.took is not None else time.monotonic() - run.began
    result.update(stored=run.stored, calls=run.tally.calls, tasks=run.tally.seen, took=round(took * 1e9),
                  waits=run.tally.waits())
    if plan["order"] == "produce":
        result["tasks"] = await peer.left()
    await peer.close()


async def serve(make_peer):
    """Takes a peer, made of a plan, through it."""
    plan = json.loads(await next_line())
    result, error = {"stored": 0, "calls": 0, "tasks": 0, "took": 0, "history": 0, "waits": {}}, None
    try:
        await drive(make_peer, plan, result)
    except Exception:
        error = traceback.format_exc()
    say({"result": result, "error": error or ""})
    await next_line()  # the harness looks at this process until it closes its end
