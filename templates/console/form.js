/** The form for a request: a resource, its columns, filters by the type of a column. */

import { problemOf } from "./api.js";

/** @typedef {import("./api.js").ResourceView} ResourceView */
/** @typedef {import("./api.js").ColumnView} ColumnView */
/** @typedef {import("./api.js").Problem} Problem */

/** The words of operators. @type {Record<string, string>} */
const WORDS = {
  EQ: "is",
  NE: "is not",
  GT: "greater than",
  GTE: "at least",
  LT: "less than",
  LTE: "at most",
  BETWEEN: "between",
  NOT_BETWEEN: "not between",
  IN: "one of",
  NOT_IN: "none of",
  CONTAINS: "contains",
  NOT_CONTAINS: "does not contain",
  STARTS_WITH: "starts with",
  ENDS_WITH: "ends with",
  IS_NULL: "is empty",
  IS_NOT_NULL: "is not empty",
  IN_LAST: "in the last",
  IN_NEXT: "in the next",
  IN_CURRENT: "in this",
  IN_PREVIOUS: "in the previous",
};
const UNITS_OF_DATES = ["day", "week", "month", "quarter", "year"];
const UNITS = ["minute", "hour", ...UNITS_OF_DATES];
/** How a value is typed. @type {Record<string, string>} */
const HINTS = {
  date: "2026-07-01",
  localTimestamp: "2026-07-01 or 2026-07-01T13:45:00",
  timestamp: "2026-07-01 or 2026-07-01T13:45:00Z",
  time: "13:45",
  uuid: "id",
};
/** Formats that can be compressed as a whole. */
const COMPRESSED = ["CSV", "NDJSON", "JSON"];

/** @template {HTMLElement} [T=HTMLInputElement] @param {string} id @returns {T} */
const the = (id) => /** @type {any} */ (document.getElementById(id));
/** @param {string} value @param {string} [text] */
const option = (value, text = value) => new Option(text, value);

export class RequestForm {
  /** @type {Map<string, ResourceView>} */
  #resources = new Map();
  /** The same request twice, as after a lost answer, is one export. */
  #key = key();
  #form = /** @type {HTMLFormElement} */ (the("request"));
  #resource = the("resource");
  #columns = the("columns");
  #filters = the("filters");
  #scope = the("scope-type");
  #scopeId = the("scope-id");
  #format = the("format");
  #compression = the("compression");
  #fileName = the("file-name");
  #faults = the("faults");
  #button = /** @type {HTMLButtonElement} */ (this.#form.querySelector("[type=submit]"));

  /** @param {(body: unknown, key: string) => Promise<void>} submit */
  constructor(submit) {
    this.#form.addEventListener("input", () => {
      this.#key = key();
    });
    this.#resource.addEventListener("change", () => this.#choose());
    this.#format.addEventListener("change", () => this.#drawCompression());
    this.#scope.addEventListener("change", () => this.#drawScope());
    the("add-filter").addEventListener("click", () => this.#addFilter());
    the("all-columns").addEventListener("click", () => {
      const isFull = this.#boxes.every((box) => box.checked);
      for (const box of this.#boxes) box.checked = !isFull;
    });
    this.#form.addEventListener("submit", async (event) => {
      event.preventDefault();
      await this.#submit(submit);
    });
  }

  /** @param {ResourceView[]} resources */
  offer(resources) {
    this.#resources = new Map(resources.map((resource) => [resource.name, resource]));
    this.#resource.replaceChildren(...resources.map(({ name }) => option(name)));
    this.#choose();
  }

  /** Forgets what was offered and what was entered. */
  clear() {
    this.#form.reset();
    this.#faults.replaceChildren();
    this.#button.ariaDisabled = "false";
    this.#key = key();
    this.offer([]);
  }

  get #chosen() {
    return this.#resources.get(this.#resource.value);
  }

  get #boxes() {
    return /** @type {HTMLInputElement[]} */ ([...this.#columns.querySelectorAll("input")]);
  }

  #choose() {
    const { columns = [], formats = [], scopeTypes = [] } = this.#chosen ?? {};
    this.#columns.replaceChildren(...columns.map(box));
    this.#filters.replaceChildren();
    this.#format.replaceChildren(...formats.map((format) => option(format)));
    this.#scope.replaceChildren(...scopeTypes.map((scope) => option(scope, words(scope))));
    the("scope").hidden = scopeTypes.length < 2;
    this.#drawScope();
    this.#drawCompression();
  }

  #drawScope() {
    this.#scopeId.hidden = this.#scope.value === "ORGANIZATION";
  }

  #drawCompression() {
    const can = COMPRESSED.includes(this.#format.value);
    const offered = this.#chosen?.compressions.filter((name) => can || name === "none") ?? [];
    this.#compression.replaceChildren(...offered.map((name) => option(name)));
    this.#compression.disabled = offered.length < 2;
  }

  #addFilter() {
    const template = /** @type {HTMLTemplateElement} */ (the("filter"));
    const fragment = /** @type {DocumentFragment} */ (template.content.cloneNode(true));
    const filter = /** @type {HTMLElement} */ (fragment.firstElementChild);
    const [column, operator, values] = parts(filter);
    const columns = this.#chosen?.columns ?? [];
    column.replaceChildren(...columns.map((it) => option(it.key, label(it))));
    const typed = () => columns.find(({ key }) => key === column.value);
    const drawValues = () => values.replaceChildren(...fields(operator.value, typed()?.type ?? ""));
    const drawOperators = () => {
      const operators = typed()?.operators ?? [];
      operator.replaceChildren(...operators.map((name) => option(name, WORDS[name] ?? name)));
      drawValues();
    };
    column.addEventListener("change", drawOperators);
    operator.addEventListener("change", drawValues);
    filter.querySelector(".remove")?.addEventListener("click", () => {
      filter.remove();
      the("add-filter").focus();
    });
    drawOperators();
    filter.setAttribute("aria-label", `Filter ${this.#filters.childElementCount + 1}`);
    this.#filters.append(filter);
    column.focus();
  }

  #body() {
    /** @type {Record<string, unknown[]>} */
    const filters = {};
    for (const filter of this.#filters.children) {
      const [column, operator, values] = parts(filter);
      const type = this.#chosen?.columns.find(({ key }) => key === column.value)?.type ?? "";
      const value = valueOf(operator.value, type, [...values.querySelectorAll("input, select")]);
      const condition = { operator: operator.value, ...(value === undefined ? {} : { value }) };
      (filters[column.value] ??= []).push(condition);
    }
    const scope = this.#scope.value;
    const owner = { COMPANY: "companyId", COOPERATIVE: "cooperativeId" }[scope];
    return {
      resource: this.#resource.value,
      columns: this.#boxes.filter(({ checked }) => checked).map(({ value }) => value),
      ...(Object.keys(filters).length > 0 && { filters }),
      ...(owner !== undefined && { scopeType: scope, [owner]: this.#scopeId.value.trim() }),
      format: this.#format.value,
      compression: this.#compression.value,
      ...(this.#fileName.value.trim() !== "" && { fileName: this.#fileName.value.trim() }),
    };
  }

  /** @param {(body: unknown, key: string) => Promise<void>} submit */
  async #submit(submit) {
    // Not `disabled`: the focus would leave the form.
    if (this.#button.ariaDisabled === "true") return;
    this.#button.ariaDisabled = "true";
    this.#faults.replaceChildren();
    try {
      await submit(this.#body(), this.#key);
      this.#key = key();
    } catch (error) {
      this.#complain(problemOf(error));
    } finally {
      this.#button.ariaDisabled = "false";
    }
  }

  /** @param {Problem} problem */
  #complain({ message, errors }) {
    const list = document.createElement("ul");
    for (const { field, message } of errors) {
      const entry = document.createElement("li");
      entry.textContent = `${field}: ${message}`;
      list.append(entry);
    }
    this.#faults.append(message, ...(errors.length > 0 ? [list] : []));
    this.#faults.focus();
  }
}

/** Not `randomUUID`: that is absent where the page is not served over TLS. */
function key() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return `console-${[...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("")}`;
}

