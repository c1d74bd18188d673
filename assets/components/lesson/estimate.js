// Estimate a number on a line. Answer: ``0.85``.
import { make } from "../page/elements.js";
import { fill } from "../page/wording.js";

const LINE_STEPS = 100; // of a line whose numbers are not whole
const COUNTS = ["d_k", "cache", "concat"]; // quantities that are whole numbers

/**
 * @typedef {import("./words.js").QuestionSentence & { kind: "estimate", low: number, high: number, quantity: string,
 *   key: number | null, given: Given | null }} EstimateQuestion
 * @typedef {{ columns: string[], rows: { name: string, values: string[] }[] }} Given numbers to compute with
 */

/** @param {import("./screen.js").Asked<EstimateQuestion>} asked */
export function estimate({ question, texts, answer, change }) {
  const { low, high, quantity } = question;
  const whole = COUNTS.includes(quantity);
  const step = whole ? 1 : (high - low) / LINE_STEPS;
  const digits = whole ? 0 : Math.max(0, Math.ceil(-Math.log10(step)));
  /** @param {number} number */
  const written = (number) => number.toFixed(digits);
  /** @param {number} number */
  const said = (number) => written(number).replace("-", "−");
  const box = make("div", "line");
  const number = make("output", "", answer === null ? "?" : said(Number(answer)));
  const handle = make("input");
  /** @param {number} number */
  const plain = (number) => String(Number(number.toFixed(digits))).replace("-", "−");
  const ends = { low: plain(low), high: plain(high) };
  const start = Number(answer ?? (low + high) / 2);
  Object.assign(handle, { type: "range", min: low, max: high, step, value: start });
  handle.setAttribute("aria-label", fill(texts.line, ends));
  handle.dataset.locks = "";
  const show = () => {
    const now = Number(handle.value);
    number.textContent = said(now);
    handle.setAttribute("aria-valuetext", said(now));
    change(written(now), "");
  };
  handle.addEventListener("input", show);
  handle.addEventListener("click", show); // the middle is a number, too
  handle.addEventListener("keydown", (event) => {
    if (event.key.startsWith("Arrow")) event.stopPropagation(); // Streamlit has keys of its own
  });
  const scale = make("div", "ends");
  scale.append(make("span", "", ends.low), make("span", "", plain((low + high) / 2)), make("span", "", ends.high));
  if (question.given) box.append(tableOf(question.given));
  box.append(number, handle, scale);
  return box;
}

/** @param {Given} given */
export function tableOf({ columns, rows }) {
  const table = make("table", "given");
  const head = make("tr");
  head.append(make("td"), ...columns.map((name) => headOf("col", name)));
  table.append(head);
  for (const { name, values } of rows) {
    const row = make("tr");
    row.append(headOf("row", name), ...values.map((value) => make("td", "", value)));
    table.append(row);
  }
  const scrolls = make("div", "scrolls");
  scrolls.append(table);
  return scrolls;
}

/** @param {string} scope @param {string} name */
function headOf(scope, name) {
  const head = make("th");
  head.scope = scope;
  head.append(make("bdi", "", name));
  return head;
}
