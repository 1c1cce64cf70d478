#!/usr/bin/env python3
"""A worker in Python, with its standard library alone.

    tusk dev                                      # prints the address of a server, which asks for no token
    TUSK_URL=http://127.0.0.1:8787 ./worker.py

With `tusk serve`, set TUSK_TOKEN to a token of the role worker: tusk tokens create w --role worker.

It leases tasks of the queue "orders" from a Tusk server, runs them in threads, extends their leases while they run, and
reports how they ended. The steps of a task that is tried again are not repeated. SIGTERM stops it after the tasks that
it has leased.
"""

import json
import os
import signal
import sys
import threading
import traceback
import urllib.error
import urllib.request

SLOTS = 4
LEASE = 30  # seconds


class LeaseLost(Exception):
    """The task belongs to another attempt by now."""


def call(method, path, body=None, **headers):
    """Sends a request to the server and returns its answer."""
    request = urllib.request.Request(
        os.environ["TUSK_URL"] + "/api/v1" + path,
        method=method,
        data=None if body is None else json.dumps(body).encode(),
        headers={
            "Content-Type": "application/json",
            **({"Authorization": "Bearer " + os.environ["TUSK_TOKEN"]} if "TUSK_TOKEN" in os.environ else {}),
            **{name.replace("_", "-"): value for name, value in headers.items()},
        },
    )
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as e:
        problem = e.read().decode(errors="replace")
        if e.code == 409 and '"lease_lost"' in problem:
            raise LeaseLost(problem) from None
        raise RuntimeError(f"{method} {path}: {e.code} {problem}") from None


class Task:
    """A leased task."""

    def __init__(self, leased):
        self.lease_id = leased["lease_id"]
        self.id, self.kind, self.attempt = leased["id"], leased["kind"], leased["attempt"]
        self.args = leased.get("args")
        self.stopped = threading.Event()  # set when the task was cancelled or its lease is lost
        self._ended = threading.Event()
        self._steps = None

    def step(self, name, do):
        """Runs do() once for the task: a later attempt gets the stored result."""
        if self._steps is None:
            known = call("GET", "/lease/steps", Lease_Id=self.lease_id)["steps"]
            self._steps = {step["name"]: step["result"] for step in known}
        if name not in self._steps:
            if self.stopped.is_set():
                raise LeaseLost(self.id)
            kept = call("POST", "/lease/steps", {"lease_id": self.lease_id, "name": name, "result": do()})
            self._steps[name] = kept["result"]
        return self._steps[name]

    def run(self, handler):
        """Runs the handler and reports how it ended."""
        threading.Thread(target=self._keep, daemon=True).start()
        try:
            output = handler(self)
            self._report("complete", output=output)
        except LeaseLost:
            print(f"{self.id}: the lease is lost", file=sys.stderr)
        except Exception as e:  # a failed attempt is retried
            self._report("fail", error=f"{type(e).__name__}: {e}", trace=traceback.format_exc())
        finally:
            self._ended.set()

    def _keep(self):
        """Extends the lease until the task has ended."""
        while not self._ended.wait(LEASE / 3):
            try:
                answer = call("POST", "/lease/extend", {"lease_id": self.lease_id, "lease": f"{LEASE}s"})
                if answer.get("cancel_requested"):
                    self.stopped.set()
            except LeaseLost:
                self.stopped.set()
                return
            except Exception as e:  # the server is away: try again
                print(f"{self.id}: extend: {e}", file=sys.stderr)

    def _report(self, action, **more):
        """Repeats the report while the server is away. A repeated report changes nothing."""
        for pause in (1, 2, 4, 8, None):
            try:
                call("POST", "/lease/" + action, {"lease_id": self.lease_id, **more})
                return
            except LeaseLost as e:
                print(f"{self.id}: {action}: {e}", file=sys.stderr)
                return
            except Exception as e:
                print(f"{self.id}: {action}: {e}", file=sys.stderr)
                if pause is None:
                    return
                threading.Event().wait(pause)


def work(queue, handlers):
    """Runs tasks of a queue until SIGTERM or SIGINT."""
    stop = threading.Event()
    for sign in (signal.SIGTERM, signal.SIGINT):
        signal.signal(sign, lambda *_: stop.set())
    slots = threading.Semaphore(SLOTS)
    running = []

    def run(task):
        try:
            handler = handlers.get(task.kind)
            if handler is None:
                call("POST", "/lease/release", {"lease_id": task.lease_id, "delay": "10s"})
            else:
                task.run(handler)
        finally:
            slots.release()

    while not stop.is_set():
        slots.acquire()
        try:
            leased = call("POST", "/lease", {"queues": [queue], "wait": "5s", "lease": f"{LEASE}s"})["tasks"]
        except Exception as e:  # the server is away
            print(f"lease: {e}", file=sys.stderr)
            leased = []
            stop.wait(1)
        if not leased:
            slots.release()
        for one in leased:
            thread = threading.Thread(target=run, args=(Task(one),))
            thread.start()
            running = [t for t in running if t.is_alive()] + [thread]
    for thread in running:
        thread.join()


def order(task):
    charge = task.step("charge", lambda: {"id": "ch_" + task.id[-4:], "attempt": task.attempt})
    if task.args.get("sold_out") and task.attempt == 1:
        raise RuntimeError("sold out")
    return {"charge": charge["id"], "charged_in_attempt": charge["attempt"], "shipped_in_attempt": task.attempt}


if __name__ == "__main__":
    work("orders", {"order": order})
