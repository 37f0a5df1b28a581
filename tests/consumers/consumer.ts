/**
 * A consumer of job events: believes what Outport signed, does each job once, and keeps what it
 * has downloaded and verified in DATA_DIR.
 *
 * Told by AMQP_URL, QUEUE, EXTERNAL_HMAC_KEYS (`1:<hex>`, several separated by commas),
 * OUTPORT_URL, OUTPORT_TOKEN, DATA_DIR, and MOST_AGE_SECONDS where old messages are to be refused.
 */

import { createHmac, timingSafeEqual } from "node:crypto";
import { existsSync, mkdirSync } from "node:fs";
import { open, rename, unlink } from "node:fs/promises";
import { join } from "node:path";

import { connect, type ConsumeMessage } from "amqplib";

/**
 * It, or its result, is not what Outport signed, not readable or not to be had: it is never done,
 * and set aside.
 */
class Refused extends Error {}

/** The external keys by version. */
type Keys = Map<number, Buffer>;

interface Integrity {
  algorithm: string;
  signature: string;
  keyVersion: number;
}

/** What a body tells of a job: its result, or why it has none. */
type JobEvent = { rowCount: number; integrity: Integrity } | { code: string };

function variable(name: string): string {
  const value = process.env[name];
  if (value === undefined) throw new Error(`${name} is not set`);
  return value;
}

/**
 * The number that a text is, undefined where it is none. One number has one text: Number() alone
 * takes signs, blanks, leading zeros, exponents, other bases and nothing at all.
 */
function decimal(text: string, below: bigint): number | undefined {
  const number = /^(0|[1-9][0-9]{0,19})$/.test(text) ? BigInt(text) : below;
  return number < below ? Number(number) : undefined;
}

function readKeys(text: string): Keys {
  const entries = text.split(",").map((entry): [number, Buffer] => {
    const [, version, digits] = /^([^:]*):([0-9a-f]{64})$/.exec(entry.trim()) ?? [];
    const number = decimal(version ?? "", VERSIONS);
    if (number === undefined || !digits) throw new Error("a key is <version>:<64 hex digits>");
    return [number, Buffer.from(digits, "hex")];
  });
  return new Map(entries);
}

const [VERSIONS, SECONDS] = [1n << 16n, 1n << 64n];
const HEX = /^[0-9a-f]{64}$/;
const keys = readKeys(variable("EXTERNAL_HMAC_KEYS"));
const mostAge = readMostAge(process.env["MOST_AGE_SECONDS"]);
const url = variable("OUTPORT_URL");
const token = variable("OUTPORT_TOKEN");
const folder = variable("DATA_DIR");

function readMostAge(text: string | undefined): number {
  const seconds = text === undefined ? Infinity : decimal(text, SECONDS);
  if (seconds === undefined) throw new Error("MOST_AGE_SECONDS must be a number in decimal");
  return seconds;
}

/** Whether a text is the hex digits of these bytes, in constant time. */
function isHexOf(text: string, bytes: Buffer): boolean {
  return HEX.test(text) && timingSafeEqual(Buffer.from(text, "hex"), bytes);
}

