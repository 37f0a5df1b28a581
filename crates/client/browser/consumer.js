/**
 * The consumer half of `beyond-cdn-events/1` as a state machine without I/O: it is told what
 * happened ({@link Input}) and the time in milliseconds, and answers what to do ({@link Output}).
 *
 * What it holds to:
 * - A channel's cursor only goes up by one, event by event; only a snapshot moves it otherwise.
 * - An event takes effect once by its `id`, in whatever channels it comes.
 * - What comes early is held, at most so many events, and the gap before it is replayed: one
 *   request of a channel at a time, and the answer to an older one counts for nothing.
 * - Another epoch, another id under the same sequence, or a cursor that the server cannot serve:
 *   the position is worth nothing, and a snapshot gives a new one.
 */

/** The broadcast name of a batch, and the value of `protocol`. */
export const BATCH = "beyond-cdn-events/1";
/** The broadcast name of a pointer. */
export const POINTER = "beyond-cdn-pointer/1";
/** The name of what a server says about the connection itself. */
export const CONTROL = "outport-control/1";

/**
 * Every type of the catalogue. One that is not here moves the cursor and has no effect: it is
 * told as `unknown`.
 */
export const TYPES = Object.freeze(
  (
    "job.queued job.running job.waiting_turn job.succeeded job.failed job.cancelled " +
    "job.limit_exceeded queue.position turn.started turn.ended retry.scheduled stage.started " +
    "stage.succeeded stage.failed stage.progress graph.pinned graph.exception package.fetched " +
    "package.reused package.failed inventory.persisted inventory.unknown module.queued " +
    "module.started module.generated cache.hit module.failed module.limit_exceeded " +
    "diagnostics.reported closure.validated closure.incomplete release.ready release.failed " +
    "release.candidate release.activated release.retired application.changed domain.changed " +
    "notice.update plan.changed credit.granted credit.reserved credit.settled credit.released " +
    "usage.recorded log.batch access.revoked resync.required"
  ).split(" "),
);

/** The first pause before trying again is shorter than this, in milliseconds; each next, double. */
const FIRST_PAUSE = 1_000;
/** No pause is longer, in milliseconds, unless the server asks for it. */
const LONGEST_PAUSE = 30_000;
/** Sequences of a channel whose ids are remembered. */
const REMEMBERED_SEQUENCES = 1_000;
/** Ids that are remembered over all channels. */
const REMEMBERED_IDS = 10_000;
/** Refusals of a subscription that may be no more when it is asked for again. */
const PASSING = ["AT_CAPACITY", "INTERNAL", "RATE_LIMITED", "UNAVAILABLE"];
/** Close codes after which coming back would change nothing, and what they mean. */
const LAST_WORDS = /** @type {Record<number, EndReason>} */ ({
  4400: "protocol",
  4401: "unauthorized",
  4403: "revoked",
  4429: "channels",
});

/**
 * Whom an event concerns.
 * @typedef {{ organization: string, application?: string, job?: string }} Scope
 */
/**
 * An event. `sequence` is its number in the channel that it came by; what is told to one
 * subscriber alone has none.
 * @typedef {object} StreamEvent
 * @property {string} id
 * @property {Scope} stream
 * @property {number} [sequence]
 * @property {string} type
 * @property {string} time RFC 3339, when the change was committed
 * @property {Record<string, any>} data by type
 */
/**
 * Events of one channel, in their order.
 * @typedef {{ protocol: string, channel: string, epoch?: string, events: StreamEvent[] }} Batch
 */
/**
 * The channel reached `sequence`, and the events up to it did not travel.
 * @typedef {object} Pointer
 * @property {string} protocol
 * @property {string} channel
 * @property {string} [epoch]
 * @property {number} sequence
 * @property {string} reason
 */
/**
 * A page of a replay: what comes after a cursor, without gaps.
 * @typedef {{ epoch?: string, floor: number, head: number, events: StreamEvent[] }} Page
 */
/**
 * The state that a channel is about, as of `sequence`; the other members are the server's.
 * @typedef {{ epoch?: string, sequence: number, [member: string]: any }} Snapshot
 */
