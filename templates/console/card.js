/** One export on the page: what the API says of it, and what the stream tells since. */

import { isTime } from "./api.js";

/** @typedef {import("./consumer.js").StreamEvent} StreamEvent */
/** @typedef {import("./api.js").ExportView} ExportView */
/**
 * What its buttons do.
 * @typedef {object} Actions
 * @property {(card: Card) => Promise<void>} download
 * @property {(card: Card, number: number) => Promise<void>} part
 * @property {(card: Card) => Promise<void>} cancel
 * @property {(card: Card) => Promise<void>} rerun
 * @property {(card: Card) => void} open its events are looked at
 * @property {(text: string) => void} news a change that is worth saying aloud
 */

const STAGES = ["resolve", "prepare", "analyze", "generate", "validate"];
/** What the API calls the states of `job.*`. @type {Record<string, string>} */
const STATUS = {
  queued: "PENDING",
  waiting_turn: "PENDING",
  running: "PROCESSING",
  succeeded: "COMPLETED",
  failed: "FAILED",
  cancelled: "CANCELED",
  limit_exceeded: "FAILED",
};
/** Events of an export that the page keeps. */
const MOST_EVENTS = 1_000;

const number = new Intl.NumberFormat();
const clock = new Intl.DateTimeFormat(undefined, { timeStyle: "medium" });
const day = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });

/** @param {string} status */
export const hasEnded = (status) => ["COMPLETED", "FAILED", "CANCELED", "EXPIRED"].includes(status);

export class Card {
  #actions;
  /** When the state was last told: what is older, as in a replay, does not take it back. */
  #toldAt;
  /** @type {StreamEvent[]} in their order */
  #events = [];
  /** How many of them are on the page; -1 when they must be put there anew. */
  #shown = 0;
  #isDrawing = false;
  /** Whether the API is to be asked: of a file after the end, or for what can be drawn. */
  lacksAnswer = false;

