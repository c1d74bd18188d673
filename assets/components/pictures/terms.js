// The terms of a sum or of a softmax as a table: their factors, each term with its bar, and their running sum.
import { make } from "../page/elements.js";
import { fill, isolated, written } from "../page/wording.js";
import { columnsOf } from "./cell_path_words.js";

const MAX_BARS = 200; // of more terms the largest are drawn

/**
 * @param {import("../numbers/explanation.js").Step} step
 * @param {boolean} sorted the largest first
 * @param {Record<string, string>} texts
 */
export function tableOfTerms({ name, labels, factors, terms, chosen }, sorted, texts) {
  const shown = orderOfTerms(terms, sorted).slice(0, MAX_BARS);
  const most = Math.max(...Array.from(terms, Math.abs)) || 1;
  const symbols = columnsOf(name, texts);
  const isShare = name === "softmax";
  const names = [symbols[0], ...factors.map((_, at) => symbols[at + 1] ?? ""), symbols[3], "", texts.path_sum];
  // A column without a name is no header.
  const heads = names.map((text) => (text ? Object.assign(make("th", "", text), { scope: "col" }) : make("td")));
  let sum = 0;
  const rows = shown.map((at) => {
    sum += terms[at];
    const label = Object.assign(make("th", "", isolated(labels[at])), { scope: "row" });
    const length = make("i", terms[at] < 0 ? "below" : "");
    length.style.width = `${isShare ? 100 * terms[at] : (50 * Math.abs(terms[at])) / most}%`;
    const bar = make("td", isShare ? "bars share" : "bars", length);
    const numbers = [...factors.map((factor) => factor[at]), terms[at]].map((one) => make("td", "", written(one)));
    return make("tr", at === chosen ? "chosen" : "", label, ...numbers, bar, make("td", "", written(sum)));
  });
  const table = make("table", "", make("thead", "", make("tr", "", ...heads)), make("tbody", "", ...rows));
  const more = fill(texts.path_more, { shown: shown.length, count: terms.length });
  const box = make("div", "table", table, shown.length < terms.length && make("p", "", more));
  return Object.assign(box, { tabIndex: 0 }); // it scrolls
}

// The terms as they stand, or the largest first; of too many the largest alone.
/** @param {ArrayLike<number>} terms @param {boolean} sorted @returns {number[]} */
function orderOfTerms(terms, sorted) {
  const all = Array.from(terms, (_, at) => at);
  if (!sorted && terms.length <= MAX_BARS) return all;
  const largest = all.sort((one, other) => Math.abs(terms[other]) - Math.abs(terms[one]) || one - other);
  return sorted ? largest : largest.slice(0, MAX_BARS).sort((one, other) => one - other);
}
