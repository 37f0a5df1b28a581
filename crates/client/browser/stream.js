/**
 * Follows channels of the live event stream from a browser (or Node 22 and newer): the I/O around
 * {@link Consumer}. Events come over one WebSocket; what did not travel is fetched.
 *
 * ```js
 * const stream = new Stream({
 *   url: "https://exports.example.com/",
 *   token: () => session.token,
 *   onEvent: (event) => show(event),
 * });
 * stream.follow("job:0197f604-49fe-7b73-bb81-df2e93a7e47d", { after: 0 });
 * stream.start();
 * ```
 */

import { Consumer } from "./consumer.js";

/** Events of a page. */
const PAGE = 1_000;
/** How long an answer may take, in milliseconds. */
const PATIENCE = 30_000;
/**
 * No server is believed to want a longer pause, and no timer is set for longer, in milliseconds:
 * one for more than 2^31 - 1 fires at once.
 */
const LONGEST_PAUSE = 3_600_000;

/**
 * A clock that can be replaced in tests; times in milliseconds.
 * @typedef {object} Clock
 * @property {() => number} now
 * @property {(then: () => void, pause: number) => any} set calls once after a pause
 * @property {(timer: any) => void} clear
 */
/**
 * @typedef {object} StreamOptions
 * @property {string | URL} url where the service is; `v1/stream` is resolved against it
 * @property {string | (() => string | Promise<string>)} token the credential; it is never put
 *   into a URL
 * @property {(event: import("./consumer.js").StreamEvent, channel: string) => void} [onEvent]
 *   each event once
 * @property {(event: import("./consumer.js").StreamEvent, channel: string) => void} [onUnknown]
 *   an event of a type that is not in the catalogue
 * @property {(snapshot: import("./consumer.js").Snapshot, channel: string) => void} [onSnapshot]
 *   replaces all that was known of the channel
 * @property {(state: import("./consumer.js").State) => void} [onState]
 * @property {(channel: string, reason: import("./consumer.js").EndReason, code?: string) => void}
 *   [onEnded] the channel is not followed any more
 * @property {typeof globalThis.WebSocket} [WebSocket]
 * @property {typeof globalThis.fetch} [fetch]
 * @property {Clock} [clock]
 * @property {() => number} [random]
 * @property {number} [heartbeat] milliseconds, the server's
 */

/** @type {Clock} */
const CLOCK = {
  now: () => performance.now(),
  set: (then, pause) => setTimeout(then, pause),
  clear: (timer) => clearTimeout(timer),
};

/** A connection to the stream that keeps itself up. */
export class Stream {
  #options;
  #url;
  #clock;
  #fetch;
  #machine;
  /** @type {WebSocket | null} */
  #socket = null;
  /** @type {any} */
  #timer = null;
  /** @type {import("./consumer.js").Input[]} */
  #inputs = [];
  #isStepping = false;