/**
 * Where to begin: after a sequence (of that epoch, where it is known), or with a snapshot; with
 * neither, from now on.
 * @typedef {{ after?: number, epoch?: string, snapshot?: boolean }} Position
 */
/**
 * Why a channel, or everything, is over: `unauthorized` (no or an expired credential), `revoked`
 * (access ended), `refused` (no such channel for this caller), `protocol` (a bad frame),
 * `channels` (more than one connection may follow).
 * @typedef {"unauthorized" | "revoked" | "refused" | "protocol" | "channels"} EndReason
 */
/**
 * What the connection is doing: `retryAt` is when it will be tried again, in milliseconds.
 * @typedef {{ state: "stopped" | "connecting" | "live" }
 *   | { state: "waiting", retryAt: number }
 *   | { state: "ended", reason: EndReason }} State
 */
/**
 * What a client sends.
 * @typedef {{ action: "subscribe", channel: string, after?: number, epoch?: string }
 *   | { action: "unsubscribe", channel: string }
 *   | { action: "ping" }} Frame
 */
/**
 * What happened. `frame` is a parsed message of the server; `page`, `gone` (410), `snapshot`,
 * `refused` (401, 403, 404) and `failed` (all else; `retryAfter` in milliseconds) answer the
 * request of that number.
 * @typedef {{ on: "start" } | { on: "stop" } | { on: "open" } | { on: "tick" }
 *   | { on: "closed", code: number }
 *   | { on: "frame", frame: any }
 *   | { on: "follow", channel: string } & Position
 *   | { on: "leave", channel: string }
 *   | { on: "page", request: number, page: Page }
 *   | { on: "gone", request: number }
 *   | { on: "snapshot", request: number, snapshot: Snapshot }
 *   | { on: "refused", request: number, status: number }
 *   | { on: "failed", request: number, retryAfter?: number }} Input
 */
/**
 * What to do, in this order: open the connection (`connect`), show the credential on it
 * (`authenticate`), send, close; ask for a page (`replay`) or a snapshot (`load`); and tell.
 * @typedef {{ do: "connect" } | { do: "authenticate" } | { do: "close" }
 *   | { do: "send", frame: Frame }
 *   | { do: "replay", request: number, channel: string, after: number, epoch?: string }
 *   | { do: "load", request: number, channel: string }
 *   | { do: "event" | "unknown", channel: string, event: StreamEvent }
 *   | { do: "snapshot", channel: string, snapshot: Snapshot }
 *   | { do: "ended", channel: string, reason: EndReason, code?: string }
 *   | { do: "state" } & State} Output
 */
/**
 * @typedef {object} ConsumerOptions
 * @property {number} [heartbeat] milliseconds between two of the server's; twice that without a
 *   word, and the connection is given up
 * @property {number} [held] events of a channel that may wait for those before them
 * @property {() => number} [random] from 0 to below 1
 */

/** @typedef {"stopped" | "waiting" | "connecting" | "ready" | "ended"} Phase */

/** A channel that is followed. */
class Followed {
  /** @param {string} channel @param {Position} position */
  constructor(channel, { after, epoch, snapshot }) {
    this.channel = channel;
    /** Everything up to here has taken effect; null is from now on. @type {number | null} */
    this.cursor = after ?? null;
    /** @type {string | undefined} */
    this.epoch = epoch;
    /** `lost`: only a snapshot gives a position. @type {"idle" | "asked" | "live" | "lost"} */
    this.phase = snapshot === true ? "lost" : "idle";
    /** The channel is known to reach this. */
    this.target = 0;
    /** What came before its turn. @type {Map<number, StreamEvent>} */
    this.held = new Map();
    /** Which id a sequence had. @type {Map<number, string>} */
    this.ids = new Map();
    /** The request that is under way; 0 is none. */
    this.request = 0;
    /** Failures in a row. */
    this.failures = 0;
    /** When to ask again, in milliseconds. */
    this.retryAt = Infinity;
  }

