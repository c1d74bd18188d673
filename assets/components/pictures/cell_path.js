// Where one number comes from, as a drawing: the products that are added up, what changes their sum, the softmax of the
// row, the mixture of values. A slider moves through the stages: those behind it are coloured, those ahead are grey and
// empty. Below are all terms as a table, and the code that prints the number, which comes from the server when a reader
// opens it; a saved page has none.

import { cellPathOf, countDone, momentOf, partialOutput, partialSum } from "../numbers/cell_path.js";
import { claim, make, makeButton, makeLink, makeSvg, makeToggle, renew, required, targetOf } from "../page/elements.js";
import { arrowOf } from "../page/radios.js";
import { measured, shortenedTo } from "../page/saving.js";
import { exact, fill, isolated, written } from "../page/wording.js";
import { followHighlight, highlight, litOf } from "../scene/highlight.js";
import { ABOVE, isNamed, LINE_HEIGHT, layoutOf, NAME_WIDTH, NUMBER, SCORE_BOX, wireTo } from "./cell_path_plan.js";
import {
  arrivalOf,
  columnsOf,
  countProducts,
  inBrackets,
  powersDone,
  sentenceOf,
  shortNameOf,
} from "./cell_path_words.js";
import { inkOn, largestOf, shade } from "./colours.js";
import { tableOfTerms } from "./terms.js";
import { themeOf } from "./theme.js";

/** @typedef {import("../numbers/cell_path.js").CellPath} CellPath */
/** @typedef {import("../numbers/cell_path.js").PathLine} PathLine */
/** @typedef {import("../numbers/explanation.js").Explanation} Explanation */

const ORDER = "vectors products scale cap bias mask temperature powers shares patch mixture".split(" ");
const MAX_LINES = 16;
const MIN_NAMED = 36; // pixels of a number that has room for its name
const ALL_STAGES = 8000; // milliseconds to play all stages
const FINE_STEP = 1 / 16; // of a stage: a step with Shift

export class CellPathPicture {
  position = 0; // in stages
  playing = 0; // the next frame or pause
  sorted = false; // the terms stand by their size
  answered = ""; // which question of ours the server has answered last
  /** @type {Explanation | null} */
  explanation = null;
  /** @type {((key: number) => void) | null} another key of the row is chosen */
  choose = null;
  /** @type {(() => void) | null} nothing is explained any more; null where the drawing cannot be closed */
  closed = null;
  /** @type {(() => void) | null} ask the server for the code of a number that was computed here */
  askForCode = null;
  drawnFrom = "";
  /** @type {CellPath | null} */
  #path = null;
  /** @type {import("./cell_path_plan.js").Layout | null} */
  #layout = null;
  /** @type {(() => void)[]} each draws one element for the progress of its stage */
  parts = [];
  /** @type {Map<Element, () => string>} what a cell says */
  readings = new Map();
  /** @type {SVGElement[]} the lines of the keys */
  choices = [];

