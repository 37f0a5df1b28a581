/** The API as the console calls it: relative to the page, with the token in a header. */

/** @typedef {{ field: string, code: string, message: string }} FieldFault */
/**
 * An export, as far as the console shows it; see `ExportJob` in the API's reference.
 * @typedef {object} ExportView
 * @property {string} exportJobId
 * @property {string} resource
 * @property {string} format
 * @property {string[]} columns
 * @property {string} fileName
 * @property {number | null} sizeBytes
 * @property {number | null} totalRows
 * @property {string} status
 * @property {string} createdAt
 * @property {string} updatedAt
 * @property {{
 *   stage: string | null, done: number, total: number | null, totalIsEstimate: boolean
 * }} progress
 * @property {number | null} queuePosition
 * @property {{ code: string, message: string } | null} failure
 * @property {{ cancel: string | null, file: string | null }} links
 * @property {{ number: number, name: string, rows: number, sizeBytes: number }[] | null} files
 */
/**
 * @typedef {object} ColumnView
 * @property {string} key
 * @property {Record<string, string>} label by language
 * @property {string} type
 * @property {string[]} operators
 * @property {boolean} default
 */
/**
 * @typedef {object} ResourceView
 * @property {string} name
 * @property {ColumnView[]} columns
 * @property {string[]} formats
 * @property {string[]} compressions
 * @property {string[]} scopeTypes
 */

/** @param {unknown} sample */
const orNull = (sample) => (/** @type {unknown} */ it) => it === null || fits(it, sample);
/** @param {unknown} it */
export const isTime = (it) => typeof it === "string" && !Number.isNaN(Date.parse(it));

/** What an export has at least, as `fits` looks at it. */
export const EXPORT = {
  exportJobId: "",
  resource: "",
  format: "",
  columns: [""],
  fileName: "",
  status: "",
  createdAt: isTime,
  updatedAt: "",
  progress: { done: 0, total: orNull(0) },
  sizeBytes: orNull(0),
  failure: orNull({ code: "", message: "" }),
  files: orNull([{ number: 0, name: "", sizeBytes: 0 }]),
  links: {},
};
export const EXPORTS = { items: [EXPORT], nextCursor: orNull("") };
const COLUMN = { key: "", label: {}, type: "", operators: [""] };
const RESOURCE = { name: "", columns: [COLUMN], formats: [""], compressions: [""], scopeTypes: [""] };
export const RESOURCES = { items: [RESOURCE] };

/** A file larger than this goes to the disk as it comes, where the browser can do that. */
const LARGE = 64 * 1024 * 1024;
/** How long an answer may take, a file's until its bytes begin, in milliseconds. */
const PATIENCE = 30_000;

/**
 * Whether a value is like a sample: of an array's one element are all, and a function judges.
 * @param {any} value @param {any} sample @returns {boolean}
 */
export function fits(value, sample) {
  if (typeof sample === "function") return sample(value);
  if (Array.isArray(sample)) {
    return Array.isArray(value) && value.every((it) => fits(it, sample[0]));
  }
  if (typeof sample !== "object") return typeof value === typeof sample;
  const names = Object.keys(sample);
  return typeof (value ?? 0) === "object" && names.every((it) => fits(value[it], sample[it]));
}

/** An answer that is no success, none at all, or one that cannot be worked with. */
export class Problem extends Error {
  /**
   * @param {number} status 0 when there was no answer @param {any} body
   * @param {number} [retryAfter] milliseconds
   */
  constructor(status, body, retryAfter = 0) {
    const texts = [body?.detail, body?.title, "The service does not answer."];
    super(texts.find((it) => typeof it === "string"));
    this.status = status;
    this.retryAfter = retryAfter;
    /** @type {FieldFault[]} */
    this.errors = fits(body?.errors, [{ field: "", message: "" }]) ? body.errors : [];
  }

  /** Whether the same may be answered another time. */
  get mayPass() {
    return this.status === 0 || this.status === 429 || this.status >= 500;
  }
}

