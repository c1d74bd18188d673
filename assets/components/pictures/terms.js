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
  const table = make("table");
  const most = Math.max(...Array.from(terms, Math.abs)) || 1;
  const symbols = columnsOf(name, texts);
  const head = make("tr");
  const isShare = name === "softmax";
  const names = [symbols[0], ...factors.map((_, at) => symbols[at + 1] ?? ""), symbols[3], "", texts.path_sum];
  // A column without a name is no header.
  head.append(...names.map((text) => (text ? Object.assign(make("th", "", text), { scope: "col" }) : make("td"))));
  let sum = 0;
  const rows = shown.map((at) => {
    sum += terms[at];
    const row = make("tr", at === chosen ? "chosen" : "");
    const label = make("th", "", isolated(labels[at]));
    label.scope = "row";
    const bar = make("td", isShare ? "bars share" : "bars");
    const length = make("i", terms[at] < 0 ? "below" : "");
    length.style.width = `${isShare ? 100 * terms[at] : (50 * Math.abs(terms[at])) / most}%`;
    bar.append(length);
    const cells = factors.map((factor) => make("td", "", written(factor[at])));
    row.append(label, ...cells, make("td", "", written(terms[at])), bar, make("td", "", written(sum)));
    return row;
  });
  const [top, body] = [make("thead"), make("tbody")];
  top.append(head);
  body.append(...rows);
  table.append(top, body);
  const box = make("div", "table");
  box.tabIndex = 0; // it scrolls
  box.append(table);
  if (shown.length < terms.length)
    box.append(make("p", "", fill(texts.path_more, { shown: shown.length, count: terms.length })));
  return box;
}

// The terms as they stand, or the largest first; of too many the largest alone.
/** @param {ArrayLike<number>} terms @param {boolean} sorted @returns {number[]} */
function orderOfTerms(terms, sorted) {
  const all = Array.from(terms, (_, at) => at);
  if (!sorted && terms.length <= MAX_BARS) return all;
  const largest = all.sort((one, other) => Math.abs(terms[other]) - Math.abs(terms[one]) || one - other);
  return sorted ? largest : largest.slice(0, MAX_BARS).sort((one, other) => one - other);
}