  /** Whether events up to `target`, or before one that is held, are missing. */
  get isBehind() {
    return this.cursor !== null && (this.target > this.cursor || this.held.size > 0);
  }
}

/** Follows channels over one connection. */
export class Consumer {
  #heartbeat;
  #most;
  #random;
  /** @type {Map<string, Followed>} */
  #followed = new Map();
  /** @type {Set<string>} */
  #seen = new Set();
  /** @type {Phase} */
  #phase = "stopped";
  #requests = 0;
  /** Connections in a row that did not last. */
  #failures = 0;
  #connectAt = Infinity;
  #readyAt = Infinity;
  #heardAt = Infinity;
  #pinged = false;
  #now = 0;
  /** @type {Output[]} */
  #out = [];

  /** @param {ConsumerOptions} [options] */
  constructor({ heartbeat = 15_000, held = 1_000, random = Math.random } = {}) {
    this.#heartbeat = heartbeat;
    this.#most = held;
    this.#random = random;
  }

  /** When `tick` is due, in milliseconds; Infinity when nothing is waited for. */
  get deadline() {
    const retries = [...this.#followed.values()].map((followed) => followed.retryAt);
    return Math.min(this.#connectAt, this.#quietAt(), ...retries);
  }

  /**
   * Where a channel is, to go on from there another time; undefined when that is not known.
   * @param {string} channel
   * @returns {Position | undefined}
   */
  position(channel) {
    const followed = this.#followed.get(channel);
    if (followed === undefined || followed.cursor === null || followed.phase === "lost") {
      return undefined;
    }
    return where(followed.cursor, followed.epoch);
  }

  /**
   * Takes in what happened.
   * @param {Input} input
   * @param {number} now milliseconds of a clock that does not go back
   * @returns {Output[]} what to do about it, in this order
   */
  step(input, now) {
    this.#now = now;
    this.#out = [];
    this.#take(input);
    return this.#out;
  }

  /** @param {Input} input */
  #take(input) {
    switch (input.on) {
      case "start":
        if (this.#phase === "stopped" || this.#phase === "ended") this.#start();
        return;
      case "stop":
        this.#leaveConnection();
        this.#become("stopped", { state: "stopped" });
        return;
      case "open":
        this.#heardAt = this.#now;
        this.#out.push({ do: "authenticate" });
        return;
      case "closed":
        return this.#closed(input.code);
      case "frame":
        return this.#frame(input.frame);
      case "follow":
        return this.#follow(input.channel, input);
      case "leave":
        return this.#leave(input.channel);
      case "tick":
        return this.#tick();
      default:
        return this.#answered(input);
    }
  }

  // The connection.

  #start() {
    this.#connect();
    for (const followed of this.#followed.values()) {
      const isAsked = followed.request !== 0 || followed.retryAt !== Infinity;
      if (followed.phase === "lost" && !isAsked) this.#load(followed);
    }
  }

  #connect() {
    this.#connectAt = Infinity;
    this.#heardAt = this.#now;
    this.#pinged = false;
    this.#become("connecting", { state: "connecting" });
    this.#out.push({ do: "connect" });
  }

