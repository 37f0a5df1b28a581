/** The page: sign in, list the exports, and let the stream move them. */

import { Api, EXPORT, EXPORTS, RESOURCES, fits, problemOf } from "./api.js";
import { Card, hasEnded } from "./card.js";
import { RequestForm } from "./form.js";
import { Stream } from "./stream.js";

/** @typedef {import("./consumer.js").StreamEvent} StreamEvent */
/** @typedef {import("./api.js").ExportView} ExportView */
/** @typedef {import("./api.js").Problem} Problem */

const STORED = "outport.token";
/** Exports of a page. */
const PAGE = 50;
/** Channels that are followed at once: below what a connection may have. */
const MOST_FOLLOWED = 100;
/** Events of exports without a card that are kept: as many as the stream remembers to have told. */
const MOST_KEPT = 10_000;
/** Between two looks where there is no stream, or no answer, in milliseconds. */
const LOOK = 5_000;
/** So many answers that there is no such thing are believed, of which one alone may be mistaken. */
const REFUSALS = 3;
/** No answer is waited for longer, whatever the service says, in milliseconds. */
const LONGEST_PAUSE = 3_600_000;
const NO_TOKEN = "This is no token: one has letters, digits and signs without blanks.";
const EXPIRED = "The token is not accepted any more.";
/** @type {Record<string, string>} */
const CONNECTION = {
  connecting: "Connecting…",
  live: "Live",
  waiting: "Reconnecting…",
  unauthorized: "Signed out",
  revoked: "No live updates: access has ended",
  protocol: "No live updates",
  channels: "No live updates",
};

/** @template {HTMLElement} [T=HTMLElement] @param {string} id @returns {T} */
const the = (id) => /** @type {any} */ (document.getElementById(id));

/** What a person who is signed in works with. */
class Desk {
  /** Newest first. @type {Map<string, Card>} */
  #cards = new Map();
  /** Jobs whose channel is followed, the oldest first. @type {Set<string>} */
  #followed = new Set();
  #applications = new Set();
  /**
   * Of exports that have no card yet. The stream tells an event once, and the API may answer with
   * what was before it: a card that is made from that answer needs them.
   * @type {StreamEvent[]}
   */
  #kept = [];
  #isLive = true;
  /** Whether all that is new will be told: the list was looked at since that is so. */
  #isTold = false;
  /** Where what is listed ends, or has its first hole. @type {string | null} */
  #older = null;
  /** The first of the list when it was looked at. @type {string | undefined} */
  #newest;
  #timer;
  /** What the API did not answer and is asked again, by path. @type {Map<string, number>} */
  #again = new Map();
  /** Under way, asked again, or refused, by path. @type {Set<string>} */
  #asked = new Set();

  /** @param {Api} api @param {string} token @param {(reason: string) => void} signOut */
  constructor(api, token, signOut) {
    this.api = api;
    this.signOut = signOut;
    this.stream = new Stream({
      url: document.baseURI,
      token,
      onEvent: (event) => this.#event(event),
      onSnapshot: ({ jobs }) => {
        if (fits(jobs, [EXPORT])) for (const job of jobs) this.#show(job);
      },
      onState: (state) => this.#state(state),
      onEnded: (channel) => this.#ended(channel),
    });
    this.#timer = setInterval(() => this.#look(), LOOK);
    document.onvisibilitychange = () => this.#look();
    the("older").onclick = () => this.#attempt(() => this.#load(this.#older));
  }

  /** @param {{ items: ExportView[], nextCursor: string | null }} page */
  open(page) {
    this.stream.start();
    this.#list(null, page);
  }

  /** Nothing of it is seen after this. */
  close() {
    clearInterval(this.#timer);
    document.onvisibilitychange = null;
    this.#again.forEach((timer) => clearTimeout(timer));
    this.stream.stop();
    for (const id of ["cards", "trouble", "news"]) the(id).replaceChildren();
  }

  /** @param {unknown} body @param {string} key */
  async request(body, key) {
    const view = await this.api.post("v1/exports", body, { "idempotency-key": key });
    const card = this.#show(view);
    card.element.scrollIntoView({ block: "nearest" });
    say(`${view.fileName}: requested`);
  }

  /** Older ones than the cursor, or the newest. @param {string | null} cursor */
  async #load(cursor) {
    const after = cursor === null ? "" : `&cursor=${encodeURIComponent(cursor)}`;
    this.#list(cursor, await this.api.get(`v1/exports?limit=${PAGE}${after}`, EXPORTS));
  }