  /** @param {StreamOptions} options */
  constructor(options) {
    this.#options = options;
    this.#url = new URL(options.url);
    this.#clock = options.clock ?? CLOCK;
    this.#fetch = options.fetch ?? globalThis.fetch.bind(globalThis);
    this.#machine = new Consumer({
      ...(options.random && { random: options.random }),
      ...(options.heartbeat && { heartbeat: options.heartbeat }),
    });
    if (options.WebSocket === undefined && globalThis.WebSocket === undefined) {
      throw new Error("there is no WebSocket here: pass one as an option");
    }
  }

  /**
   * Follows a channel: from a position, from a snapshot, or from now on.
   * @param {string} channel e.g. `job:<id>`
   * @param {import("./consumer.js").Position} [position]
   */
  follow(channel, position = {}) {
    this.#take({ on: "follow", channel, ...position });
  }

  /** @param {string} channel */
  leave(channel) {
    this.#take({ on: "leave", channel });
  }

  /** Connects, and from then on comes back by itself until `stop` or the end of the access. */
  start() {
    this.#take({ on: "start" });
  }

  /** Disconnects; no answer that is under way is told. Channels and positions stay for `start`. */
  stop() {
    this.#take({ on: "stop" });
  }

  /**
   * Where a channel is, to go on from there another time.
   * @param {string} channel
   */
  position(channel) {
    return this.#machine.position(channel);
  }

  /**
   * One input after the other: what a callback asks for comes after what it was called for.
   * @param {import("./consumer.js").Input} input
   */
  #take(input) {
    this.#inputs.push(input);
    if (this.#isStepping) return;
    this.#isStepping = true;
    try {
      for (let next = this.#inputs.shift(); next !== undefined; next = this.#inputs.shift()) {
        for (const output of this.#machine.step(next, this.#clock.now())) this.#perform(output);
      }
    } finally {
      // What was thrown, as by a `WebSocket` that takes no such address, must not hold up the rest.
      this.#isStepping = false;
      this.#wait();
    }
  }

  #wait() {
    this.#clock.clear(this.#timer);
    const now = this.#clock.now();
    const due = this.#inputs.length > 0 ? now : this.#machine.deadline;
    if (due === Infinity) return;
    const pause = Math.min(LONGEST_PAUSE, Math.max(0, Math.ceil(due - now)));
    this.#timer = this.#clock.set(() => this.#take({ on: "tick" }), pause);
  }

  /** @param {import("./consumer.js").Output} output */
  #perform(output) {
    const { onEvent, onUnknown, onSnapshot, onState, onEnded } = this.#options;
    switch (output.do) {
      case "connect":
        return this.#connect();
      case "authenticate":
        return this.#authenticate();
      case "send":
        return this.#socket?.send(JSON.stringify(output.frame));
      case "close":
        return this.#close();
      case "replay": {
        const { request, channel, after, epoch } = output;
        const query = new URLSearchParams({ after: String(after), limit: String(PAGE) });
        if (epoch !== undefined) query.set("epoch", epoch);
        this.#ask(request, `${pathOf(channel)}/events?${query}`, (page) => {
          return { on: "page", request, page };
        });
        return;
      }
      case "load": {
        const { request, channel } = output;
        this.#ask(request, `${pathOf(channel)}/snapshot`, (snapshot) => {
          return { on: "snapshot", request, snapshot };
        });
        return;
      }
      case "event":
        return tell(() => onEvent?.(output.event, output.channel));
      case "unknown":
        return tell(() => onUnknown?.(output.event, output.channel));
      case "snapshot":
        return tell(() => onSnapshot?.(output.snapshot, output.channel));
      case "ended":
        return tell(() => onEnded?.(output.channel, output.reason, output.code));
      case "state": {
        const { do: _, ...state } = output;
        return tell(() => onState?.(state));
      }
    }
  }

  #connect() {
    const url = new URL("v1/stream", this.#url);
    url.protocol = url.protocol === "https:" ? "wss:" : "ws:";
    const socket = new (this.#options.WebSocket ?? WebSocket)(url);
    this.#socket = socket;
    // A socket that was replaced has nothing to say any more.
    const current = () => socket === this.#socket;
    socket.onopen = () => current() && this.#take({ on: "open" });
    socket.onmessage = ({ data }) => current() && this.#take({ on: "frame", frame: parsed(data) });
    socket.onclose = ({ code }) => {
      if (!current()) return;
      this.#socket = null;
      this.#take({ on: "closed", code });
    };
    // Not every WebSocket tells of its end after this; and for `ws`, an error that nobody listens
    // to ends the process.
    socket.onerror = () => this.#giveUp(socket);
  }

  /** What it says later is of no interest. @param {WebSocket | null} socket */
  #giveUp(socket) {
    if (socket !== this.#socket) return;
    this.#close();
    this.#take({ on: "closed", code: 1006 });
  }

  #close() {
    const socket = this.#socket;
    this.#socket = null;
    socket?.close();
  }

  async #token() {
    const { token } = this.#options;
    return typeof token === "function" ? token() : token;
  }

  /** A browser cannot send `Authorization` with a WebSocket. */
  #authenticate() {
    const socket = this.#socket;
    this.#token().then(
      (token) => {
        if (socket === this.#socket) socket?.send(JSON.stringify({ action: "auth", token }));
      },
      () => this.#giveUp(socket),
    );
  }

  /**
   * @param {number} request
   * @param {string} path
   * @param {(body: any) => import("./consumer.js").Input} answer
   */
  #ask(request, path, answer) {
    this.#get(path)
      .then(async (response) => {
        const { status } = response;
        if (status === 200) return answer(await response.json());
        if (status === 410) return /** @type {const} */ ({ on: "gone", request });
        if (status === 401 || status === 403 || status === 404) {
          return /** @type {const} */ ({ on: "refused", request, status });
        }
        return failed(request, response.headers.get("retry-after"));
      })
      .catch(() => failed(request, null))
      .then((input) => this.#take(input));
  }

  /** @param {string} path */
  async #get(path) {
    const headers = { authorization: `Bearer ${await this.#token()}` };
    const signal = AbortSignal.timeout(PATIENCE);
    const get = this.#fetch;
    return get(new URL(path, this.#url), { headers, signal, cache: "no-store" });
  }
}

/** @param {string} channel */
function pathOf(channel) {
  return `v1/channels/${encodeURIComponent(channel)}`;
}

/** @param {number} request @param {string | null} retryAfter seconds, or a date
 * @returns {import("./consumer.js").Input} */
function failed(request, retryAfter) {
  const seconds = Number(retryAfter ?? 0);
  const pause = Number.isNaN(seconds) ? Date.parse(retryAfter ?? "") - Date.now() : seconds * 1_000;
  return { on: "failed", request, retryAfter: Math.min(LONGEST_PAUSE, Math.max(0, pause || 0)) };
}

/** What is no JSON says nothing; what it may have said is missed and found as a gap.
 * @param {unknown} text */
function parsed(text) {
  try {
    return JSON.parse(String(text));
  } catch {
    return null;
  }
}

/** A callback that throws is its owner's fault and stops nothing here. @param {() => void} call */
function tell(call) {
  try {
    call();
  } catch (error) {
    queueMicrotask(() => {
      throw error;
    });
  }
}
