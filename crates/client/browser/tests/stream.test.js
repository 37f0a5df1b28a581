import assert from "node:assert/strict";
import { test } from "node:test";

import { Stream } from "../stream.js";

const TOKEN = "opt_secret";
const JOB = "job:0197f604-49fe-7b73-bb81-df2e93a7e47d";

/** A clock that stands until it is told the time. */
class Hands {
  time = 0;
  /** @type {{ at: number, then: () => void }[]} */
  timers = [];
  now = () => this.time;
  /** @param {() => void} then @param {number} pause */
  set = (then, pause) => {
    assert.ok(pause <= 2 ** 31 - 1, "a real timer would fire at once");
    const timer = { at: this.time + pause, then };
    this.timers.push(timer);
    return timer;
  };
  /** @param {any} timer */
  clear = (timer) => {
    this.timers = this.timers.filter((it) => it !== timer);
  };
  /** @param {number} time */
  move(time) {
    this.time = time;
    const due = this.timers.filter(({ at }) => at <= time);
    this.timers = this.timers.filter(({ at }) => at > time);
    due.forEach(({ then }) => then());
  }
}

/** What the other side of a connection and of requests sees, and what it says. */
function world(/** @type {Partial<import("../stream.js").StreamOptions>} */ options = {}) {
  /** @type {any[]} */
  const sockets = [];
  /** @type {{ url: URL, headers: any, answer: (...all: any[]) => void }[]} */
  const asked = [];
  /** @type {any[]} */
  const told = [];
  class FakeSocket {
    /** @type {any[]} */
    sent = [];
    isClosed = false;
    /** @param {URL} url */
    constructor(url) {
      this.url = String(url);
      sockets.push(this);
    }
    /** @param {string} text */
    send = (text) => this.sent.push(JSON.parse(text));
    close = () => {
      this.isClosed = true;
    };
  }
  /** @type {any} */
  const fetch = (/** @type {URL} */ url, /** @type {any} */ { headers }) =>
    new Promise((answered) => {
      const answer = (/** @type {number} */ status, /** @type {any} */ body, headers = {}) =>
        answered(new Response(JSON.stringify(body), { status, headers }));
      asked.push({ url, headers, answer });
    });
  const clock = new Hands();
  const stream = new Stream({
    url: "https://exports.example.com/behind/",
    token: () => TOKEN,
    onEvent: (event, channel) => told.push([event.sequence, channel]),
    onState: ({ state }) => told.push(state),
    onEnded: (channel, reason) => told.push([reason, channel]),
    WebSocket: /** @type {any} */ (FakeSocket),
    fetch,
    clock,
    random: () => 0.5,
    ...options,
  });
  return { stream, sockets, asked, told, clock };
}

/** Lets what has been promised happen. */
const turn = () => new Promise((done) => setImmediate(done));

/** @param {any} socket @param {string} event @param {any} data */
const say = (socket, event, data) => socket.onmessage({ data: JSON.stringify({ event, data }) });
/** @param {any} socket @param {any} data */
const control = (socket, data) => say(socket, "outport-control/1", data);
/** @param {any} socket @param {number[]} sequences */
const batch = (socket, ...sequences) =>
  say(socket, "beyond-cdn-events/1", { ...head, events: sequences.map(event) });
const head = { protocol: "beyond-cdn-events/1", channel: JOB, epoch: "e1" };
const event = (/** @type {number} */ sequence) => {
  const [id, stream] = [`evt_${sequence}`, { organization: "o" }];
  return { id, stream, sequence, type: "turn.started", time: "", data: {} };
};

async function live(/** @type {ReturnType<typeof world>} */ { stream, sockets }) {
  stream.follow(JOB, { after: 10 });
  stream.start();
  sockets[0].onopen();
  await turn();
  control(sockets[0], { kind: "authenticated" });
  control(sockets[0], { kind: "subscribed", channel: JOB, head: 10, epoch: "e1" });
}

test("the credential goes into a frame and into headers, never into a URL", async () => {
  const it = world();
  await live(it);
  const { sockets, asked } = it;
  assert.equal(sockets[0].url, "wss://exports.example.com/behind/v1/stream");
  assert.deepEqual(sockets[0].sent, [
    { action: "auth", token: TOKEN },
    { action: "subscribe", channel: JOB, after: 10 },
  ]);
  batch(sockets[0], 12);
  await turn();
  const url =
    "https://exports.example.com/behind/v1/channels/job%3A0197f604-49fe-7b73-bb81-df2e93a7e47d" +
    "/events?after=10&limit=1000&epoch=e1";
  assert.deepEqual(
    asked.map(({ url, headers }) => [String(url), headers.authorization]),
    [[url, `Bearer ${TOKEN}`]],
  );
});

test("a gap is fetched, and told before what came early", async () => {
  const it = world();
  await live(it);
  batch(it.sockets[0], 12);
  await turn();
  it.asked[0]?.answer(200, { epoch: "e1", floor: 0, head: 12, events: [event(11)] });
  await turn();
  assert.deepEqual(it.told.slice(2), [
    [11, JOB],
    [12, JOB],
  ]);
  assert.deepEqual(it.stream.position(JOB), { after: 12, epoch: "e1" });
});

test("Retry-After is kept to, and what is no answer is tried again", async () => {
  const it = world();
  await live(it);
  batch(it.sockets[0], 12);
  await turn();
  it.asked[0]?.answer(503, {}, { "retry-after": "7" });
  await turn();
  it.clock.move(6_999);
  await turn();
  assert.equal(it.asked.length, 1);
  it.clock.move(7_000);
  await turn();
  assert.equal(it.asked.length, 2);
  it.asked[1]?.answer(404, {});
  await turn();
  assert.deepEqual(it.told.at(-1), ["refused", JOB]);
});