  /** @param {() => Record<string, string>} texts */
  constructor(texts) {
    this.textsOf = texts;
    this.svg = this.into = makeSvg("svg", {});
    this.bar = make("div", "bar");
    this.drawing = make("div", "drawing");
    this.sentence = make("p", "sentence");
    this.slider = Object.assign(make("input"), { type: "range", min: "0", step: "any" });
    this.button = makeButton("", "play", () => (this.playing ? this.pause() : this.play()));
    this.names = Object.assign(make("div", "stages"), { ariaHidden: "true" }); // the slider says them
    this.edits = make("p", "edits");
    this.player = make("div", "player", this.button, make("div", "track", this.slider, this.names));
    this.terms = make("details", "terms", make("summary"), make("div", "tables"));
    const pre = Object.assign(make("pre"), { tabIndex: 0 }); // it scrolls
    this.code = make("details", "code", make("summary"), make("div", "copies"), pre);
    const { bar, player, sentence, drawing, edits, terms, code } = this;
    this.root = make("section", "cell-path", bar, player, sentence, drawing, edits, terms, code);
    Object.assign(this.root, { hidden: true, tabIndex: -1 });
    this.theme = themeOf(this.root);
    this.terms.addEventListener("toggle", () => this.#tabulate());
    this.code.addEventListener("toggle", () => this.#fetchCode());
    this.slider.addEventListener("input", () => {
      const { value } = this.slider;
      this.pause(); // which writes the position into the slider
      this.goTo(Number(value));
    });
    this.slider.addEventListener("keydown", (event) => this.#press(event));
    this.drawing.addEventListener("pointerover", (event) => this.#read(targetOf(event)));
    this.drawing.addEventListener("pointerleave", () => this.#read(null));
    this.drawing.addEventListener("keydown", (event) => this.#walk(event));
    this.root.addEventListener("keydown", (event) => {
      if (event.key !== "Escape" || !this.closed) return;
      event.stopPropagation();
      this.close();
    });
    followHighlight(this.root, () => this.#markPointed());
    new ResizeObserver(() => this.update()).observe(this.root);
  }

  get texts() {
    return this.textsOf();
  }

  get path() {
    return required(this.#path, "path of this number");
  }

  get layout() {
    return required(this.#layout, "layout of this path");
  }

  // ----- what is explained

  // Draws the path of a number; the slider stays where it is.
  /** @param {Explanation | null} explanation @param {(() => void) | null} askForCode */
  show(explanation, askForCode = null) {
    this.explanation = explanation;
    this.askForCode = askForCode;
    this.root.hidden = !explanation;
    const { steps = [], mixed, refusal = "", edits = [] } = explanation ?? {};
    this.#path = steps.length ? cellPathOf(steps, mixed, MAX_LINES) : null;
    this.choices = [];
    this.drawnFrom = "";
    if (!this.#path) this.pause();
    if (!explanation) return;
    this.edits.textContent = edits.map((edit) => fill(this.texts.path_edited, { edit })).join(" ");
    this.edits.hidden = !edits.length;
    for (const part of [this.player, this.drawing, this.terms]) part.hidden = !this.#path;
    this.sentence.textContent = refusal;
    this.#head(explanation);
    this.#tabulate();
    this.#showCode();
    this.update();
  }

  // Draws the path of a number that was asked for, up to that number.
  /** @param {Explanation | null} explanation @param {(() => void) | null} askForCode */
  showUpToIt(explanation, askForCode = null) {
    this.show(explanation, askForCode);
    if (!explanation) return;
    if (this.#path && explanation.stage) this.goToStage(explanation.stage);
    else if (this.#path) this.goTo(this.#path.end);
    this.root.scrollIntoView({ block: "nearest" });
  }

  // Shows an answer of the server, once each, until another one is asked for or closed. A number that was computed here
  // gets its code.
  /** @param {Explanation | null | undefined} answer */
  answer(answer) {
    if (answer && answer.id === this.answered) return;
    this.answered = answer?.id ?? "";
    const here = this.explanation;
    if (!answer || !here || answer.id !== here.id) return this.showUpToIt(answer ?? null);
    const { code = answer.refusal, latex } = answer;
    this.explanation = { ...here, code, latex };
    this.#showCode();
  }

  close() {
    this.show(null);
    this.closed?.();
  }

  // The number with its matrix and its place there, what else can be done with it, and the way out.
  /** @param {Explanation} explanation */
  #head({ symbol = "", from, to = "", value, without }) {
    const { texts, closed } = this;
    const [template, column] = typeof to === "number" ? [texts.path_number, to] : [texts.path_cell, isolated(to)];
    const title = from === undefined ? symbol : fill(template, { symbol, from: isolated(from), to: column });
    this.bar.hidden = !symbol;
    const heading = make("h3", "", value === undefined ? title : `${title} = ${written(value)}`);
    const close = Object.assign(
      makeButton("✕", "", () => this.close()),
      { ariaLabel: texts.path_close },
    );
    renew(this.bar, [heading, ...(without ? [makeLink(without.text, without.href)] : []), ...(closed ? [close] : [])]);
  }

  // The terms of the sum and of the softmax, where they are asked for.
  #tabulate() {
    const [summary, place] = this.terms.children;
    summary.textContent = this.texts.path_terms;
    const steps = this.#path ? [this.#path.products, this.#path.softmax].filter((step) => step !== null) : [];
    if (!this.terms.open) return place.replaceChildren();
    const order = makeToggle(this.texts.path_sort, "", this.sorted, () => {
      this.sorted = !this.sorted;
      this.#tabulate();
    });
    renew(place, [order, ...steps.map((step) => tableOfTerms(step, this.sorted, this.texts))]);
  }

  #showCode() {
    const { texts } = this;
    const { code = "", latex } = this.explanation ?? {};
    const [summary, copies, pre] = this.code.children;
    this.code.hidden = !code && !this.askForCode;
    summary.textContent = texts.path_code;
    renew(copies, [this.#copy(texts.path_copy, code), this.#copy(texts.path_latex, latex)].flat());
    pre.textContent = code;
    this.#fetchCode();
  }

  #fetchCode() {
    if (this.code.open && !this.code.hidden && !this.explanation?.code) this.askForCode?.();
  }

  /** @param {string} name @param {string} [text] */
  #copy(name, text) {
    if (!text) return [];
    const button = makeButton(name, "", async () => {
      try {
        await navigator.clipboard.writeText(text);
        button.textContent = this.texts.path_copied;
      } catch {
        getSelection()?.selectAllChildren(this.code); // a page that may not write there marks what to copy
      }
    });
    button.ariaLive = "polite";
    return [button];
  }

  // The size or the theme may have changed.
  update() {
    const width = this.#path ? this.drawing.clientWidth : 0;
    if (!width) return;
    this.theme = themeOf(this.root);
    const from = JSON.stringify([width, this.theme]);
    if (from !== this.drawnFrom) {
      this.drawnFrom = from;
      this.#build(width);
    }
    this.#light();
  }

  // ----- along the path

  /** @param {number} position */
  goTo(position) {
    this.position = Math.min(Math.max(position, 0), this.path.stages.length);
    this.#light();
  }

  // The end of a stage, or of the one before it where the path has no such stage, as without a mask.
  /** @param {string} stage */
  goToStage(stage) {
    this.pause();
    this.goTo(this.path.stages.filter((name) => ORDER.indexOf(name) <= ORDER.indexOf(stage)).length);
  }

  play() {
    const { stages, length } = this.path;
    if (this.position >= length) this.position = 0;
    const stage = ALL_STAGES / stages.length;
    const isStill = matchMedia("(prefers-reduced-motion: reduce)").matches;
    let before = performance.now();
    const advance = () => {
      if (!this.root.isConnected) return;
      const now = performance.now();
      this.goTo(isStill ? Math.floor(this.position) + 1 : this.position + (now - before) / stage);
      before = now;
      if (this.position >= this.path.length) this.playing = 0;
      else this.playing = isStill ? window.setTimeout(advance, stage) : requestAnimationFrame(advance);
      this.#light();
    };
    advance();
  }

  pause() {
    cancelAnimationFrame(this.playing);
    clearTimeout(this.playing);
    this.playing = 0;
    if (this.#path) this.#light();
  }

  // Arrow keys move to the next end of a stage, with Shift by a sixteenth of one.
  /** @param {KeyboardEvent} event */
  #press(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const at = Math.min(this.position, this.path.length);
    /** @type {Record<string, number>} */
    const steps = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1 };
    const onward = steps[event.key];
    /** @type {Record<string, number>} */
    const ends = { Home: 0, End: this.path.length };
    if (!onward && !(event.key in ends)) return;
    claim(event);
    this.pause();
    if (event.key in ends) this.goTo(ends[event.key]);
    else if (event.shiftKey) this.goTo(at + onward * FINE_STEP);
    else this.goTo(onward > 0 ? Math.floor(at) + 1 : Math.ceil(at) - 1);
  }

  // How much of a stage is done, by its name or its place: 0 to 1.
  /** @param {string | number} stage */
  #progress(stage) {
    const { at, part } = momentOf(this.path, this.position);
    const nth = typeof stage === "number" ? stage : this.path.stages.indexOf(stage);
    return nth < 0 || nth > at ? 0 : nth < at ? 1 : part;
  }

  #light() {
    const path = this.#path;
    if (!path || !this.#layout) return;
    const { at, part } = momentOf(path, this.position);
    for (const lit of this.parts) lit();
    const shown = Math.min(this.position, path.length);
    const said = { ariaLabel: this.texts.path_slider, ariaValueText: this.#sentence({ at, part }) };
    Object.assign(this.slider, { max: path.stages.length, value: shown, ...said });
    this.button.textContent = this.playing ? "❚❚" : "▶\ufe0e";
    this.button.ariaLabel = this.playing ? this.texts.path_pause : this.texts.path_play;
    [...this.names.children].forEach((name, nth) => {
      name.classList.toggle("now", nth === at && shown > 0);
      name.classList.toggle("ahead", nth >= path.length);
    });
    this.#say();
  }

  #say() {
    this.sentence.textContent = this.slider.ariaValueText;
  }

  // The pointer is on an element of the drawing, or left it.
  /** @param {Element | null} target */
  #read(target) {
    const says = target && this.readings.get(target)?.();
    if (says) this.sentence.textContent = says;
    else this.#say();
    const key = this.choices.findIndex((line) => line.contains(target));
    highlight(this.root, key < 0 ? null : { query: this.explanation?.from, key: this.#keyOf(key) });
    this.#markPointed();
  }

  /** @param {number} nth */
  #keyOf = (nth) => this.#labelOf(this.path.lines[nth].keys[0]);
  /** @param {number} at */
  #labelOf = (at) => required(this.path.softmax, "row of this number").labels[at];

  #markPointed() {
    const lit = litOf("key");
    this.choices.forEach((line, nth) => {
      line.classList.toggle("pointed", lit !== undefined && this.#keyOf(nth) === lit);
    });
  }

  /** @param {{ at: number, part: number }} moment */
  #sentence(moment) {
    const { mixed, shared = 1 } = this.explanation ?? {};
    const [query, key] = this.#words();
    return sentenceOf(this.path, moment, { query, key, head: (mixed?.place.head ?? 0) + 1, heads: shared }, this.texts);
  }

  #words() {
    const { from = "", to = "" } = this.explanation ?? {};
    return [isolated(from), typeof to === "number" ? "" : isolated(to)];
  }

  // ----- the drawing

  /** @param {number} width */
  #build(width) {
    const { path } = this;
    this.parts = [];
    this.readings.clear();
    this.#layout = layoutOf(path, width);
    const { height } = this.layout;
    this.svg = this.into = makeSvg("svg", { viewBox: `0 0 ${width} ${height}`, width, height });
    this.#vectors();
    this.#scores();
    if (path.softmax) this.#table();
    this.drawing.replaceChildren(this.svg);
    this.names.replaceChildren(
      ...path.stages.map((stage, nth) => {
        const name = makeButton(this.texts[`path_stage_${stage}`], "", () => {
          this.pause();
          this.goTo(nth + 1);
        });
        name.tabIndex = -1;
        return name;
      }),
    );
  }

  /** @param {string} name @param {Record<string, string | number | boolean>} attributes @param {string} text */
  #add(name, attributes, text = "") {
    const element = makeSvg(name, attributes, text);
    this.into.append(element);
    return element;
  }

  /** @param {number} x @param {number} y @param {string} text @param {string} className @param {string} anchor */
  #text(x, y, text, className = "", anchor = "start") {
    return this.#add("text", { x, y, class: className, "text-anchor": anchor }, text);
  }

  // A number, empty until its stage is reached.
  /** @param {number} x @param {number} y @param {() => string} textOf @param {string} className */
  #number(x, y, textOf, className = "number") {
    const element = this.#text(x, y, "", className, "end");
    this.parts.push(() => {
      const text = textOf();
      if (element.textContent !== text) element.textContent = text;
    });
    return element;
  }

  // A cell, which has its colour and its reading once its stage is reached.
  /**
   * @param {number} x
   * @param {number} y
   * @param {number} size
   * @param {() => string | null} colourOf
   * @param {() => string} says
   */
  #cell(x, y, size, colourOf, says) {
    const cell = this.#add("rect", { x: x + 0.5, y, width: size - 1.5, height: NUMBER.height, class: "cell" });
    let reached = false;
    this.parts.push(() => {
      const colour = colourOf();
      reached = colour !== null;
      cell.style.fill = colour ?? "";
      cell.classList.toggle("lit", reached);
    });
    this.readings.set(cell, () => (reached ? says() : ""));
  }

  // A grey line, coloured from its start up to a share of its length.
  /** @param {string} d @param {() => number} shareOf */
  #wire(d, shareOf) {
    this.#add("path", { d, class: "way" });
    const light = this.#add("path", { d, class: "light", pathLength: 1 });
    this.parts.push(() => {
      const share = shareOf();
      light.setAttribute("stroke-dasharray", `${share} 1`);
      light.classList.toggle("dark", share <= 0);
      light.classList.toggle("front", share > 0 && share < 1);
    });
  }