/** What went wrong on the way to an answer, or in taking it. @param {unknown} error */
export function problemOf(error) {
  if (error instanceof Problem) return error;
  console.error(error);
  return new Problem(0, null);
}

export class Api {
  #base;
  #token;
  #isClosed = false;

  /** @param {string} base @param {string} token */
  constructor(base, token) {
    this.#base = base;
    this.#token = token;
  }

  /** Nothing that was asked is answered after this, neither well nor badly. */
  close() {
    this.#isClosed = true;
  }

  /** @param {string} path @param {unknown} sample what the answer is like */
  get(path, sample) {
    return this.#unlessClosed(this.#call("GET", path, content(sample)));
  }

  /**
   * To this an export is the answer.
   * @param {string} path @param {unknown} [body] @param {Record<string, string>} [headers]
   */
  post(path, body, headers = {}) {
    const type = body === undefined ? undefined : { "content-type": "application/json" };
    const text = body === undefined ? null : JSON.stringify(body);
    const answer = this.#call("POST", path, content(EXPORT), { ...headers, ...type }, text);
    return this.#unlessClosed(answer);
  }

  /**
   * Saves a file. The token is in a header, so the page itself takes the bytes. Others between may
   * answer with something else.
   * @param {string} path @param {string} name @param {number | null} size bytes
   */
  async save(path, name, size) {
    const check = (/** @type {Blob} */ it) => {
      const detail = "What came is not the export: its size is another one.";
      if (size !== null && it.size !== size) throw new Problem(0, { detail });
    };
    /** @type {any} */
    const { showSaveFilePicker } = window;
    if (size !== null && size > LARGE && showSaveFilePicker !== undefined) {
      const handle = await showSaveFilePicker({ suggestedName: name });
      const answer = await this.#file(path);
      await answer.body?.pipeTo(await handle.createWritable());
      return check(await handle.getFile());
    }
    const blob = await this.#unlessClosed(this.#file(path).then((answer) => answer.blob()));
    check(blob);
    const url = URL.createObjectURL(blob);
    const link = document.createElement("a");
    link.href = url;
    link.download = name;
    link.click();
    // The browser has begun to read it by then.
    setTimeout(() => URL.revokeObjectURL(url), 60_000);
  }

  /** @param {string} path */
  #file(path) {
    const answer = this.#call("GET", path, (it) => it, { "x-outport-redirect": "never" });
    return this.#unlessClosed(answer);
  }

  /** @template T @param {Promise<T>} answer @returns {Promise<T>} */
  async #unlessClosed(answer) {
    await Promise.allSettled([answer]);
    return this.#isClosed ? new Promise(() => {}) : answer;
  }

  /**
   * @template T
   * @param {string} method @param {string} path @param {(answer: Response) => T | Promise<T>} take
   * @param {Record<string, string>} [headers] @param {string | null} [body]
   * @returns {Promise<T>}
   */
  async #call(method, path, take, headers = {}, body = null) {
    const authorization = `Bearer ${this.#token}`;
    const limit = new AbortController();
    const timer = setTimeout(() => limit.abort(), PATIENCE);
    const init = { method, headers: { ...headers, authorization }, body, signal: limit.signal };
    try {
      const answer = await fetch(new URL(path, this.#base), init).catch(() => {
        throw new Problem(0, null);
      });
      if (answer.ok) return await take(answer);
      // A date, which proxies may send, is taken for none.
      const seconds = Number(answer.headers.get("retry-after") ?? 0);
      const problem = await answer.json().catch(() => null);
      throw new Problem(answer.status, problem, Math.max(0, seconds * 1_000 || 0));
    } finally {
      clearTimeout(timer);
    }
  }
}

/** An answer that breaks off, or is like something else, is none. @param {unknown} sample */
const content = (sample) => async (/** @type {Response} */ answer) => {
  const body = await answer.json().catch(() => null);
  if (!fits(body, sample)) throw new Problem(0, null);
  return body;
};
