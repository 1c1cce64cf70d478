// The harness's runner for Node.js: what harness/drive.go is for Go. It reads a
// plan and prints stages and the result, as harness/runner.go describes.
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";

const argsBytes = 80;
const bare = JSON.stringify({ n: 0, pad: "" }).length - 1;

/** The args of task n, 80 bytes of JSON. */
export const args = (n) => ({ n, pad: "x".repeat(argsBytes - bare - String(n).length) });

const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const nextLine = async () => (await lines.next()).value;
const print = (message) => process.stdout.write(JSON.stringify(message) + "\n");

async function pause(stage) {
  print({ stage });
  await nextLine();
}

class Tally {
  constructor(tasks) {
    this.due = new Float64Array(tasks);
    this.start = new Float64Array(tasks);
    this.calls = this.seen = 0;
    this.all = new Promise((resolve) => (this.full = resolve));
  }
  handle(n) {
    if (!(n >= 0 && n < this.start.length)) return;
    this.calls++;
    if (this.start[n] !== 0) return;
    this.start[n] = performance.now();
    if (++this.seen === this.start.length) this.full();
  }
  waits() {
    const all = [];
    this.start.forEach((start, n) => start !== 0 && all.push(start - this.due[n]));
    all.sort((a, b) => a - b);
    const at = (i) => Math.round((all[Math.min(Math.floor(i), all.length - 1)] ?? 0) * 1e6);
    return { p50: at(0.5 * all.length), p99: at(0.99 * all.length), p999: at(0.999 * all.length), max: at(all.length - 1) };
  }
}

class Drive {
  constructor(peer, plan) {
    Object.assign(this, { peer, plan, tally: new Tally(plan.tasks), began: performance.now(), stored: 0, next: 0 });
  }
  async enqueue(numbers, runAt, due) {
    for (const n of numbers) this.tally.due[n] = due;
    await this.peer.enqueue(numbers.map((n) => ({ args: args(n), runAt })));
    this.stored += numbers.length;
  }
  async produce() {
    if (this.plan.rate > 0) return this.pace();
    const due = this.plan.due_in > 0 ? this.began + this.plan.due_in / 1e6 : 0;
    const runAt = due ? new Date(performance.timeOrigin + due) : undefined;
    const producer = async () => {
      while (this.next < this.plan.tasks) {
        const from = this.next;
        this.next = Math.min(from + this.plan.batch, this.plan.tasks);
        const numbers = Array.from({ length: this.next - from }, (_, i) => from + i);
        await this.enqueue(numbers, runAt, due || performance.now());
      }
    };
    await Promise.all(Array.from({ length: this.plan.producers }, producer));
    if (due && performance.now() > due) throw new Error("storing the tasks took longer than until they are due");
  }
  async pace() {
    const open = [];
    for (let n = 0; n < this.plan.tasks; n++) {
      const due = this.began + (n / this.plan.rate) * 1000;
      if (due > performance.now()) await sleep(due - performance.now());
      open.push(this.enqueue([n], undefined, due));
    }
    await Promise.all(open);
  }
  /** Runs workers while produce goes on, until all is handled and nothing left. */
  async consume(produce) {
    const handle = (n) => {
      this.tally.handle(n);
      return this.plan.work > 0 ? sleep(this.plan.work / 1e6) : undefined;
    };
    const stop = await this.peer.work(handle);
    await produce();
    await this.tally.all;
    for (;;) {
      this.took = performance.now() - this.began; // what is left is known as of the question
      if ((await this.peer.left()) === 0) break;
      await sleep(2);
    }
    await stop();
  }
}

const steps = 3, lastOutcomes = 100, delayed = 1000, tenants = 10;

/** An everyday run, as harness/everyday.go has it. */
async function everyday(peer, plan) {
  const drive = new Drive(peer, { ...plan, tasks: plan.warm + plan.tasks });
  const { tally } = drive;
  const steady = async (from, to) => {
    const began = performance.now(), open = [];
    const one = async (n) => {
      await peer.enqueueShaped({ n, args: args(n), tenant: n % tenants });
      const due = performance.now() + (plan.shape === "delayed" ? delayed : 0);
      tally.due[n] = tally.start[n] ? Math.min(due, tally.start[n]) : due;
      drive.stored++;
    };
    for (let n = from; n < to; n++) {
      const due = began + ((n - from) / plan.rate) * 1000;
      if (due > performance.now()) await sleep(due - performance.now());
      open.push(one(n));
    }
    await Promise.all(open);
    while (tally.calls < to * (plan.shape === "retried" ? 2 : 1)) await sleep(1);
  };
  const stop = await peer.work((n) => {
    tally.handle(n);
    return plan.work > 0 ? sleep(plan.work / 1e6) : undefined;
  });
  await steady(0, plan.warm);
  await sleep(plan.settle / 1e6);
  await pause("ready");
  const began = performance.now();
  await steady(plan.warm, plan.warm + plan.tasks);
  await sleep(plan.idle / 1e6 + lastOutcomes);
  const took = performance.now() - began;
  await pause("measured");
  await stop();
  tally.start.fill(0, 0, plan.warm);
  return { stored: drive.stored - plan.warm, calls: tally.calls, tasks: tally.seen - plan.warm, took: Math.round(took * 1e6), waits: tally.waits() };
}

async function history(peer, plan) {
  const until = performance.now() + plan.patience / 1e6;
  let made = 0;
  while (made < plan.history && performance.now() < until) {
    const tasks = Math.min(50000, plan.history - made);
    const part = new Drive(peer, { tasks, batch: plan.batch, producers: plan.producers });
    await part.consume(() => part.produce());
    made += tasks;
  }
  return made;
}

/** Takes a peer, made of a plan, through it. */
export async function serve(makePeer) {
  const plan = JSON.parse(await nextLine());
  const result = { stored: 0, calls: 0, tasks: 0, took: 0, history: 0, waits: {} };
  let error;
  try {
    const peer = await makePeer(plan);
    if (plan.order === "everyday") {
      Object.assign(result, await everyday(peer, plan));
      print({ result });
      await nextLine();
      process.exit(0);
    }
    result.history = await history(peer, plan);
    await pause("ready");
    const drive = new Drive(peer, plan);
    if (plan.order === "together") await drive.consume(() => drive.produce());
    else await drive.produce();
    if (plan.order === "backlog") {
      await pause("enqueued");
      drive.began = performance.now();
      drive.tally.due.fill(drive.began);
      await drive.consume(async () => {});
    }
    drive.took ??= performance.now() - drive.began;
    const { tally, stored, took } = drive;
    Object.assign(result, { stored, calls: tally.calls, tasks: tally.seen, took: Math.round(took * 1e6), waits: tally.waits() });
    if (plan.order === "produce") result.tasks = Number(await peer.left());
    await peer.close();
  } catch (e) {
    error = String(e?.stack ?? e);
  }
  print({ result, error });
  await nextLine(); // the harness looks at this process until it closes its end
  process.exit(0);
}