  /**
   * A page after a cursor, or the newest: unless that reaches what was the newest before, there is
   * a hole between them, and the older ones begin there.
   * @param {string | null} cursor @param {{ items: ExportView[], nextCursor: string | null }} page
   */
  #list(cursor, { items, nextCursor }) {
    for (const item of items) this.#show(item);
    const isNewest = cursor === null;
    const joins = isNewest && items.some((it) => it.exportJobId === this.#newest);
    if (isNewest) this.#newest = items[0]?.exportJobId;
    if (isNewest ? !joins : cursor === this.#older) this.#older = nextCursor;
    const older = the("older");
    const isLast = this.#older === null;
    // Who was there goes on at the last of the list.
    if (isLast && older === document.activeElement) {
      const summary = the("cards").querySelector("li:last-child summary");
      /** @type {HTMLElement | null} */ (summary)?.focus({ preventScroll: true });
    }
    older.hidden = isLast;
    the("empty").hidden = this.#cards.size > 0;
  }

  /**
   * Brings an export up to date, or puts it where it belongs: the newest first.
   * @param {ExportView} view
   * @returns {Card}
   */
  #show(view) {
    const { exportJobId: id, status } = view;
    const card = this.#cards.get(id) ?? this.#card(view);
    card.show(view);
    if (!this.#cards.has(id)) {
      this.#cards.set(id, card);
      const { children } = the("cards");
      const isOlder = (/** @type {Element} */ it) =>
        (this.#cards.get(/** @type {HTMLElement} */ (it).dataset["id"] ?? "")?.view.createdAt ??
          "") < view.createdAt;
      the("cards").insertBefore(card.element, [...children].find(isOlder) ?? null);
      the("empty").hidden = true;
      this.#giveKept(id);
    }
    if (!hasEnded(status)) this.#follow(id);
    return card;
  }