/** Both signatures of a message, and that they speak of one event: its id, and its job's. */
function verify(message: ConsumeMessage): [event: string, job: string] {
  const headers: Record<string, unknown> = message.properties.headers ?? {};
  const header = (name: string): string => {
    const value = headers[name];
    // Some producers send byte arrays instead of strings.
    const text = Buffer.isBuffer(value) ? value.toString("utf8") : value;
    // A line feed would move the border between two signed parts.
    if (typeof text !== "string" || text.includes("\n")) {
      throw new Refused(`forged: the header ${name} is missing or malformed`);
    }
    return text;
  };
  const version = "x-signature-key" in headers ? decimal(header("x-signature-key"), VERSIONS) : 1;
  if (version === undefined) {
    throw new Refused("forged: the header x-signature-key must be a key's version in decimal");
  }
  const key = keys.get(version);
  if (!key) throw new Refused(`unknown key: x-signature-key is ${version}`);
  const [signedAt, form] = [header("t"), header("signature-version")];
  const [tenant, job] = [header("X-Tenant-ID"), header("ce-subject")];
  const { exchange, routingKey } = message.fields;
  const isJob = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/.test(job);
  const isEvent = routingKey === "job.completed" || routingKey === "job.failed";
  const seconds = decimal(signedAt, SECONDS);
  if (form !== "v1" || !isJob || !isEvent || seconds === undefined) {
    throw new Refused("forged: it has not the form of a job event");
  }
  const check = (name: string, texts: string[], body?: Buffer): void => {
    const signature = createHmac("sha256", key).update(texts.join("\n"));
    if (body) signature.update("\n").update(body);
    if (!isHexOf(header(name), signature.digest())) {
      throw new Refused(`forged: the header ${name} is not that of this message`);
    }
  };
  const texts = [signedAt, form, tenant, job, exchange, routingKey];
  check("x-message-signature", texts, message.content);
  const names = ["ce-id", "ce-type", "ce-source", "ce-time", "ce-tenantid"];
  check("x-attributes-signature", names.map(header));
  const event = `fetcher.${routingKey}.${job}`;
  if (header("ce-id") !== event || header("ce-tenantid") !== tenant) {
    throw new Refused("forged: its attributes are those of another message");
  }
  const age = Math.floor(Date.now() / 1000) - seconds;
  if (age > mostAge) throw new Refused(`stale: it was signed ${age} s ago`);
  return [event, job];
}

/** What a JSON value holds under these names, one in the other; undefined where it has it not. */
function member(value: unknown, ...names: string[]): unknown {
  for (const name of names) {
    const holds = typeof value === "object" && value !== null && Object.hasOwn(value, name);
    value = holds ? (value as Record<string, unknown>)[name] : undefined;
  }
  return value;
}

/** Whether a JSON value is a whole number from 0 on. */
function isCount(value: unknown): value is number {
  return Number.isSafeInteger(value) && (value as number) >= 0;
}

/** What a body tells of the job that it is signed for. */
function readJob(body: Buffer, routingKey: string, jobId: string): JobEvent {
  let job: unknown;
  try {
    // Fatal: what is not UTF-8 is not replaced. JSON.parse refuses the byte order mark.
    job = JSON.parse(new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(body));
  } catch (error) {
    throw new Refused(`unreadable: job ${jobId}: ${(error as Error).message}`);
  }
  if (member(job, "jobId") !== jobId || member(job, "status") !== routingKey.slice(4)) {
    throw new Refused(`unreadable: job ${jobId}: its body tells of another event`);
  }
  if (member(job, "metadata") === undefined) {
    throw new Refused(`unreadable: job ${jobId}: it has no metadata`);
  }
  if (routingKey === "job.failed") {
    const code = member(job, "metadata", "error", "code");
    return { code: typeof code === "string" ? code : "" };
  }
  const integrity = member(job, "result", "integrity");
  const [algorithm, signature] = [member(integrity, "algorithm"), member(integrity, "signature")];
  // Absent, not null: some producers leave a zero out.
  const { rowCount = 0 } = (member(job, "result") ?? {}) as { rowCount?: unknown };
  const { keyVersion = 1 } = (integrity ?? {}) as { keyVersion?: unknown };
  const isVersion = isCount(keyVersion) && keyVersion < VERSIONS;
  const areTexts = typeof algorithm === "string" && typeof signature === "string";
  if (!isCount(rowCount) || !isVersion || !areTexts) {
    throw new Refused(`unreadable: job ${jobId}: a member is missing or of another type`);
  }
  return { rowCount, integrity: { algorithm, signature, keyVersion } };
}

/** The code of an answer that is a problem. */
async function codeOf(answer: Response): Promise<unknown> {
  try {
    return member(await answer.json(), "code");
  } catch {
    return undefined;
  }
}