/** @param {string} name */
const words = (name) => `${name.charAt(0)}${name.slice(1).toLowerCase()}`;

/** In the reader's language, where it has one. @param {ColumnView} column */
function label({ key, label }) {
  for (const tag of navigator.languages) {
    const near = Object.keys(label).find((it) => it.split("-")[0] === tag.split("-")[0]);
    const found = label[tag] ?? label[near ?? ""];
    if (found !== undefined) return found;
  }
  return label["en"] ?? key;
}

/** @param {ColumnView} column */
function box(column) {
  const input = document.createElement("input");
  input.type = "checkbox";
  input.value = column.key;
  input.checked = column.default;
  const line = document.createElement("label");
  line.append(input, label(column));
  return line;
}

/** @param {Element} filter @returns {[HTMLSelectElement, HTMLSelectElement, HTMLElement]} */
function parts(filter) {
  const found = [".column", ".operator", ".values"].map((name) => filter.querySelector(name));
  return /** @type {any} */ (found);
}

/** What an operator needs to be told. @param {string} operator @param {string} type */
function fields(operator, type) {
  if (operator.startsWith("IS_")) return [];
  const unit = () => choice("Unit", type === "date" ? UNITS_OF_DATES : UNITS);
  if (operator === "IN_LAST" || operator === "IN_NEXT") return [input("Amount", "7"), unit()];
  if (operator === "IN_CURRENT" || operator === "IN_PREVIOUS") return [unit()];
  if (operator === "IN" || operator === "NOT_IN") return [input("Values", "separated by commas")];
  if (type === "boolean") return [choice("Value", ["true", "false"])];
  const hint = HINTS[type] ?? "";
  if (operator.endsWith("BETWEEN")) return [input("From", hint), input("To", hint)];
  return [input("Value", hint)];
}

/** @param {string} name @param {string} hint */
function input(name, hint) {
  const element = document.createElement("input");
  element.type = "text";
  element.spellcheck = false;
  element.placeholder = hint;
  element.setAttribute("aria-label", name);
  return element;
}

/** @param {string} name @param {string[]} names */
function choice(name, names) {
  const element = document.createElement("select");
  element.replaceChildren(...names.map((it) => option(it)));
  element.setAttribute("aria-label", name);
  return element;
}

/**
 * Numbers stay texts: the service reads every digit, a program of the browser would not.
 * @param {string} operator @param {string} type @param {Element[]} elements
 */
function valueOf(operator, type, elements) {
  const texts = elements.map((it) => /** @type {HTMLInputElement} */ (it).value);
  // What is neither stays a text, which the service refuses.
  const typed = (/** @type {string} */ text) =>
    type === "boolean" && /^(true|false)$/.test(text) ? text === "true" : text;
  const [first = "", second = ""] = texts;
  if (operator.startsWith("IS_")) return undefined;
  if (operator === "IN_LAST" || operator === "IN_NEXT") {
    return { amount: Number(first), unit: second };
  }
  if (operator === "IN_CURRENT" || operator === "IN_PREVIOUS") return { unit: first };
  if (operator === "IN" || operator === "NOT_IN") {
    return first.split(",").map((text) => typed(text.trim()));
  }
  return operator.endsWith("BETWEEN") ? texts.map(typed) : typed(first);
}
