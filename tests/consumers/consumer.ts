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

/** It, or its result, is not what Outport signed, or not to be had: it is never done. */
class Refused extends Error {}

/** The external keys by version. */
type Keys = Map<string, Buffer>;

interface Integrity {
  algorithm: string;
  signature: string;
  keyVersion?: number;
}

type JobEvent =
  | { jobId: string; status: "completed"; result: { rowCount: number; integrity: Integrity } }
  | { jobId: string; status: "failed"; metadata: { error: { message: string; code?: string } } };

function variable(name: string): string {
  const value = process.env[name];
  if (value === undefined) throw new Error(`${name} is not set`);
  return value;
}

function readKeys(text: string): Keys {
  const entries = text.split(",").map((entry): [string, Buffer] => {
    const [, version, digits] = /^([0-9]+):([0-9a-f]{64})$/.exec(entry.trim()) ?? [];
    if (!version || !digits) throw new Error("a key is <version>:<64 hex digits>");
    return [version, Buffer.from(digits, "hex")];
  });
  return new Map(entries);
}

const keys = readKeys(variable("EXTERNAL_HMAC_KEYS"));
const mostAge = process.env["MOST_AGE_SECONDS"];
const url = variable("OUTPORT_URL");
const token = variable("OUTPORT_TOKEN");
const folder = variable("DATA_DIR");

/** Whether a text is the hex digits of these bytes, in constant time. */
function isHexOf(text: string, bytes: Buffer): boolean {
  return /^[0-9a-f]{64}$/.test(text) && timingSafeEqual(Buffer.from(text, "hex"), bytes);
}

/** Both signatures of a message, and that they speak of one event. Returns the event's id. */
function verify(message: ConsumeMessage): string {
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
  const version = "x-signature-key" in headers ? header("x-signature-key") : "1";
  const key = keys.get(version);
  if (!key) throw new Refused(`unknown key: x-signature-key is ${JSON.stringify(version)}`);
  const [signedAt, form] = [header("t"), header("signature-version")];
  const [tenant, job] = [header("X-Tenant-ID"), header("ce-subject")];
  const { exchange, routingKey } = message.fields;
  const isJob = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/.test(job);
  const isEvent = routingKey === "job.completed" || routingKey === "job.failed";
  if (form !== "v1" || !isJob || !isEvent || !/^[0-9]+$/.test(signedAt)) {
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
  const age = Math.floor(Date.now() / 1000) - Number(signedAt);
  if (mostAge !== undefined && age > Number(mostAge)) {
    throw new Refused(`stale: it was signed ${age} s ago`);
  }
  return event;
}

/** The code of an answer that is a problem. */
async function codeOf(answer: Response): Promise<unknown> {
  try {
    return ((await answer.json()) as { code?: unknown } | null)?.code;
  } catch {
    return undefined;
  }
}

/** Downloads a result beside its place, and puts it there once its HMAC is right. */
async function fetchResult(jobId: string, integrity: Integrity): Promise<void> {
  if (integrity.algorithm !== "HMAC-SHA256") {
    throw new Refused(`forged: job ${jobId}: an unknown algorithm`);
  }
  const version = String(integrity.keyVersion ?? 1);
  const key = keys.get(version);
  if (!key) throw new Refused(`unknown key: job ${jobId}: integrity.keyVersion is ${version}`);
  const answer = await fetch(`${url}/v1/exports/${jobId}/file`, {
    headers: { authorization: `Bearer ${token}` },
  });
  if (answer.status === 404 || answer.status === 410) {
    throw new Refused(`gone: job ${jobId} has no file`);
  }
  // Of what went wrong over there, this alone is no better tomorrow.
  if (answer.status === 500 && (await codeOf(answer)) === "FILE_DAMAGED") {
    throw new Refused(`damaged: job ${jobId}: its file is not what was written`);
  }
  if (!answer.ok || !answer.body) throw new Error(`job ${jobId}: Outport answers ${answer.status}`);
  const part = join(folder, `${jobId}.part`);
  const signature = createHmac("sha256", key);
  const file = await open(part, "w");
  try {
    for await (const bytes of answer.body) {
      signature.update(bytes);
      await file.writeFile(bytes);
    }
    await file.sync();
  } finally {
    await file.close();
  }
  if (!isHexOf(integrity.signature, signature.digest())) {
    await unlink(part);
    throw new Refused(`forged: job ${jobId}: the result is not what was signed`);
  }
  await rename(part, join(folder, jobId));
}

/** Does what a message asks for, and says what was done. */
async function take(message: ConsumeMessage): Promise<string> {
  const event = verify(message);
  const seen = join(folder, event);
  if (existsSync(seen)) return `already seen ${event}`;
  const job = JSON.parse(message.content.toString("utf8")) as JobEvent;
  let said: string;
  if (job.status === "completed") {
    await fetchResult(job.jobId, job.result.integrity);
    said = `verified job ${job.jobId}: ${job.result.rowCount} rows, HMAC ok`;
  } else {
    said = `failed job ${job.jobId}: ${job.metadata.error.code ?? ""}`;
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