/** The answer that brings a result from a byte on, undefined where the result ends there. */
async function openFile(jobId: string, from: number): Promise<Response | undefined> {
  const answer = await fetch(`${url}/v1/exports/${jobId}/file`, {
    headers: { authorization: `Bearer ${token}`, ...(from > 0 && { range: `bytes=${from}-` }) },
  });
  const { status } = answer;
  if (status === (from > 0 ? 206 : 200)) return answer;
  const range = answer.headers.get("content-range");
  if (status === 416 && range === `bytes */${from}`) return undefined;
  if (status === 404 || status === 410) throw new Refused(`gone: job ${jobId} has no file`);
  const code = await codeOf(answer);
  if (status === 500 && code === "FILE_DAMAGED") {
    throw new Refused(`damaged: job ${jobId}: its file is not what was written`);
  }
  // Those are not of this file alone: without a valid token, too slow, too often.
  if (status >= 400 && status < 500 && ![401, 408, 416, 429].includes(status) && code) {
    throw new Refused(`not given: job ${jobId}: ${code}`);
  }
  throw new Error(`job ${jobId}: Outport answers ${status}`);
}

/** The bytes of a result as they come. */
async function* download(jobId: string): AsyncGenerator<Uint8Array> {
  let received = 0;
  let size: number | undefined;
  for (;;) {
    const before = received;
    const answer = await openFile(jobId, received);
    if (!answer) return;
    const length = answer.headers.get("content-length");
    // What a proxy has encoded comes decoded: the length is of something else.
    const isTold = length !== null && !answer.headers.has("content-encoding");
    if (isTold) size = received + Number(length);
    const reader = answer.body?.getReader();
    for (;;) {
      let bytes: Uint8Array | undefined;
      try {
        bytes = (await reader?.read())?.value;
      } catch (error) {
        // The connection ended behind the last byte: nothing is missing.
        if (received === size) return;
        // So ends a connection that breaks, and a file that is damaged further on. Asked for the
        // rest, Outport gives it, or says what is wrong with it.
        if (received === before) throw error;
        break;
      }
      if (!bytes) return;
      received += bytes.length;
      yield bytes;
    }
  }
}

/** Downloads a result beside its place, and puts it there once its HMAC is right. */
async function fetchResult(jobId: string, integrity: Integrity): Promise<void> {
  if (integrity.algorithm !== "HMAC-SHA256" || !HEX.test(integrity.signature)) {
    throw new Refused(`forged: job ${jobId}: no signature of this algorithm`);
  }
  const version = integrity.keyVersion;
  const key = keys.get(version);
  if (!key) throw new Refused(`unknown key: job ${jobId}: integrity.keyVersion is ${version}`);
  const part = join(folder, `${jobId}.part`);
  const signature = createHmac("sha256", key);
  const file = await open(part, "w");
  try {
    for await (const bytes of download(jobId)) {
      signature.update(bytes);
      await file.writeFile(bytes);
    }
    await file.sync();
    if (!isHexOf(integrity.signature, signature.digest())) {
      throw new Refused(`forged: job ${jobId}: the result is not what was signed`);
    }
  } catch (error) {
    if (error instanceof Refused) await unlink(part);
    throw error;
  } finally {
    await file.close();
  }
  await rename(part, join(folder, jobId));
}

/** Does what a message asks for, and says what was done. */
async function take(message: ConsumeMessage): Promise<string> {
  const [event, jobId] = verify(message);
  const seen = join(folder, event);
  if (existsSync(seen)) return `already seen ${event}`;
  const job = readJob(message.content, message.fields.routingKey, jobId);
  let said: string;
  if ("code" in job) {
    said = `failed job ${jobId}: ${job.code}`;
  } else {
    await fetchResult(jobId, job.integrity);
    said = `verified job ${jobId}: ${job.rowCount} rows, HMAC ok`;
  }
  // An empty file is whole as soon as it is there.
  const file = await open(seen, "w");
  await file.sync();
  await file.close();
  return said;
}

mkdirSync(folder, { recursive: true });
const connection = await connect(variable("AMQP_URL"));
// Whatever else goes wrong ends this process: nothing is acknowledged, and the broker gives the
// message to whoever comes next.
connection.on("error", (error) => {
  throw error;
});
connection.on("close", () => {
  throw new Error("the broker closed the connection");
});
const channel = await connection.createChannel();
// One at a time: without a limit the broker sends all that the queue holds.
await channel.prefetch(1);
await channel.consume(variable("QUEUE"), async (message) => {
  if (!message) throw new Error("the queue is gone");
  try {
    console.log(await take(message));
    channel.ack(message);
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    console.log(`refused ${error.message}`);
    // To the dead letters of the queue, where somebody may look at it.
    channel.reject(message, false);
  }
});