  /** @param {Phase} phase @param {State} state */
  #become(phase, state) {
    this.#phase = phase;
    this.#out.push({ do: "state", ...state });
    if (phase !== "stopped" && phase !== "ended") return;
    // An answer that is under way comes to nobody; it is asked for again at the next start.
    for (const followed of this.#followed.values()) {
      followed.request = 0;
      followed.retryAt = Infinity;
    }
  }

  /** Forgets all that belonged to the connection. What is held comes again by the replay. */
  #leaveConnection() {
    if (this.#phase === "connecting" || this.#phase === "ready") this.#out.push({ do: "close" });
    this.#disconnected();
  }

  #disconnected() {
    this.#connectAt = this.#heardAt = Infinity;
    for (const followed of this.#followed.values()) {
      followed.held.clear();
      followed.target = 0;
      if (followed.phase !== "lost") {
        followed.phase = "idle";
        followed.retryAt = Infinity;
      }
    }
  }

  /** @param {number} code */
  #closed(code) {
    if (this.#phase !== "connecting" && this.#phase !== "ready") return;
    const lasted = this.#now - this.#readyAt >= this.#heartbeat;
    this.#readyAt = Infinity;
    this.#disconnected();
    const reason = LAST_WORDS[code];
    if (reason !== undefined) return this.#become("ended", { state: "ended", reason });
    if (lasted) this.#failures = 0;
    this.#connectAt = this.#now + this.#pause(this.#failures);
    this.#failures += 1;
    this.#become("waiting", { state: "waiting", retryAt: this.#connectAt });
  }

  /** Full jitter: anything up to a bound that doubles. @param {number} failures */
  #pause(failures) {
    return Math.floor(this.#random() * Math.min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** failures));
  }

  /** When the silence has lasted for so long that something must be done about it. */
  #quietAt() {
    const patience = this.#phase === "ready" && !this.#pinged ? 1 : 2;
    return this.#heardAt + patience * this.#heartbeat;
  }

  #tick() {
    if (this.#connectAt <= this.#now) {
      this.#connect();
    } else if (this.#quietAt() <= this.#now) {
      if (this.#phase === "ready" && !this.#pinged) {
        this.#pinged = true;
        this.#send({ action: "ping" });
      } else {
        this.#out.push({ do: "close" });
        this.#closed(1006);
      }
    }
    for (const followed of this.#followed.values()) {
      if (followed.retryAt > this.#now) continue;
      followed.retryAt = Infinity;
      if (followed.phase === "lost") this.#load(followed);
      else if (followed.phase === "idle") this.#subscribe(followed);
      else this.#mend(followed);
    }
  }

  // Channels.

  /** @param {string} channel @param {Position} position */
  #follow(channel, position) {
    if (this.#followed.has(channel)) return;
    const followed = new Followed(channel, position);
    this.#followed.set(channel, followed);
    if (followed.phase === "lost") this.#load(followed);
    else this.#subscribe(followed);
  }

  /** @param {string} channel */
  #leave(channel) {
    const followed = this.#followed.get(channel);
    if (followed === undefined) return;
    this.#unsubscribe(followed);
    this.#followed.delete(channel);
  }

  /** @param {Followed} followed */
  #subscribe(followed) {
    if (this.#phase !== "ready") return;
    followed.phase = "asked";
    const { channel, cursor, epoch } = followed;
    this.#send({ action: "subscribe", channel, ...(cursor === null ? {} : where(cursor, epoch)) });
  }

  /** @param {Followed} followed */
  #unsubscribe({ channel, phase }) {
    if (phase === "asked" || phase === "live") this.#send({ action: "unsubscribe", channel });
  }

  /** @param {Frame} frame */
  #send(frame) {
    this.#out.push({ do: "send", frame });
  }

  /** The end of a channel, and of everything with the last one. @param {Followed} followed
   * @param {EndReason} reason @param {string} [code] */
  #end({ channel }, reason, code) {
    this.#followed.delete(channel);
    this.#out.push({ do: "ended", channel, reason, ...(code === undefined ? {} : { code }) });
    if (reason === "revoked" && this.#followed.size === 0) this.#endAll(reason);
  }

  /** @param {EndReason} reason */
  #endAll(reason) {
    this.#leaveConnection();
    this.#become("ended", { state: "ended", reason });
  }

  // What the server says.

  /** @param {any} frame */
  #frame(frame) {
    if (this.#phase !== "connecting" && this.#phase !== "ready") return;
    this.#heardAt = this.#now;
    this.#pinged = false;
    const data = frame?.data;
    if (typeof data !== "object" || data === null) return;
    if (frame.event === CONTROL) return this.#control(data);
    const followed = this.#followed.get(data.channel);
    if (followed === undefined || data.protocol !== BATCH) return;
    const isBatch = frame.event === BATCH && Array.isArray(data.events);
    const isPointer = frame.event === POINTER && isSequence(data.sequence);
    if (!isBatch && !isPointer) return;
    if (followed.phase === "asked") {
      // Until `subscribe` is answered, a number is still of the subscription before.
      if (isBatch) this.#batch(followed, data.events.filter(isNotice));
    } else if (followed.phase === "live") {
      if (!this.#isOf(followed, data.epoch)) this.#lose(followed);
      else if (isBatch) this.#batch(followed, data.events);
      else this.#pointer(followed, data.sequence);
    }
  }

  /** @param {any} data */
  #control({ kind, channel, head, epoch, code }) {
    if (kind === "authenticated" && this.#phase === "connecting") {
      this.#readyAt = this.#now;
      this.#become("ready", { state: "live" });
      for (const followed of this.#followed.values()) {
        if (followed.phase !== "lost") this.#subscribe(followed);
      }
      return;
    }
    const followed = this.#followed.get(channel);
    if (followed?.phase !== "asked" && followed?.phase !== "live") return;
    if (kind === "subscribed") {
      followed.phase = "live";
      if (!this.#isOf(followed, epoch)) return this.#lose(followed);
      if (followed.cursor === null && isSequence(head)) followed.cursor = head;
      if (followed.cursor === null) return this.#lose(followed);
      this.#mend(followed);
    } else if (kind === "error" && code !== "NOT_SUBSCRIBED") {
      if (!PASSING.includes(code)) return this.#end(followed, "refused", code);
      followed.phase = "idle";
      this.#later(followed);
    }
  }

  /** @param {Followed} followed @param {StreamEvent[]} events */
  #batch(followed, events) {
    for (const event of events) {
      if (isNotice(event)) {
        if (event.type === "resync.required") return this.#lose(followed);
        this.#unsubscribe(followed);
        return this.#end(followed, "revoked");
      }
      if (!this.#event(followed, event)) return this.#lose(followed);
    }
    this.#mend(followed);
  }

  /** @param {Followed} followed @param {number} sequence */
  #pointer(followed, sequence) {
    followed.target = Math.max(followed.target, sequence);
    if (!followed.isBehind) followed.failures = 0;
    this.#mend(followed);
  }

  /**
   * An event in its turn takes effect, and with it those that were held for it; one before its
   * turn is held; one that was there before changes nothing.
   * @param {Followed} followed @param {StreamEvent} event
   * @returns {boolean} false when the same sequence was another event
   */
  #event(followed, event) {
    const { sequence, id } = event ?? {};
    // Garbled: if it was an event, there is a gap now.
    if (!isSequence(sequence) || typeof id !== "string" || followed.cursor === null) return true;
    const known = followed.ids.get(sequence) ?? followed.held.get(sequence)?.id;
    if (known !== undefined && known !== id) return false;
    if (sequence <= followed.cursor) return true;
    if (sequence > followed.cursor + 1) {
      this.#hold(followed, event, sequence);
      return true;
    }
    this.#apply(followed, event, sequence);
    for (;;) {
      const next = followed.cursor + 1;
      const held = followed.held.get(next);
      if (held === undefined) return true;
      followed.held.delete(next);
      this.#apply(followed, held, next);
    }
  }

  /** @param {Followed} followed @param {StreamEvent} event @param {number} sequence */
  #hold(followed, event, sequence) {
    followed.target = Math.max(followed.target, sequence);
    if (followed.held.size < this.#most) followed.held.set(sequence, event);
    // Too many: the replay goes up to the target and brings them all.
    else followed.held.clear();
  }

  /** @param {Followed} followed @param {StreamEvent} event @param {number} sequence */
  #apply(followed, event, sequence) {
    followed.cursor = sequence;
    followed.failures = 0;
    followed.ids.set(sequence, event.id);
    followed.ids.delete(sequence - REMEMBERED_SEQUENCES);
    if (this.#seen.has(event.id)) return;
    this.#seen.add(event.id);
    if (this.#seen.size > REMEMBERED_IDS) {
      for (const oldest of this.#seen) {
        this.#seen.delete(oldest);
        break;
      }
    }
    const known = TYPES.includes(event.type);
    this.#out.push({ do: known ? "event" : "unknown", channel: followed.channel, event });
  }

  // Gaps.

  /** Learns the epoch; false when it is another one. @param {Followed} followed
   * @param {unknown} epoch */
  #isOf(followed, epoch) {
    if (typeof epoch !== "string") return true;
    followed.epoch ??= epoch;
    return followed.epoch === epoch;
  }

  /** Asks for what is missing, unless that is under way. @param {Followed} followed */
  #mend(followed) {
    const { phase, isBehind, request, retryAt, channel, cursor, epoch } = followed;
    if (phase !== "live" || !isBehind || request !== 0 || retryAt !== Infinity) return;
    followed.request = this.#requests += 1;
    const position = where(cursor ?? 0, epoch);
    this.#out.push({ do: "replay", request: followed.request, channel, ...position });
  }

  /** The position is worth nothing any more. @param {Followed} followed */
  #lose(followed) {
    this.#unsubscribe(followed);
    followed.phase = "lost";
    followed.held.clear();
    followed.ids.clear();
    followed.target = 0;
    followed.request = 0;
    if (followed.failures === 0) {
      followed.failures = 1;
      this.#load(followed);
    } else {
      // Lost again before anything came of the last snapshot.
      this.#later(followed);
    }
  }

  /** @param {Followed} followed */
  #load(followed) {
    followed.retryAt = Infinity;
    followed.request = this.#requests += 1;
    this.#out.push({ do: "load", request: followed.request, channel: followed.channel });
  }

  /** @param {Followed} followed @param {number} [atLeast] milliseconds */
  #later(followed, atLeast = 0) {
    followed.retryAt = this.#now + Math.max(atLeast, this.#pause(followed.failures));
    followed.failures += 1;
  }

  /** @param {Extract<Input, { request: number }>} input */
  #answered(input) {
    const channels = [...this.#followed.values()];
    const followed = channels.find(({ request }) => request !== 0 && request === input.request);
    if (followed === undefined) return;
    followed.request = 0;
    switch (input.on) {
      case "page":
        if (!isPage(input.page)) return this.#later(followed);
        return this.#page(followed, input.page);
      case "gone":
        return this.#lose(followed);
      case "snapshot":
        if (!isSequence(input.snapshot?.sequence)) return this.#later(followed);
        return this.#snapshot(followed, input.snapshot);
      case "refused":
        if (input.status === 401) return this.#endAll("unauthorized");
        this.#unsubscribe(followed);
        return this.#end(followed, "refused");
      case "failed":
        return this.#later(followed, input.retryAfter);
    }
  }

  /** @param {Followed} followed @param {Page} page */
  #page(followed, page) {
    const before = followed.cursor;
    if (!this.#isOf(followed, page.epoch)) return this.#lose(followed);
    for (const event of page.events) {
      if (!this.#event(followed, event)) return this.#lose(followed);
    }
    // What brings nothing on must not be asked for again at once.
    if (followed.isBehind && followed.cursor === before) this.#later(followed);
    else this.#mend(followed);
  }

  /** @param {Followed} followed @param {Snapshot} snapshot */
  #snapshot(followed, snapshot) {
    followed.cursor = snapshot.sequence;
    followed.epoch = typeof snapshot.epoch === "string" ? snapshot.epoch : undefined;
    followed.phase = "idle";
    this.#out.push({ do: "snapshot", channel: followed.channel, snapshot });
    this.#subscribe(followed);
  }
}

/** @param {number} after @param {string | undefined} epoch */
function where(after, epoch) {
  return epoch === undefined ? { after } : { after, epoch };
}

/** What is told to this subscriber alone, without a number. @param {any} event */
function isNotice(event) {
  return event?.type === "access.revoked" || event?.type === "resync.required";
}

/** What a proxy answers in the server's place is none. @param {any} page
 * @returns {page is Page} */
function isPage(page) {
  return Array.isArray(page?.events) && isSequence(page.floor) && isSequence(page.head);
}

/** @param {unknown} value @returns {value is number} */
function isSequence(value) {
  return Number.isSafeInteger(value) && Number(value) >= 0;
}
