// Where one number comes from, as a panel: its steps, and the terms of each as bars with their running sum. These are
// computed in the browser (numbers/explanation.js) or on the server (pages/_kit/explained.py). The code that prints the
// number comes from the server, when a reader opens it; a saved page has none.
import { make, makeButton, makeLink, renew } from "../page/elements.js";
import { fill, isolated, written } from "../page/wording.js";

/** @typedef {import("../numbers/explanation.js").Explanation} Explanation */
/** @typedef {import("../numbers/explanation.js").Step} Step */

const MAX_BARS = 200; // of a step: of more the largest are drawn
/** @type {Record<string, string>} */
const SIGNS = { scale: "×", temperature: "÷", bias: "+", gate: "×" };

export class ExplanationPanel {
  sorted = false; // bars stand by their size
  /** @type {Explanation | null} */
  explanation = null;
  answered = ""; // which question of ours the server has answered last
  /** @type {(() => void) | null} ask the server for the code of a number that was computed here */
  askForCode = null;

  /** @param {() => Record<string, string>} texts */
  constructor(texts) {
    this.textsOf = texts;
    this.root = make("section", "explanation");
    this.root.hidden = true;
    this.root.tabIndex = -1;
    this.bar = make("div", "bar");
    this.steps = make("ol", "steps");
    this.code = make("details", "code");
    this.code.append(make("summary"), make("div", "copies"), Object.assign(make("pre"), { tabIndex: 0 })); // it scrolls
    this.code.addEventListener("toggle", () => this.#fetchCode());
    this.root.append(this.bar, this.steps, this.code);
    this.root.addEventListener("keydown", (event) => {
      if (event.key !== "Escape") return;
      event.stopPropagation();
      this.close();
    });
  }

  get texts() {
    return this.textsOf();
  }

  /** @param {Explanation | null} explanation @param {(() => void) | null} askForCode */
  show(explanation, askForCode = null) {
    const isNew = JSON.stringify(explanation) !== JSON.stringify(this.explanation);
    this.explanation = explanation;
    this.askForCode = askForCode;
    this.root.hidden = !explanation;
    if (!explanation || !isNew) return;
    this.draw();
    this.root.scrollIntoView({ block: "nearest" });
  }

  // Shows an answer of the server, once each, until another one is asked for or closed. A number that was computed here
  // gets its code.
  /** @param {Explanation | null | undefined} answer */
  answer(answer) {
    if (answer && answer.id === this.answered) return;
    this.answered = answer?.id ?? "";
    const here = this.explanation;
    if (!answer || !here || answer.id !== here.id) return this.show(answer ?? null);
    const { code, latex, refusal } = answer;
    this.explanation = { ...here, code, latex, refusal };
    this.draw();
  }

  close() {
    this.show(null);
    this.closed();
  }

  // Nothing is explained any more.
  closed() {}

  draw() {
    const { explanation, texts } = this;
    if (!explanation) return;
    const { value, steps = [], refusal, code, latex, edits = [], without } = explanation;
    const title = this.#title(explanation);
    const heading = make("h3", "", value === undefined ? title : `${title} = ${written(value)}`);
    const order = makeButton(texts.explain_sort, "", () => {
      this.sorted = !this.sorted;
      this.draw();
    });
    order.setAttribute("aria-pressed", String(this.sorted));
    const close = makeButton("✕", "", () => this.close());
    close.setAttribute("aria-label", texts.explain_close);
    const trial = without ? [makeLink(without.text, without.href)] : [];
    renew(this.bar, [heading, ...trial, ...(steps.length ? [order] : []), close]);
    const notes = edits.map((edit) => make("p", "edited", fill(texts.explain_edited, { edit })));
    const why = refusal ? [make("p", "", refusal)] : [];
    this.steps.replaceChildren(...why, ...notes, ...steps.map((step) => this.#step(step)));
    const [summary, copies, pre] = this.code.children;
    this.code.hidden = !code && !this.askForCode;
    summary.textContent = texts.explain_code;
    renew(copies, [this.#copy(texts.explain_copy, code), this.#copy(texts.explain_latex, latex)].flat());
    pre.textContent = code ?? "";
    this.#fetchCode();
  }

  #fetchCode() {
    if (this.code.open && !this.code.hidden && !this.explanation?.code) this.askForCode?.();
  }

  // The matrix of the number, and its place there.
  /** @param {Explanation} explanation */
  #title({ symbol, from, to = "" }) {
    if (from === undefined) return symbol;
    const isNumber = typeof to === "number";
    const place = { symbol, from: isolated(from), to: isNumber ? to : isolated(to) };
    return fill(this.texts[isNumber ? "explain_number" : "explain_cell"], place);
  }

  /** @param {string} name @param {string} [text] */
  #copy(name, text) {
    if (!text) return [];
    const button = makeButton(name, "", async () => {
      try {
        await navigator.clipboard.writeText(text);
        button.textContent = this.texts.explain_copied;
      } catch {
        getSelection()?.selectAllChildren(this.code); // a page that may not write there marks what to copy
      }
    });
    button.setAttribute("aria-live", "polite");
    return [button];
  }

  /** @param {Step} step */
  #step(step) {
    const { texts } = this;
    const item = make("li");
    const line = make("p");
    line.append(make("b", "", texts[`explain_${step.name}`] ?? step.name), " ", make("span", "", this.#line(step)));
    item.append(line);
    if (step.terms.length > 1) item.append(this.#bars(step));
    return item;
  }

  // A step in one line: its number, and what it was before.
  /** @param {Step} step */
  #line({ name, value, factors, terms, chosen = 0 }) {
    if (name === "mask") return this.texts[Number.isFinite(value) ? "explain_visible" : "explain_hidden"];
    if (name === "softmax") return this.#quotient(factors[0], chosen, value);
    if (terms.length > 1 || factors.length < 2) return `= ${written(value)}`;
    const [before, ...others] = factors.map((factor) => written(factor[0]));
    if (name === "cap") return `${others[0]} · tanh(${before} / ${others[0]}) = ${written(value)}`;
    const sign = SIGNS[name] ?? (name === "norm" ? "×" : "→");
    return `${[before, ...(name === "patch" ? [] : others)].join(` ${sign} `)} ${name === "patch" ? "→" : "="} ${written(value)}`;
  }

  // A weight as the exponential of its score over the sum of all, each less the largest as it is computed.
  /** @param {ArrayLike<number | null>} scores @param {number} chosen @param {number} value */
  #quotient(scores, chosen, value) {
    const known = Array.from(scores, (score) => score ?? Number.NEGATIVE_INFINITY);
    const most = known.reduce((one, other) => Math.max(one, other), Number.NEGATIVE_INFINITY);
    if (most === Number.NEGATIVE_INFINITY) return this.texts.explain_empty;
    const sum = known.reduce((all, score) => all + Math.exp(score - most), 0);
    const power = written(Math.exp(known[chosen] - most));
    return `e^(${written(known[chosen])} − ${most < 0 ? `(${written(most)})` : written(most)}) / Σ = ${power} / ${written(sum)} = ${written(value)}`;
  }

  /** @param {Step} step */
  #bars({ name, labels, factors, terms, chosen }) {
    const { texts } = this;
    const shown = this.#order(terms).slice(0, MAX_BARS);
    const table = make("table");
    const most = Math.max(...Array.from(terms, Math.abs)) || 1;
    const symbols = (texts[`explain_${name}_columns`] ?? "").split("|");
    const head = make("tr");
    const isShare = name === "softmax";
    const names = [symbols[0], ...factors.map((_, at) => symbols[at + 1] ?? ""), symbols[3], "", texts.explain_sum];
    // A column without a name is no header.
    head.append(...names.map((text) => (text ? Object.assign(make("th", "", text), { scope: "col" }) : make("td"))));
    let sum = 0;
    const rows = shown.map((at) => {
      sum += terms[at];
      const row = make("tr", at === chosen ? "chosen" : "");
      const label = make("th", "", isolated(labels[at] ?? String(at + 1)));
      label.scope = "row";
      const bar = make("td", "bars");
      const fill = make("i", terms[at] < 0 ? "below" : "");
      fill.style.width = `${(50 * Math.abs(terms[at])) / most}%`;
      if (isShare) fill.style.width = `${100 * terms[at]}%`;
      bar.classList.toggle("share", isShare);
      bar.append(fill);
      const cells = factors.map((factor) => make("td", "", written(factor[at])));
      row.append(label, ...cells, make("td", "", written(terms[at])), bar, make("td", "", written(sum)));
      return row;
    });
    const [top, body] = [make("thead"), make("tbody")];
    top.append(head);
    body.append(...rows);
    table.append(top, body);
    const box = make("div", "terms");
    box.tabIndex = 0; // it scrolls
    box.append(table);
    if (shown.length < terms.length)
      box.append(make("p", "", fill(texts.explain_more, { shown: shown.length, count: terms.length })));
    return box;
  }

  // The terms as they stand, or the largest first; of too many the largest alone.
  /** @param {ArrayLike<number>} terms @returns {number[]} */
  #order(terms) {
    const all = Array.from(terms, (_, at) => at);
    const largest = () => all.sort((one, other) => Math.abs(terms[other]) - Math.abs(terms[one]) || one - other);
    if (this.sorted) return largest();
    return terms.length > MAX_BARS
      ? largest()
          .slice(0, MAX_BARS)
          .sort((one, other) => one - other)
      : all;
  }
}