  /** @param {ExportView} view @returns {Card} */
  #card(view) {
    const path = pathOf(view.exportJobId);
    const post = async (/** @type {string} */ what) => {
      this.#show(await this.api.post(`${path}/${what}`));
    };
    return new Card(view, {
      download: (card) => this.#attempt(() => this.#download(card)),
      part: (card, number) => this.#attempt(() => this.#part(card, number)),
      cancel: () => this.#attempt(() => post("cancel")),
      rerun: () => this.#attempt(() => post("rerun")),
      open: () => this.#follow(view.exportJobId),
      news: say,
    });
  }

  /** @param {Card} card */
  async #download(card) {
    const path = pathOf(card.view.exportJobId);
    card.show(await this.api.get(path, EXPORT));
    // Of a split export the card now lists the files.
    if (card.view.files === null) {
      await this.api.save(`${path}/file`, card.view.fileName, card.view.sizeBytes);
    }
  }

  /** @param {Card} card @param {number} number */
  async #part({ view }, number) {
    const part = view.files?.find((file) => file.number === number);
    const path = `${pathOf(view.exportJobId)}/files/${number}`;
    if (part !== undefined) await this.api.save(path, part.name, part.sizeBytes);
  }

  // What the stream tells.

  /** From the beginning of an export, so that its whole story is there. @param {string} id */
  #follow(id) {
    if (this.#followed.has(id)) return;
    if (this.#followed.size >= MOST_FOLLOWED) {
      const isDone = (/** @type {string} */ it) =>
        hasEnded(this.#cards.get(it)?.view.status ?? "EXPIRED");
      const done = [...this.#followed].find(isDone);
      if (done === undefined) return;
      this.#followed.delete(done);
      this.stream.leave(`job:${done}`);
    }
    this.#followed.add(id);
    this.stream.follow(`job:${id}`, { after: 0 });
  }

  /** @param {StreamEvent} event */
  #event(event) {
    const { job, application } = event.stream;
    if (application !== undefined && !this.#applications.has(application)) {
      this.#applications.add(application);
      this.stream.follow(`application:${application}`);
      this.#isTold = false;
    }
    if (job === undefined) return;
    const card = this.#cards.get(job);
    if (card === undefined) {
      this.#kept.push(event);
      if (this.#kept.length > MOST_KEPT) this.#kept.shift();
      // Another one's request; any other event is of one that this page does not show.
      if (event.type === "job.queued") this.#refresh(job);
    } else if (card.take(event)) {
      this.#refresh(job);
    }
  }

  /** @param {string} id */
  #giveKept(id) {
    const own = this.#kept.filter(({ stream }) => stream.job === id);
    this.#kept = this.#kept.filter(({ stream }) => stream.job !== id);
    for (const event of own) this.#event(event);
  }

  /** @param {string} id */
  #refresh(id) {
    return this.#ask(pathOf(id), EXPORT, (view) => this.#show(view));
  }

  /** What a person can request. */
  offer() {
    return this.#ask("v1/resources", RESOURCES, ({ items }) => form.offer(items));
  }

  /**
   * Asks until there is an answer, or none to be had: what led here happens once.
   * @param {string} path @param {unknown} sample @param {(answer: any) => void} take
   * @param {number} refusals how often there was no such thing
   */
  async #ask(path, sample, take, refusals = 0) {
    clearTimeout(this.#again.get(path));
    this.#again.delete(path);
    this.#asked.add(path);
    try {
      take(await this.api.get(path, sample));
      this.#asked.delete(path);
    } catch (error) {
      const problem = this.#problem(error);
      const isAbsent = problem.status === 404;
      const many = refusals + Number(isAbsent);
      // All else is out of this caller's reach.
      if (many === REFUSALS || !(problem.mayPass || isAbsent)) return;
      // Another question may have been under way, and have failed before.
      clearTimeout(this.#again.get(path));
      const ask = () => this.#ask(path, sample, take, many);
      this.#again.set(path, setTimeout(ask, pauseAfter(problem)));
    }
  }

  /** @param {import("./consumer.js").State} state */
  #state(state) {
    const element = the("connection");
    const word = state.state === "ended" ? state.reason : state.state;
    element.dataset["state"] = state.state;
    element.textContent = CONNECTION[word] ?? "";
    this.#isLive = state.state === "live";
    if (word === "unauthorized") this.signOut(EXPIRED);
  }

  /** @param {string} channel */
  #ended(channel) {
    if (!channel.startsWith("job:")) return;
    // It stays among the followed: asking again would be refused again.
    the("connection").textContent = "No live updates";
    this.#isLive = false;
  }

  /** Now and then: the list where there is no stream, and an end that the API has not told. */
  #look() {
    if (document.hidden) return;
    for (const [id, { lacksAnswer }] of this.#cards) {
      if (lacksAnswer && !this.#asked.has(pathOf(id))) this.#refresh(id);
    }
    const follows = this.#applications.size > 0;
    const isMoving = [...this.#cards.values()].some(({ view }) => !hasEnded(view.status));
    if (this.#isLive && (follows ? this.#isTold : isMoving)) return;
    this.#load(null)
      .then(() => (this.#isTold = follows))
      // A network that is away is told beside the title already.
      .catch((error) => this.#problem(error));
  }

  /** What a question came to; without access nothing is seen. @param {unknown} error */
  #problem(error) {
    const problem = problemOf(error);
    if (problem.status === 401) this.signOut(EXPIRED);
    return problem;
  }

  /** Does what a person asked for, or says why not. @param {() => Promise<unknown>} act */
  async #attempt(act) {
    the("trouble").textContent = "";
    try {
      await act();
    } catch (error) {
      if (error instanceof DOMException && error.name === "AbortError") return;
      const { status, message } = this.#problem(error);
      if (status !== 401) the("trouble").textContent = message;
    }
  }
}

/** @param {string} id */
const pathOf = (id) => `v1/exports/${id}`;

/** @param {string} text */
function say(text) {
  the("news").textContent = text;
}

/** Until the same is asked again, in milliseconds. @param {Problem} problem */
const pauseAfter = ({ retryAfter }) => Math.min(LONGEST_PAUSE, Math.max(LOOK, retryAfter));

/** Who is asked on behalf of who is signed in, or signs in. @type {Api | null} */
let api = null;
/** @type {Desk | null} */
let desk = null;
/** When the service could not be reached. */
let again = 0;
const form = new RequestForm(async (body, key) => {
  await desk?.request(body, key);
});

/** @param {"sign-in" | "away" | "desk"} place */
function show(place) {
  for (const id of ["sign-in", "away", "desk"]) the(id).hidden = id !== place;
  the("sign-out").hidden = place === "sign-in";
}

/** Ends all that was done with a token; no answer that is under way arrives. */
function leave() {
  clearTimeout(again);
  api?.close();
  desk?.close();
  desk = null;
  form.clear();
}

/** @param {string} [fault] */
function showDoor(fault = "") {
  leave();
  sessionStorage.removeItem(STORED);
  show("sign-in");
  the("connection").textContent = "";
  the("sign-in-fault").textContent = fault;
  the("token").focus();
}

/** @param {string} token */
async function enter(token) {
  leave();
  const asked = new Api(document.baseURI, token);
  api = asked;
  // Something is seen, and can be left, however long the answer takes.
  show("away");
  the("away-fault").textContent = "It is being asked.";
  try {
    const page = await asked.get(`v1/exports?limit=${PAGE}`, EXPORTS);
    const resources = await asked.get("v1/resources", RESOURCES).catch(() => null);
    sessionStorage.setItem(STORED, token);
    desk = new Desk(asked, token, showDoor);
    show("desk");
    desk.open(page);
    if (resources === null) desk.offer();
    else form.offer(resources.items);
  } catch (error) {
    const problem = problemOf(error);
    const { status, message } = problem;
    if (status === 401 || status === 403) return showDoor(message);
    // That says nothing against the token.
    const pause = pauseAfter(problem);
    again = setTimeout(() => enter(token), pause);
    const at = new Date(Date.now() + pause).toLocaleTimeString();
    the("away-fault").textContent = `${message} It is asked again at ${at}.`;
  }
}

const typed = /** @type {HTMLInputElement} */ (the("token"));
the("sign-in").addEventListener("submit", async (event) => {
  event.preventDefault();
  const token = typed.value.trim();
  typed.value = "";
  the("sign-in-fault").textContent = "";
  // What a header cannot carry would look like a server that is away.
  if (!/^[!-~]+$/.test(token)) return showDoor(NO_TOKEN);
  await enter(token);
});
the("sign-out").addEventListener("click", () => showDoor());

const stored = sessionStorage.getItem(STORED);
if (stored === null) showDoor();
else await enter(stored);