  /** @param {ExportView} view @param {Actions} actions */
  constructor(view, actions) {
    this.view = view;
    this.#actions = actions;
    this.#toldAt = view.updatedAt;
    /** @type {Record<string, string>} what has become of each stage */
    this.stages = {};
    const template = /** @type {HTMLTemplateElement} */ (document.getElementById("card"));
    const fragment = /** @type {DocumentFragment} */ (template.content.cloneNode(true));
    this.element = /** @type {HTMLElement} */ (fragment.firstElementChild);
    this.element.dataset["id"] = view.exportJobId;
    this.#find(".stages").append(...STAGES.map((stage) => item(stage)));
    for (const name of /** @type {const} */ (["download", "cancel", "rerun"])) {
      this.#button(this.#find(`.${name}`), () => actions[name](this));
    }
    this.#find("details").addEventListener("toggle", () => {
      if (this.#isOpen) actions.open(this);
      this.#draw();
    });
    this.element.hidden = true;
    this.#drawNow();
  }

  /** What the API says replaces what was known. @param {ExportView} view */
  show(view) {
    const files = view.files ?? this.view.files;
    const before = this.view.status;
    this.view = { ...view, files };
    if (hasEnded(view.status)) this.lacksAnswer = false;
    if (view.updatedAt > this.#toldAt) this.#toldAt = view.updatedAt;
    this.#announce(before);
    this.#draw();
  }

  /**
   * An event of this export.
   * @param {StreamEvent} event
   * @returns {boolean} whether it is the last of its states: the API says more of it then
   */
  take(event) {
    const last = this.#events.at(-1);
    this.#events.push(event);
    if (last !== undefined && order(last) > order(event)) {
      this.#events.sort((one, other) => (order(one) < order(other) ? -1 : 1));
      this.#shown = -1;
    }
    if (this.#events.length > MOST_EVENTS) {
      this.#events.shift();
      this.#shown = -1;
    }
    const ends = this.#apply(event);
    this.#draw();
    return ends;
  }

  /** @param {StreamEvent} event */
  #apply({ type, time, data }) {
    const [family, word = ""] = type.split(".");
    const { state, stage, done, total, totalIsEstimate, position } = data ?? {};
    if (family === "stage") {
      if (STAGES.includes(stage)) this.stages[stage] = word === "progress" ? "started" : word;
      const { progress, status } = this.view;
      if (hasEnded(status) || !isAmount(done)) return false;
      if (stage !== "generate" || done < progress.done) return false;
      this.view.progress = {
        stage,
        done,
        total: isAmount(total) ? total : null,
        totalIsEstimate: totalIsEstimate === true,
      };
      return false;
    }
    if (type === "queue.position") this.view.queuePosition = isAmount(position) ? position : null;
    const isKnown = family === "job" && Object.hasOwn(STATUS, text(state));
    const status = isKnown ? STATUS[text(state)] : undefined;
    const before = this.view.status;
    if (status === undefined || hasEnded(before)) return false;
    if (hasEnded(status)) this.lacksAnswer = true;
    if (time < this.#toldAt) return hasEnded(status);
    this.#toldAt = time;
    if (status === "PROCESSING") {
      this.stages = {};
      this.view.progress = { ...this.view.progress, done: 0 };
    }
    // A cancel that was asked for is told by the API alone.
    if (before !== "CANCELING" || hasEnded(status)) this.view.status = status;
    this.#announce(before);
    return hasEnded(status);
  }

  /** @param {string} before */
  #announce(before) {
    const { status, fileName } = this.view;
    if (status !== before) this.#actions.news(`${fileName}: ${status.toLowerCase()}`);
  }

  get #isOpen() {
    return /** @type {HTMLDetailsElement} */ (this.#find("details")).open;
  }

  /** @param {string} selector */
  #find(selector) {
    return /** @type {HTMLElement} */ (this.element.querySelector(selector));
  }

  /** Once for all that comes before the next picture. */
  #draw() {
    if (this.#isDrawing) return;
    this.#isDrawing = true;
    requestAnimationFrame(() => {
      this.#isDrawing = false;
      this.#drawNow();
    });
  }

  /** What cannot be drawn is as good as no answer, and in nobody else's way. */
  #drawNow() {
    try {
      this.#drawAll();
    } catch (error) {
      console.error(error);
      this.lacksAnswer = true;
    }
  }

  #drawAll() {
    const { view } = this;
    const { status, fileName, links, failure } = view;
    this.element.dataset["status"] = status;
    this.#find("h3").textContent = fileName;
    this.#find(".badge").textContent = status;
    this.#find(".facts").textContent = facts(view);
    this.#find(".fault").textContent =
      failure === null || status === "CANCELED" ? "" : `${failure.code}: ${failure.message}`;
    const shows = {
      download: links.file !== null,
      cancel: !hasEnded(status),
      rerun: hasEnded(status),
    };
    for (const [name, isShown] of Object.entries(shows)) {
      const button = this.#find(`.${name}`);
      // Who was there stays on the card.
      if (!isShown && button === document.activeElement) this.#find("summary").focus();
      button.hidden = !isShown;
      button.setAttribute("aria-label", `${button.textContent} ${fileName}`);
    }
    this.#drawRun();
    this.#drawFiles();
    this.#drawEvents();
    this.element.hidden = false;
  }

  #drawRun() {
    const { status, progress, totalRows } = this.view;
    this.#find(".run").hidden = hasEnded(status) && status !== "COMPLETED";
    const bar = /** @type {HTMLProgressElement} */ (this.#find("progress"));
    bar.setAttribute("aria-label", `Progress of ${this.view.fileName}`);
    const part = percent(status, progress);
    if (part === null) bar.removeAttribute("value");
    else bar.value = part;
    const rows = status === "COMPLETED" ? (totalRows ?? progress.done) : progress.done;
    const about = progress.totalIsEstimate ? "about " : "";
    const isTold = progress.total !== null && !hasEnded(status);
    const of = isTold ? ` of ${about}${number.format(progress.total ?? 0)}` : "";
    const isWaiting = status === "PENDING";
    this.#find(".amount").textContent = isWaiting ? "waiting" : `${number.format(rows)}${of} rows`;
    for (const [index, stage] of STAGES.entries()) {
      const state = status === "COMPLETED" ? "succeeded" : (this.stages[stage] ?? "");
      const mark = /** @type {HTMLElement} */ (this.#find(".stages").children[index]);
      mark.dataset["state"] = state;
      if (state !== "") mark.title = state;
    }
  }

  #drawFiles() {
    const files = this.view.links.file === null ? [] : (this.view.files ?? []);
    const list = this.#find(".files");
    if (list.childElementCount === files.length) return;
    list.replaceChildren(
      ...files.map(({ number: nth, name, sizeBytes }) => {
        const button = document.createElement("button");
        button.type = "button";
        button.className = "link";
        button.textContent = `${name} (${size(sizeBytes)})`;
        this.#button(button, () => this.#actions.part(this, nth));
        const entry = document.createElement("li");
        entry.append(button);
        return entry;
      }),
    );
  }

  #drawEvents() {
    this.#find(".count").textContent = this.#events.length > 0 ? `(${this.#events.length})` : "";
    if (!this.#isOpen) return;
    const list = this.#find(".events");
    if (this.#shown < 0) {
      list.replaceChildren();
      this.#shown = 0;
    }
    const isAtEnd = list.scrollHeight - list.scrollTop - list.clientHeight < 40;
    list.append(...this.#events.slice(this.#shown).map(line));
    this.#shown = this.#events.length;
    if (isAtEnd) list.scrollTop = list.scrollHeight;
  }

  /** @param {HTMLElement} button @param {() => Promise<void>} act */
  #button(button, act) {
    button.addEventListener("click", async () => {
      // Not `disabled`: the focus would leave the card.
      if (button.ariaDisabled === "true") return;
      button.ariaDisabled = "true";
      await act().finally(() => (button.ariaDisabled = "false"));
    });
  }
}

