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
  const number = make("output", "", answer === null ? "?" : said(Number(answer)));
  const handle = make("input");
  /** @param {number} number */
  const plain = (number) => String(Number(number.toFixed(digits))).replace("-", "−");
  const ends = { low: plain(low), high: plain(high) };
  const start = Number(answer ?? (low + high) / 2);
  Object.assign(handle, { type: "range", min: low, max: high, step, value: start, ariaLabel: fill(texts.line, ends) });
  handle.dataset.locks = "";
  const show = () => {
    const now = Number(handle.value);
    number.textContent = said(now);
    handle.ariaValueText = said(now);
    change(written(now), "");
  };
  handle.addEventListener("input", show);
  handle.addEventListener("click", show); // the middle is a number, too
  handle.addEventListener("keydown", (event) => {
    if (event.key.startsWith("Arrow")) event.stopPropagation(); // Streamlit has keys of its own
  });
  const marks = [ends.low, plain((low + high) / 2), ends.high].map((text) => make("span", "", text));
  return make("div", "line", question.given && tableOf(question.given), number, handle, make("div", "ends", ...marks));
}

/** @param {Given} given */
export function tableOf({ columns, rows }) {
  const head = make("tr", "", make("td"), ...columns.map((name) => headOf("col", name)));
  const lines = rows.map(({ name, values }) =>
    make("tr", "", headOf("row", name), ...values.map((value) => make("td", "", value))),
  );
  return make("div", "scrolls", make("table", "given", head, ...lines));
}

/** @param {string} scope @param {string} name */
const headOf = (scope, name) => Object.assign(make("th", "", make("bdi", "", name)), { scope });