  /** @param {number} value @param {number} end */
  #signed = (value, end) => `rgb(${shade(this.theme.diverging, 0.5 + value / (2 * end || 1))})`;

  #vectors() {
    const { path, texts, explanation } = this;
    const { number, shownK: shown, rows: y } = this.layout;
    const { name, factors, terms, labels } = path.products;
    const [, one, other, product] = columnsOf(name, texts);
    const [query, key] = this.#words();
    const isScore = name === "score";
    const { q, k } = (isScore && explanation?.symbols) || { q: one, k: other };
    factors.forEach((vector, nth) => {
      const [symbol, word, top] = nth ? [k, isScore ? key : "", y.k] : [q, query, y.q];
      const end = largestOf(Array.from(vector).slice(0, countProducts(path.products))); // a bias is times 1
      this.#label(symbol, word, top);
      const done = () => countDone(Math.min(Math.max(2 * this.#progress("vectors") - nth, 0), 1), vector.length);
      const owner = name === "mixture" ? "" : word; // a number of a row of weights belongs to its key
      for (let at = 0; at < shown; at++) {
        const colour = () => (done() > at ? this.#signed(vector[at], end) : null);
        const says = () => this.#cellText(symbol, owner, labels[at], written(vector[at]));
        this.#cell(NAME_WIDTH + at * number, top, number, colour, says);
      }
      this.#more(vector.length - shown, NAME_WIDTH + shown * number, top);
    });
    if (isNamed(path.products) && number >= MIN_NAMED) {
      for (let at = 0; at < shown; at++) {
        const whole = isolated(labels[at]);
        const word = this.#short(whole, number - 6);
        const digits = name === "heads" && word !== whole ? labels[at].match(/\d+$/) : null; // "3" says more than "hea…"
        this.#text(NAME_WIDTH + (at + 0.5) * number, ABOVE - 7, digits?.[0] ?? word, "heading", "middle");
      }
    }
    this.#label(product, "", y.products);
    const most = largestOf(terms);
    const done = () => countDone(this.#progress("products"), terms.length);
    for (let at = 0; at < shown; at++) {
      const x = NAME_WIDTH + at * number;
      const middle = x + number / 2;
      const isDone = () => Number(done() > at);
      if (factors.length) this.#wire(`M${middle} ${y.k + NUMBER.height}V${y.products}`, isDone);
      const colour = () => (isDone() ? this.#signed(terms[at], most) : null);
      const parts = factors.map((factor) => inBrackets(factor[at])).join(" · ");
      const value = parts ? `${parts} = ${written(terms[at])}` : written(terms[at]);
      this.#cell(x, y.products, number, colour, () => this.#cellText(product, "", labels[at], value));
    }
    this.#more(terms.length - shown, NAME_WIDTH + shown * number, y.products);
  }

  // The words for a cell: the number of a dimension of a word's vector, or of a term by its name.
  /** @param {string} symbol @param {string} word @param {string} label @param {string} value */
  #cellText(symbol, word, label, value) {
    const { texts } = this;
    if (word) return fill(texts.matrices_number, { symbol, token: word, number: label, value });
    return fill(texts.path_cell_term, { symbol, label: isolated(label), value });
  }

  /** @param {string} symbol @param {string} word @param {number} y */
  #label(symbol, word, y) {
    const first = makeSvg("tspan", { class: "symbol" }, symbol);
    const second = makeSvg("tspan", { dx: 5 }, this.#short(word, NAME_WIDTH - 34));
    this.#text(0, y + 11, "", "name").append(first, second);
  }

  /** @param {string} word @param {number} width */
  #short = (word, width) => shortenedTo(word, width, measured(`12px ${this.theme.font}`));

  /** @param {number} count @param {number} x @param {number} y */
  #more(count, x, y) {
    if (count > 0) this.#text(x + 4, y + 11, `+${count}`, "beyond");
  }

  // Lines from the products into the score, then a box for each change of the score.
  #scores() {
    const { path, texts } = this;
    const { number, shownK: shown, rows, placeOf } = this.layout;
    const { terms, value: total } = path.products;
    const first = path.stages.indexOf("products") + 1; // the stage of the first change
    const begin = placeOf(0);
    const [x, y] = [begin.x + SCORE_BOX.width / 2, begin.y - 16];
    const done = () => countDone(this.#progress("products"), terms.length);
    const last = terms.length > shown ? shown : shown - 1;
    for (let at = 0; at <= last; at++) {
      const from = NAME_WIDTH + (at + 0.5) * number;
      const least = at < shown ? at : terms.length - 1;
      const low = rows.products + NUMBER.height;
      this.#wire(`M${from} ${low}C${from} ${low + 22} ${x} ${y - 26} ${x} ${y}`, () => (done() > least ? 1 : 0));
    }
    const bias = countProducts(path.products) < terms.length ? " + b" : "";
    this.#box(begin, `Σ ${columnsOf(path.products.name, texts)[3]}${bias}`, () => {
      const count = done();
      return count ? written(count === terms.length ? total : partialSum(terms, count)) : "";
    });
    path.changes.forEach((change, nth) => {
      const [from, to] = [placeOf(nth), placeOf(nth + 1)];
      const isNext = to.y === from.y;
      const middle = from.y + SCORE_BOX.height / 2;
      const d = isNext
        ? `M${from.x + SCORE_BOX.width} ${middle}H${to.x}`
        : `M${from.x + SCORE_BOX.width / 2} ${from.y + SCORE_BOX.height}C${from.x + SCORE_BOX.width / 2} ${to.y - 30} ${to.x + SCORE_BOX.width / 2} ${to.y - 44} ${to.x + SCORE_BOX.width / 2} ${to.y - 16}`;
      this.#wire(d, () => Math.min(2 * this.#progress(first + nth), 1));
      const arrived = () => (this.#progress(first + nth) >= 0.5 ? written(change.value) : "");
      this.#box(to, shortNameOf(change, path, texts), arrived, change.name === "mask" && path.hidden);
    });
  }

  /**
   * @param {import("./cell_path_plan.js").Point} place
   * @param {string} title
   * @param {() => string} textOf
   * @param {boolean} isHidden
   */
  #box({ x, y }, title, textOf, isHidden = false) {
    const { width, height } = SCORE_BOX;
    const box = this.#add("rect", { x, y, width, height, rx: 4, class: "box" });
    this.#text(x + width / 2, y - 5, title, "heading", "middle");
    const number = this.#text(x + width / 2, y + 19, "", "result", "middle");
    this.parts.push(() => {
      const text = textOf();
      number.textContent = text;
      box.classList.toggle("lit", Boolean(text));
      box.classList.toggle("hidden", isHidden && Boolean(text));
    });
  }

  // A line for each key: score, exponential, weight, weight × value. Their sums are below.
  #table() {
    const { path, texts } = this;
    const { lines } = path;
    const { isWide, left, top, columns: x, right, number: size, shownV } = this.layout;
    /** @param {number} nth */
    const yOf = (nth) => top + ABOVE + nth * LINE_HEIGHT;
    const done = {
      powers: () => powersDone(this.#progress("powers"), lines.length),
      shares: () => countDone(this.#progress("shares"), lines.length),
      mixture: () => countDone(this.#progress("mixture"), lines.length),
    };
    for (const name of /** @type {const} */ (["score", "power", "weight"]))
      this.#text(x[name], top + ABOVE - 7, texts[`path_column_${name}`], "heading", "end");
    const more = path.output.length - shownV;
    const title = `${texts.path_column_part}${more ? ` (+${more})` : ""}`;
    const above = top + ABOVE - (isWide ? 7 : 7 + LINE_HEIGHT); // on a phone it has no room beside the others
    if (shownV) this.#text(isWide ? x.cells : right, above, title, "heading", isWide ? "start" : "end");
    const groups = this.#choice(left, right, yOf);
    this.choices = groups.filter((_, nth) => lines[nth].kind === "key");
    const last = this.layout.placeOf(path.changes.length);
    this.#wire(wireTo(last, { x: left, y: yOf(path.chosen) + LINE_HEIGHT / 2 - 2 }, isWide, top), () =>
      path.hidden ? 0 : arrivalOf(this.#progress("powers")),
    );
    const end = Math.max(largestOf(path.output), ...lines.map(({ part }) => largestOf(part)));
    lines.forEach((line, nth) => {
      this.into = groups[nth]; // a click on any part of a line chooses its word
      const y = yOf(nth) + 12;
      const isHidden = line.kind !== "others" && line.score === -Infinity;
      const scored = () => done.powers() > nth || (nth === path.chosen && arrivalOf(this.#progress("powers")) === 1);
      const scoreText = isHidden ? "−∞" : written(line.score);
      this.#number(x.score, y, () => (scored() && line.kind !== "others" ? scoreText : ""));
      this.#number(x.power, y, () => (done.powers() > nth ? ofPower(line.power) : ""));
      this.#weight(x.weight, y, () => {
        if (done.shares() <= nth) return null;
        const isChanged = this.#progress("patch") >= 0.5 || !path.stages.includes("patch");
        return isChanged || line.kind === "sink" ? shareOrWeight(line) : line.share;
      });
      if (line.kind === "sink") return;
      for (let at = 0; at < shownV; at++) {
        const colour = () => (done.mixture() > nth ? this.#signed(line.part[at], end) : null);
        this.#cell(x.cells + at * size, yOf(nth), size, colour, () => this.#partText(line, at));
      }
    });
    this.into = this.svg;
    const y = yOf(lines.length) + 6;
    this.#add("path", { d: `M${left} ${y - 4}H${right}`, class: "way" });
    this.#text(x.word, y + 12, "Σ", "symbol");
    const powers = lines.map(({ power }) => power);
    const weights = lines.map(shareOrWeight);
    /** @type {(at: number, count: () => number, textOf: (count: number) => string) => SVGElement} */
    const total = (at, count, textOf) => this.#number(at, y + 12, () => (count() ? textOf(count()) : ""), "number sum");
    total(x.power, done.powers, (count) => written(partialSum(powers, count)));
    total(x.weight, done.shares, (count) => partialSum(weights, count).toFixed(4));
    const symbol = this.explanation?.symbols?.output ?? "";
    for (let at = 0; at < shownV; at++) {
      let value = 0;
      const colour = () => {
        const count = done.mixture();
        value = count ? partialOutput(path, count)[at] : 0;
        return count ? this.#signed(value, end) : null;
      };
      const says = () => this.#cellText(symbol, this.#words()[0], String(at + 1), written(value));
      this.#cell(x.cells + at * size, y + 1, size, colour, says);
    }
    if (isWide && shownV) this.#text(right + 5, y + 12, symbol, "symbol");
  }

  /** @param {PathLine} line @param {number} at */
  #partText(line, at) {
    const { texts } = this;
    const value = written(line.part[at]);
    if (line.kind === "others") {
      const others = fill(texts.path_others, { count: line.keys.length });
      return this.#cellText(texts.path_column_part, others, String(at + 1), value);
    }
    const { layer, place } = required(this.explanation?.mixed, "layer of these values");
    const [key] = line.keys;
    const v = inBrackets(layer.vector("v", place.head, key)[at]);
    const names = { key: isolated(this.#labelOf(key)), column: at + 1, weight: exact(line.weight), v };
    return fill(texts.path_cell_part, { ...names, value });
  }

  // A weight, on the colour that the scale gives it.
  /** @param {number} x @param {number} y @param {() => number | null} weightOf */
  #weight(x, y, weightOf) {
    const ground = this.#add("rect", { x: x - 46, y: y - 12, width: 49, height: LINE_HEIGHT - 2, class: "ground" });
    const number = this.#text(x, y, "", "number", "end");
    this.parts.push(() => {
      const weight = weightOf();
      const colour = weight === null ? null : shade(this.theme.sequential, weight);
      ground.style.fill = colour ? `rgb(${colour})` : "";
      number.style.fill = colour ? inkOn(colour) : "";
      number.textContent = weight === null ? "" : exact(weight);
    });
  }

  // The words that are looked at, one of them chosen: a group for each line.
  /** @param {number} left @param {number} right @param {(nth: number) => number} yOf */
  #choice(left, right, yOf) {
    const { path, texts, choose } = this;
    const group = this.#add("g", choose ? { role: "radiogroup", "aria-label": texts.path_choose } : {});
    return path.lines.map(({ kind, keys }, nth) => {
      const isChosen = nth === path.chosen;
      const y = yOf(nth);
      const word =
        kind === "others" ? fill(texts.path_others, { count: keys.length }) : isolated(this.#labelOf(keys[0]));
      const ground = makeSvg("rect", { x: left, y: y - 1, width: right - left, height: LINE_HEIGHT - 1, rx: 2 });
      const name = makeSvg("text", { x: left + 4, y: y + 12 }, this.#short(word, this.layout.isWide ? 78 : 56));
      const line = makeSvg("g", { class: kind !== "key" ? "rest" : isChosen ? "line chosen" : "line" }, ground, name);
      line.classList.toggle("choice", Boolean(choose));
      group.append(line);
      if (kind !== "key" || !choose) return line;
      const ariaChecked = String(isChosen);
      Object.assign(line, { role: "radio", ariaChecked, ariaLabel: word, tabIndex: isChosen ? 0 : -1 });
      line.addEventListener("click", () => choose(keys[0]));
      return line;
    });
  }

  // Arrow keys choose among the words.
  /** @param {KeyboardEvent} event */
  #walk(event) {
    const arrow = arrowOf(event);
    const at = this.choices.indexOf(/** @type {SVGElement} */ (event.target));
    if (!arrow || at < 0) return;
    claim(event);
    const next = Math.min(Math.max(at + arrow[0] + arrow[1], 0), this.choices.length - 1);
    this.choose?.(this.path.lines[next].keys[0]);
    this.choices[this.path.chosen].focus({ preventScroll: true });
  }
}

/** @param {PathLine} line */
const shareOrWeight = ({ kind, share, weight }) => (kind === "sink" ? share : weight);
/** @param {number} value */
const ofPower = (value) => (value >= 0.001 || value === 0 ? written(value) : value.toExponential(2));