test("a server may ask for an hour and for no longer, in seconds or by a date", async () => {
  for (const wanted of ["2147484", "1e400", "Fri, 01 Jan 2999 00:00:00 GMT"]) {
    const it = world();
    it.stream.follow(JOB, { snapshot: true });
    await turn();
    it.asked[0]?.answer(503, {}, { "retry-after": wanted });
    await turn();
    it.clock.move(3_599_999);
    await turn();
    assert.equal(it.asked.length, 1, wanted);
    it.clock.move(3_600_000);
    await turn();
    assert.equal(it.asked.length, 2, wanted);
  }
});

test("a heartbeat may be longer than any timer", async () => {
  const it = world({ heartbeat: 2 ** 32 });
  await live(it);
  it.clock.move(3_600_000);
  assert.equal(it.sockets[0].sent.length, 2);
  assert.equal(it.clock.timers.length, 1);
});

test("what breaks is replaced after a pause, and says nothing more", async () => {
  const it = world();
  await live(it);
  const [first] = it.sockets;
  first.onclose({ code: 1006 });
  it.clock.move(499);
  assert.equal(it.sockets.length, 1);
  it.clock.move(500);
  const second = it.sockets[1];
  second.onopen();
  await turn();
  control(second, { kind: "authenticated" });
  batch(first, 11);
  first.onclose({ code: 4403 });
  control(second, { kind: "subscribed", channel: JOB, head: 11, epoch: "e1" });
  batch(second, 11);
  assert.deepEqual(second.sent[1], { action: "subscribe", channel: JOB, after: 10, epoch: "e1" });
  const states = ["connecting", "live", "waiting", "connecting", "live"];
  assert.deepEqual(it.told, [...states, [11, JOB]]);
});

test("an error is the end of a connection, whether or not it tells so itself", async () => {
  const it = world();
  it.stream.start();
  const [first] = it.sockets;
  first.onerror();
  first.onclose({ code: 4403 });
  first.onerror();
  assert.ok(first.isClosed);
  it.clock.move(500);
  assert.equal(it.sockets.length, 2);
  assert.deepEqual(it.told, ["connecting", "waiting", "connecting"]);
});

test("what a WebSocket throws goes to the caller, and the stream goes on", () => {
  const it = world({ WebSocket: /** @type {any} */ (refusing) });
  assert.throws(() => it.stream.start(), /no such address/);
  assert.deepEqual(it.told, ["connecting"]);
  it.stream.stop();
  assert.deepEqual(it.told, ["connecting", "stopped"]);
  assert.throws(() => it.stream.start(), /no such address/);
  assert.equal(it.clock.timers.length, 1);
});

function refusing() {
  throw new Error("no such address");
}

test("an answer of 200 that is no page is asked for again", async () => {
  const it = world();
  await live(it);
  batch(it.sockets[0], 12);
  await turn();
  it.asked[0]?.answer(200, null);
  await turn();
  it.clock.move(500);
  await turn();
  it.asked[1]?.answer(200, { epoch: "e1", floor: 0, head: 12, events: [event(11)] });
  await turn();
  assert.deepEqual(it.told.slice(2), [
    [11, JOB],
    [12, JOB],
  ]);
});

test("after silence for two heartbeats a connection is given up for another one", async () => {
  const it = world({ heartbeat: 1_000 });
  await live(it);
  it.clock.move(1_000);
  assert.deepEqual(it.sockets[0].sent.at(-1), { action: "ping" });
  it.clock.move(2_000);
  assert.ok(it.sockets[0].isClosed);
  it.clock.move(2_500);
  assert.equal(it.sockets.length, 2);
});

test("a revoked access ends it for good", async () => {
  const it = world();
  await live(it);
  const revoked = { id: "evt_r", stream: {}, type: "access.revoked", time: "", data: {} };
  say(it.sockets[0], "beyond-cdn-events/1", { ...head, events: [revoked] });
  assert.ok(it.sockets[0].isClosed);
  assert.deepEqual(it.told.slice(2), [["revoked", JOB], "ended"]);
  assert.equal(it.clock.timers.length, 0);
});

test("what was asked before a stop is told to nobody, and asked again after it", async () => {
  /** @type {number[]} */
  const taken = [];
  const it = world({ onSnapshot: ({ sequence }) => taken.push(sequence) });
  it.stream.follow(JOB, { snapshot: true });
  it.stream.start();
  await turn();
  assert.equal(it.asked.length, 1);
  it.stream.stop();
  it.asked[0]?.answer(200, { sequence: 7 });
  await turn();
  it.stream.start();
  await turn();
  it.asked[1]?.answer(503, {});
  await turn();
  it.stream.stop();
  assert.equal(it.clock.timers.length, 0);
  it.stream.start();
  await turn();
  it.asked[2]?.answer(200, { sequence: 9 });
  await turn();
  assert.deepEqual(taken, [9]);
});

test("what is called back may leave, and its own faults stop nothing", async ({ mock }) => {
  /** @type {(() => void)[]} */
  const thrown = [];
  mock.method(globalThis, "queueMicrotask", (/** @type {() => void} */ it) => thrown.push(it));
  const it = world({
    onEvent: ({ sequence }) => {
      if (sequence === 12) it.stream.leave(JOB);
      throw new Error(`the page's own, at ${sequence}`);
    },
  });
  await live(it);
  batch(it.sockets[0], 11, 12, 13);
  batch(it.sockets[0], 14);
  assert.deepEqual(it.sockets[0].sent.at(-1), { action: "unsubscribe", channel: JOB });
  assert.deepEqual(thrown.length, 3);
  assert.throws(() => thrown[0]?.(), /the page's own, at 11/);
});