/** By time, and by id within a moment: of two channels each may be told first.
 * @param {StreamEvent} event */
const order = ({ time, id }) => `${time} ${id}`;

/** @param {string} text */
function item(text) {
  const entry = document.createElement("li");
  entry.textContent = text;
  return entry;
}

/** @param {ExportView} view */
function facts({ resource, format, columns, createdAt, sizeBytes }) {
  const bytes = sizeBytes === null ? [] : [size(sizeBytes)];
  const many = `${columns.length} ${columns.length === 1 ? "column" : "columns"}`;
  return [resource, format, many, ...bytes, day.format(new Date(createdAt))].join(" · ");
}

/**
 * How far the bar is; null where nobody knows. An estimate never fills it before the end.
 * @param {string} status @param {ExportView["progress"]} progress
 */
function percent(status, { done, total }) {
  if (status === "COMPLETED") return 100;
  if (status === "PENDING") return 0;
  return total === null || total === 0 ? null : Math.min(99, (100 * done) / total);
}

/** @param {number} bytes */
export function size(bytes) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  const power = Math.min(units.length - 1, Math.floor(Math.log2(Math.max(1, bytes)) / 10));
  return `${(bytes / 1024 ** power).toFixed(power === 0 ? 0 : 1)} ${units[power]}`;
}

/** @param {unknown} value @returns {value is number} */
const isAmount = (value) => typeof value === "number" && Number.isFinite(value) && value >= 0;

/**
 * Others tell events, too, and what `data` has is theirs: an object may not even become a text.
 * @param {unknown} value
 */
const text = (value) => (typeof value === "object" || value === undefined ? "…" : String(value));

/** @param {unknown} value */
const amount = (value) => (isAmount(value) ? number.format(value) : text(value));

/** @param {StreamEvent} event */
function line(event) {
  const entry = document.createElement("li");
  entry.dataset["event"] = event.id;
  const [time, type, told] = ["time", "code", "span"].map((name) => document.createElement(name));
  if (time === undefined || type === undefined || told === undefined) return entry;
  // Nobody has looked at what the stream tells.
  const isKnown = isTime(event.time);
  time.textContent = isKnown ? clock.format(new Date(event.time)) : text(event.time);
  time.title = event.time;
  type.textContent = event.type;
  if (event.type === "log.batch") {
    const lines = event.data?.["lines"];
    for (const logged of Array.isArray(lines) ? lines : []) {
      const [level, message] = [text(logged?.level), text(logged?.message)];
      const row = document.createElement("span");
      row.dataset["level"] = level.toLowerCase();
      row.textContent = `${told.childElementCount > 0 ? "\n" : ""}${level}: ${message}`;
      told.append(row);
    }
  } else {
    told.textContent = words(event);
  }
  entry.append(time, type, told);
  return entry;
}

/** @param {StreamEvent} event */
function words({ type, data }) {
  const { state, stage, done, total, totalIsEstimate, position, attempt, at, code, message } =
    data ?? {};
  const { rows, bytes } = data ?? {};
  if (type.startsWith("stage.")) {
    const of = total === null ? "" : ` of ${totalIsEstimate ? "about " : ""}${amount(total)}`;
    return done === null ? text(stage) : `${text(stage)}: ${amount(done)}${of}`;
  }
  if (type === "queue.position") return `position ${text(position)}`;
  if (type === "retry.scheduled") return `attempt ${text(attempt)} at ${text(at)} (${text(code)})`;
  if (type === "usage.recorded") {
    return `${amount(rows)} rows, ${isAmount(bytes) ? size(bytes) : text(bytes)}`;
  }
  return [state, code, message]
    .filter((word) => word !== undefined && word !== null)
    .map(text)
    .join(" · ");
}
