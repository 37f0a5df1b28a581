import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

import { Consumer, TYPES } from "../consumer.js";
import { differences } from "./cases.js";

/** @param {string} name */
const golden = (name) =>
  readFileSync(new URL(`../../../../tests/golden/${name}`, import.meta.url), "utf8");

test("every case of the table comes out as it says", () => {
  const table = JSON.parse(golden("stream-consumer-cases.json"));
  assert.ok(table.cases.length > 50);
  assert.deepEqual(differences(Consumer, table), []);
});

test("a case that is wrong is found", () => {
  const table = JSON.parse(golden("stream-consumer-cases.json"));
  for (const given of Object.values(table.given)) given.at(-1).out.push({ do: "close" });
  assert.equal(differences(Consumer, table).length, table.cases.length);
});

test("the types are those of the catalogue", () => {
  const rows = golden("event-catalogue.csv").trim().split("\n").slice(1);
  assert.deepEqual(
    TYPES,
    rows.map((row) => row.split(",")[0]),
  );
});

/** What comes after one another in a channel. */
function* events(/** @type {number} */ first, /** @type {number} */ last) {
  for (let sequence = first; sequence <= last; sequence += 1) {
    yield {
      id: `evt_${sequence}`,
      stream: { organization: "o" },
      sequence,
      type: "stage.progress",
      time: "",
      data: {},
    };
  }
}

/** A generator of numbers that is always the same. */
function numbers(/** @type {number} */ seed) {
  let state = seed;
  return () => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return state / 2 ** 32;
  };
}

/**
 * A server that loses, repeats and tears, and a consumer that must tell each event once and in
 * its order all the same.
 */
function run(/** @type {number} */ seed) {
  const random = numbers(seed);
  const [last, head] = [60, { protocol: "beyond-cdn-events/1", channel: "c", epoch: "e" }];
  const consumer = new Consumer({ random, held: 5 });
  /** @type {number[]} */
  const told = [];
  /** @type {import("../consumer.js").Input[]} */
  let inputs = [{ on: "follow", channel: "c", after: 0 }, { on: "start" }];
  let [now, sent] = [0, 0];
  /** @param {import("../consumer.js").Output} output */
  const answer = (output) => {
    if (output.do === "event") told.push(output.event.sequence ?? 0);
    if (output.do === "connect") inputs.push({ on: "open" });
    if (output.do === "authenticate") control({ kind: "authenticated" });
    if (output.do === "send" && output.frame.action === "subscribe") {
      sent = output.frame.after ?? 0;
      control({ kind: "subscribed", channel: "c", head: last, epoch: "e" });
    }
    if (output.do === "replay") {
      const { request, after } = output;
      const until = Math.min(last, after + 1 + Math.floor(random() * 9));
      const page = { epoch: "e", floor: 0, head: last, events: [...events(after + 1, until)] };
      if (random() < 0.2) inputs.push({ on: "failed", request });
      else inputs.splice(Math.floor(random() * inputs.length), 0, { on: "page", request, page });
    }
  };
  const control = (/** @type {any} */ data) =>
    inputs.push({ on: "frame", frame: { event: "outport-control/1", data } });
  const batch = (/** @type {number} */ first, /** @type {number} */ end) => {
    const data = { ...head, events: [...events(first, Math.min(last, end))] };
    inputs.push({ on: "frame", frame: { event: "beyond-cdn-events/1", data } });
  };
  const chaos = () => {
    const dice = random();
    if (dice < 0.1) {
      inputs.push({ on: "closed", code: 1006 });
      return;
    }
    const next = sent + 1;
    sent = Math.min(last, sent + 1 + Math.floor(random() * 4));
    if (dice < 0.5) batch(next, sent);
    else if (dice < 0.6) batch(Math.max(1, next - 7), sent);
    else if (dice < 0.8) {
      const data = { ...head, sequence: sent, reason: "stale" };
      inputs.push({ on: "frame", frame: { event: "beyond-cdn-pointer/1", data } });
    }
    // Else it is lost.
  };
  for (let round = 0; round < 5_000 && told.length < last; round += 1) {
    const input = inputs.shift();
    if (input !== undefined) {
      consumer.step(input, now).forEach(answer);
    } else if (random() < 0.3) {
      now = consumer.deadline;
      consumer.step({ on: "tick" }, now).forEach(answer);
    } else {
      chaos();
    }
  }
  return told;
}

test("whatever a connection loses, repeats and tears, each event is told once and in order", () => {
  const wanted = [...events(1, 60)].map(({ sequence }) => sequence);
  for (let seed = 0; seed < 500; seed += 1) assert.deepEqual(run(seed), wanted, `seed ${seed}`);
});

test("a thousand consumers that were dropped together come back spread over the whole time", () => {
  const random = numbers(7);
  const times = Array.from({ length: 1_000 }, () => {
    const consumer = new Consumer({ random });
    consumer.step({ on: "start" }, 0);
    consumer.step({ on: "closed", code: 1006 }, 0);
    return consumer.deadline;
  });
  for (let tenth = 0; tenth < 10; tenth += 1) {
    const within = times.filter((time) => time >= tenth * 100 && time < (tenth + 1) * 100).length;
    assert.ok(within > 50 && within < 200, `${within} in tenth ${tenth}`);
  }
});
