// A drawing of how one cell is computed: the query and the key, their products, the score, the softmax of the row, the
// mixture of values. A slider moves through the stages: those behind it are coloured, those ahead are grey and empty.

import { arrival } from "../numbers/blobs.js";
import { cellPathOf, countDone, momentOf, partialOutput, partialSum } from "../numbers/cell_path.js";
import { openPayload } from "../numbers/payload.js";
import { elementIn, make, makeButton, makeSvg, penOf, required, targetOf } from "../page/elements.js";
import { exact, fill, isolated, written } from "../page/wording.js";
import { follow, heldFocus, move, ready } from "../scene/address.js";
import { positionOf } from "../scene/focus_link.js";
import { followHighlight, highlight, litOf } from "../scene/highlight.js";
import { followStep, stepInFocus } from "../scene/step.js";
import { fitHeight } from "../streamlit/adapter.js";
import { ABOVE, LINE_HEIGHT, layoutOf, NAME_WIDTH, NUMBER, SCORE_BOX, wireTo } from "./cell_path_plan.js";
import { arrivalOf, inBrackets, isRoot, powersDone, sentenceOf } from "./cell_path_words.js";
import { inkOn, shade } from "./colours.js";
import { shortenedTo } from "./heatmap.js";
import { largestOf } from "./matrix_gallery.js";
import { themeOf } from "./theme.js";

/** @typedef {import("../numbers/cell_path.js").CellPath} CellPath */
/** @typedef {import("../numbers/cell_path.js").PathLine} PathLine */
/** @typedef {import("./cell_path_plan.js").Layout} Layout */
/** @typedef {import("../numbers/payload.js").PayloadPanel} PayloadPanel */
/** @typedef {(name: string) => number} Progress of the stage of that name, 0 to 1 */

/**
 * The path's data from the page.
 * @typedef {object} PathPage
 * @property {string} name of the layer (blobs.js)
 * @property {string} digest
 * @property {number} head
 * @property {number} query position
 * @property {number | null} key position; null for the key with the largest weight
 * @property {Record<string, string> | null} steps for each step of the page the stage that makes its matrix; null where
 *   the page has no steps
 * @property {{ q: string, k: string, output: string }} symbols
 * @property {number} shared how many heads share the key
 * @property {string[]} edits changes of the attention in words
 * @property {Record<string, string>} texts
 */

const ORDER = [
  "vectors",
  "products",
  "scale",
  "cap",
  "bias",
  "mask",
  "temperature",
  "powers",
  "shares",
  "patch",
  "mixture",
];
const MAX_LINES = 16;
const ALL_STAGES = 8000; // milliseconds to play all stages
const FINE_STEP = 1 / 16; // of a stage: a step with Shift

class CellPathPicture {
  position = 0; // in stages
  playing = 0; // the next frame or pause
  key = -1; // clicked here, on a page without steps
  step = ""; // the last step of the page that moved the slider
  drawnFrom = "";
  /** @type {string | undefined} */
  keyInFocus;
  shownPlace = { head: 0, row: 0, column: 0 };
  /** @type {CellPath | null} */
  #path = null;
  /** @type {Layout | null} */
  #layout = null;
  /** @type {((progress: Progress) => void)[]} each draws one element for the progress of its stage */
  parts = [];
  /** @type {Map<Element, () => string>} what a cell says */
  readings = new Map();
  /** @type {SVGElement[]} the lines of the keys */
  choices = [];

  /**
   * @param {HTMLElement} root
   * @param {PathPage} data
   * @param {PayloadPanel} panel
   */
  constructor(root, data, panel) {
    this.root = root;
    this.data = data;
    this.panel = panel;
    this.theme = themeOf(root);
    this.svg = this.into = makeSvg("svg", {});
    this.drawing = make("div", "drawing");
    this.sentence = make("p", "sentence");
    this.slider = make("input");
    Object.assign(this.slider, { type: "range", min: "0", step: "any" });
    this.button = makeButton("", "play", () => (this.playing ? this.pause() : this.play()));
    this.names = make("div", "names");
    this.names.setAttribute("aria-hidden", "true"); // the slider says them
    this.edits = make("p", "edits");
    const bar = make("div", "bar");
    const track = make("div", "track");
    track.append(this.slider, this.names);
    bar.append(this.button, track);
    root.append(bar, this.sentence, this.drawing, this.edits);
    this.slider.addEventListener("input", () => {
      const { value } = this.slider;
      this.pause(); // which writes the position into the slider
      this.goTo(Number(value));
    });
    this.slider.addEventListener("keydown", (event) => this.#press(event));
    this.drawing.addEventListener("pointerover", (event) => this.#read(targetOf(event)));
    this.drawing.addEventListener("pointerleave", () => this.#read(null));
    this.drawing.addEventListener("keydown", (event) => this.#walk(event));
    followHighlight(root, () => this.#markPointed());
    new ResizeObserver(() => this.update()).observe(root);
  }

  /** @param {PathPage} data @param {PayloadPanel} panel */
  open(data, panel) {
    this.data = data;
    this.panel = panel;
    this.key = -1;
    this.keyInFocus ??= heldFocus().key_token;
    this.edits.textContent = data.edits.map((edit) => fill(data.texts.edited, { edit })).join(" ");
    this.edits.hidden = !data.edits.length;
    follow(this.root, () => this.#followFocus());
    if (data.steps) followStep(this.root, () => this.#followStep());
    else this.update();
  }

  // Scroll to the drawing when its cell was chosen in another picture.
  #followFocus() {
    const before = this.keyInFocus;
    this.keyInFocus = heldFocus().key_token;
    this.update();
    if (this.keyInFocus && this.keyInFocus !== before) this.root.scrollIntoView({ block: "nearest" });
  }

  // The page shows another step: the slider moves to the stage that makes its matrix.
  #followStep() {
    const step = stepInFocus();
    const stage = this.data.steps?.[step];
    this.root.hidden = stage === undefined;
    this.update();
    if (!this.#path || step === this.step) return;
    this.step = step;
    this.pause();
    if (stage !== undefined) this.goTo(this.#endOf(stage));
  }

  // The end of a stage, or of the one before it where the path has no such stage, as without a mask.
  /** @param {string} stage */
  #endOf(stage) {
    return this.path.stages.filter((name) => ORDER.indexOf(name) <= ORDER.indexOf(stage)).length;
  }

  get texts() {
    return this.data.texts;
  }

  get layer() {
    const [layer] = this.panel.layers.values();
    return layer;
  }

  get path() {
    return required(this.#path, "path of this cell");
  }

  get layout() {
    return required(this.#layout, "layout of this path");
  }

  // The cell in focus, or the one that the page names or that was clicked. Without a key: the largest weight.
  get place() {
    const { data, panel, layer } = this;
    /** @type {Partial<import("../scene/address.js").LinkFocus>} */
    const held = data.steps ? heldFocus() : {};
    const { token = "", key_token: key = "" } = held;
    const named = positionOf(panel.names, token);
    const row = named >= 0 ? named : data.query;
    const chosen = data.steps ? positionOf(panel.keyNames, key) : this.key;
    const weights = layer.row(data.head, row);
    const largest = weights.indexOf(weights.reduce((most, one) => Math.max(most, one)));
    return { head: data.head, row, column: chosen >= 0 ? chosen : (data.key ?? largest) };
  }

  update() {
    const width = this.root.clientWidth;
    if (!width) return;
    const { place, panel, layer } = this;
    this.theme = themeOf(this.root);
    const from = JSON.stringify([place, width, this.theme, this.data]);
    if (from !== this.drawnFrom) {
      this.drawnFrom = from;
      this.shownPlace = place;
      this.#path = cellPathOf(layer, place, panel.keys, MAX_LINES);
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

  play() {
    const { stages, length } = this.path;
    if (this.position >= length) this.position = 0;
    const stage = ALL_STAGES / stages.length;
    const ended = () => this.position >= this.path.length;
    if (matchMedia("(prefers-reduced-motion: reduce)").matches) {
      const jump = () => {
        this.goTo(Math.floor(this.position) + 1);
        this.playing = ended() ? 0 : window.setTimeout(jump, stage);
        this.#light();
      };
      return jump();
    }
    let before = performance.now();
    /** @param {number} now */
    const advance = (now) => {
      if (!this.playing || !this.root.isConnected) return;
      this.goTo(this.position + (now - before) / stage);
      before = now;
      this.playing = ended() ? 0 : requestAnimationFrame(advance);
      this.#light();
    };
    this.playing = requestAnimationFrame(advance);
    this.#light();
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
    event.preventDefault();
    event.stopPropagation(); // Streamlit has keys of its own
    this.pause();
    if (event.key in ends) this.goTo(ends[event.key]);
    else if (event.shiftKey) this.goTo(at + onward * FINE_STEP);
    else this.goTo(onward > 0 ? Math.floor(at) + 1 : Math.ceil(at) - 1);
  }

  #light() {
    const { path } = this;
    const { at, part } = momentOf(path, this.position);
    /** @type {Progress} */
    const progress = (name) => {
      const nth = path.stages.indexOf(name);
      return nth < 0 || nth > at ? 0 : nth < at ? 1 : part;
    };
    for (const lit of this.parts) lit(progress);
    const shown = Math.min(this.position, path.length);
    this.slider.max = String(path.stages.length);
    this.slider.value = String(shown);
    this.slider.setAttribute("aria-label", this.texts.slider);
    this.slider.setAttribute("aria-valuetext", this.#sentence({ at, part }));
    this.button.textContent = this.playing ? "❚❚" : "▶\ufe0e";
    this.button.setAttribute("aria-label", this.texts[this.playing ? "pause" : "play"]);
    [...this.names.children].forEach((name, nth) => {
      name.classList.toggle("now", nth === at && shown > 0);
      name.classList.toggle("ahead", nth >= path.length);
    });
    this.#say();
  }

  #say() {
    this.sentence.textContent = this.slider.getAttribute("aria-valuetext");
  }

  // The pointer is on an element of the drawing, or left it.
  /** @param {Element | null} target */
  #read(target) {
    const says = target && this.readings.get(target)?.();
    if (says) this.sentence.textContent = says;
    else this.#say();
    const key = this.choices.findIndex((line) => line.contains(target));
    highlight(this.root, key < 0 ? null : { query: this.panel.tokens[this.shownPlace.row], key: this.#keyOf(key) });
    this.#markPointed();
  }

  /** @param {number} nth */
  #keyOf = (nth) => this.panel.keys[this.path.lines[nth].keys[0]];

  #markPointed() {
    const lit = litOf("key");
    this.choices.forEach((line, nth) => {
      line.classList.toggle("pointed", lit !== undefined && this.#keyOf(nth) === lit);
    });
  }

  /** @param {{ at: number, part: number }} moment */
  #sentence(moment) {
    const { path, data, texts } = this;
    const [query, key] = this.#words();
    return sentenceOf(path, moment, { query, key, head: data.head + 1, heads: data.shared }, texts);
  }

  #words() {
    const { panel, shownPlace: place } = this;
    return [isolated(panel.tokens[place.row]), isolated(panel.keys[place.column])];
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
    this.#table();
    this.drawing.replaceChildren(this.svg);
    this.names.replaceChildren(
      ...path.stages.map((stage, nth) => {
        const name = makeButton(this.texts[`stage_${stage}`], "", () => {
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

  /**
   * @param {number} x
   * @param {number} y
   * @param {string} text
   * @param {string} className
   * @param {string} anchor
   */
  #text(x, y, text, className = "", anchor = "start") {
    return this.#add("text", { x, y, class: className, "text-anchor": anchor }, text);
  }

  // A number, empty until its stage is reached.
  /**
   * @param {number} x
   * @param {number} y
   * @param {(progress: Progress) => string} textOf
   * @param {string} className
   */
  #number(x, y, textOf, className = "number") {
    const element = this.#text(x, y, "", className, "end");
    this.parts.push((progress) => {
      const text = textOf(progress);
      if (element.textContent !== text) element.textContent = text;
    });
    return element;
  }

  // A cell, which has its colour and its reading once its stage is reached.
  /**
   * @param {number} x
   * @param {number} y
   * @param {number} size
   * @param {(progress: Progress) => string | null} colourOf
   * @param {() => string} says
   */
  #cell(x, y, size, colourOf, says) {
    const cell = this.#add("rect", { x: x + 0.5, y, width: size - 1.5, height: NUMBER.height, class: "cell" });
    let reached = false;
    this.parts.push((progress) => {
      const colour = colourOf(progress);
      reached = colour !== null;
      cell.style.fill = colour ?? "";
      cell.classList.toggle("lit", reached);
    });
    this.readings.set(cell, () => (reached ? says() : ""));
  }

  // A grey line, coloured from its start up to a share of its length.
  /** @param {string} d @param {(progress: Progress) => number} shareOf */
  #wire(d, shareOf) {
    this.#add("path", { d, class: "way" });
    const light = this.#add("path", { d, class: "light", pathLength: 1 });
    this.parts.push((progress) => {
      const share = shareOf(progress);
      light.setAttribute("stroke-dasharray", `${share} 1`);
      light.classList.toggle("dark", share <= 0);
      light.classList.toggle("front", share > 0 && share < 1);
    });
  }

  /** @param {number} value @param {number} end */
  #signed = (value, end) => `rgb(${shade(this.theme.diverging, 0.5 + value / (2 * end || 1))})`;

  #vectors() {
    const { path, texts, data } = this;
    const { number, shownK: shown, rows: y } = this.layout;
    const [q, k] = path.score.factors;
    const { terms } = path.score;
    const [query, key] = this.#words();
    const rows = /** @type {const} */ ([
      [q, data.symbols.q, query, y.q, 0],
      [k, data.symbols.k, key, y.k, 0.5],
    ]);
    const end = Math.max(largestOf(q), largestOf(k));
    for (const [vector, symbol, word, top, begins] of rows) {
      this.#label(symbol, word, top);
      /** @param {Progress} progress */
      const done = (progress) => countDone(Math.min(Math.max(2 * (progress("vectors") - begins), 0), 1), vector.length);
      for (let at = 0; at < shown; at++) {
        /** @param {Progress} progress */
        const colour = (progress) => (done(progress) > at ? this.#signed(vector[at], end) : null);
        const values = { symbol, row: word, column: at + 1, value: written(vector[at]) };
        this.#cell(NAME_WIDTH + at * number, top, number, colour, () => fill(texts.cell_number, values));
      }
      this.#more(vector.length - shown, NAME_WIDTH + shown * number, top);
    }
    this.#label("q · k", "", y.products);
    const most = largestOf(terms);
    /** @param {Progress} progress */
    const done = (progress) => countDone(progress("products"), terms.length);
    for (let at = 0; at < shown; at++) {
      const x = NAME_WIDTH + at * number;
      const middle = x + number / 2;
      /** @param {Progress} progress */
      const isDone = (progress) => (done(progress) > at ? 1 : 0);
      this.#wire(`M${middle} ${y.k + NUMBER.height}V${y.products}`, isDone);
      /** @param {Progress} progress */
      const colour = (progress) => (isDone(progress) ? this.#signed(terms[at], most) : null);
      const values = { column: at + 1, q: inBrackets(q[at]), k: inBrackets(k[at]), value: written(terms[at]) };
      this.#cell(x, y.products, number, colour, () => fill(texts.cell_product, values));
    }
    this.#more(terms.length - shown, NAME_WIDTH + shown * number, y.products);
  }

  /** @param {string} symbol @param {string} word @param {number} y */
  #label(symbol, word, y) {
    const name = this.#text(0, y + 11, "", "label");
    name.append(
      makeSvg("tspan", { class: "symbol" }, symbol),
      makeSvg("tspan", { dx: 5 }, this.#short(word, NAME_WIDTH - 34)),
    );
  }

  /** @param {string} word @param {number} width */
  #short(word, width) {
    const context = penOf(make("canvas"));
    context.font = `12px ${this.theme.font}`;
    return shortenedTo(context, word, width);
  }

  /** @param {number} count @param {number} x @param {number} y */
  #more(count, x, y) {
    if (count > 0) this.#text(x + 4, y + 11, `+${count}`, "more");
  }

  // Lines from the products into the score, then a box for each change of the score.
  #scores() {
    const { path, texts } = this;
    const { number, shownK: shown, rows, placeOf } = this.layout;
    const { terms } = path.score;
    const begin = placeOf(0);
    const [x, y] = [begin.x + SCORE_BOX.width / 2, begin.y - 16];
    /** @param {Progress} progress */
    const done = (progress) => countDone(progress("products"), terms.length);
    const last = terms.length > shown ? shown : shown - 1;
    for (let at = 0; at <= last; at++) {
      const from = NAME_WIDTH + (at + 0.5) * number;
      const least = at < shown ? at : terms.length - 1;
      const low = rows.products + NUMBER.height;
      this.#wire(`M${from} ${low}C${from} ${low + 22} ${x} ${y - 26} ${x} ${y}`, (progress) =>
        done(progress) > least ? 1 : 0,
      );
    }
    this.#box(begin, `Σ q · k`, (progress) => {
      const count = done(progress);
      return count ? written(count === terms.length ? path.score.value : partialSum(terms, count)) : "";
    });
    path.changes.forEach(({ name, value, factors }, nth) => {
      const [from, to] = [placeOf(nth), placeOf(nth + 1)];
      const isNext = to.y === from.y;
      const middle = from.y + SCORE_BOX.height / 2;
      const d = isNext
        ? `M${from.x + SCORE_BOX.width} ${middle}H${to.x}`
        : `M${from.x + SCORE_BOX.width / 2} ${from.y + SCORE_BOX.height}C${from.x + SCORE_BOX.width / 2} ${to.y - 30} ${to.x + SCORE_BOX.width / 2} ${to.y - 44} ${to.x + SCORE_BOX.width / 2} ${to.y - 16}`;
      this.#wire(d, (progress) => Math.min(2 * progress(name), 1));
      const by = factors[1]?.[0];
      const root = name === "scale" && isRoot(by, path) ? `÷ √${terms.length}` : null;
      /** @type {Record<string, string>} */
      const signs = { scale: "×", cap: "±", bias: by < 0 ? "−" : "+", temperature: "÷" };
      const sign = signs[name];
      const title = root ?? (sign ? `${sign} ${brief(name === "bias" ? Math.abs(by) : by)}` : texts[`stage_${name}`]);
      /** @param {Progress} progress */
      const arrived = (progress) => (progress(name) >= 0.5 ? written(value) : "");
      this.#box(to, title, arrived, name === "mask" && path.hidden);
    });
  }

  /**
   * @param {import("./cell_path_plan.js").Point} place
   * @param {string} title
   * @param {(progress: Progress) => string} textOf
   * @param {boolean} isHidden
   */
  #box({ x, y }, title, textOf, isHidden = false) {
    const box = this.#add("rect", {
      x,
      y,
      width: SCORE_BOX.width,
      height: SCORE_BOX.height,
      rx: 4,
      class: "box",
    });
    this.#text(x + SCORE_BOX.width / 2, y - 5, title, "title", "middle");
    const number = this.#text(x + SCORE_BOX.width / 2, y + 19, "", "result", "middle");
    this.parts.push((progress) => {
      const text = textOf(progress);
      number.textContent = text;
      box.classList.toggle("lit", Boolean(text));
      box.classList.toggle("hidden", isHidden && Boolean(text));
    });
  }

  // A line for each key: score, exponential, weight, weight × value. Their sums are below.
  #table() {
    const { path, texts, data } = this;
    const { lines } = path;
    const { isWide, left, top, columns: x, right, number: size, shownV } = this.layout;
    /** @param {number} nth */
    const yOf = (nth) => top + ABOVE + nth * LINE_HEIGHT;
    /** @type {Record<string, (progress: Progress) => number>} */
    const done = {
      powers: (progress) => powersDone(progress("powers"), lines.length),
      shares: (progress) => countDone(progress("shares"), lines.length),
      mixture: (progress) => countDone(progress("mixture"), lines.length),
    };
    for (const [name, at] of /** @type {const} */ ([
      ["score", x.score],
      ["power", x.power],
      ["weight", x.weight],
    ]))
      this.#text(at, top + ABOVE - 7, texts[`column_${name}`], "title", "end");
    const more = path.output.length - shownV;
    const title = `${texts.column_part}${more ? ` (+${more})` : ""}`;
    this.#text(isWide ? x.cells : right, top + ABOVE - 7, title, "title", isWide ? "start" : "end");
    const groups = this.#choice(left, right, yOf);
    this.choices = groups.filter((_, nth) => lines[nth].kind === "key");
    const last = this.layout.placeOf(path.changes.length);
    this.#wire(wireTo(last, { x: left, y: yOf(path.chosen) + LINE_HEIGHT / 2 - 2 }, isWide, top), (progress) =>
      path.hidden ? 0 : arrivalOf(progress("powers")),
    );
    const end = Math.max(largestOf(path.output), ...lines.map(({ part }) => largestOf(part)));
    lines.forEach((line, nth) => {
      this.into = groups[nth]; // a click on any part of a line chooses its word
      const y = yOf(nth) + 12;
      const isHidden = line.kind !== "others" && line.score === -Infinity;
      /** @param {Progress} progress */
      const scored = (progress) =>
        done.powers(progress) > nth || (nth === path.chosen && arrivalOf(progress("powers")) === 1);
      const scoreText = isHidden ? "−∞" : written(line.score);
      this.#number(x.score, y, (progress) => (scored(progress) && line.kind !== "others" ? scoreText : ""));
      this.#number(x.power, y, (progress) => (done.powers(progress) > nth ? written(line.power) : ""));
      this.#weight(x.weight, y, (progress) => {
        if (done.shares(progress) <= nth) return null;
        return progress("patch") >= 0.5 || !path.stages.includes("patch") || line.kind === "sink"
          ? shareOrWeight(line)
          : line.share;
      });
      if (line.kind === "sink") return;
      for (let at = 0; at < shownV; at++) {
        /** @param {Progress} progress */
        const colour = (progress) => (done.mixture(progress) > nth ? this.#signed(line.part[at], end) : null);
        this.#cell(x.cells + at * size, yOf(nth), size, colour, () => this.#partText(line, at));
      }
    });
    this.into = this.svg;
    const y = yOf(lines.length) + 6;
    this.#add("path", { d: `M${left} ${y - 4}H${right}`, class: "way" });
    this.#text(x.word, y + 12, "Σ", "symbol");
    /** @param {number[]} list @param {number} count */
    const total = (list, count) => (count ? written(partialSum(list, count)) : "");
    const powers = lines.map(({ power }) => power);
    const weights = lines.map(shareOrWeight);
    this.#number(x.power, y + 12, (progress) => total(powers, done.powers(progress)), "number sum");
    this.#number(
      x.weight,
      y + 12,
      (progress) => {
        const count = done.shares(progress);
        return count ? partialSum(weights, count).toFixed(4) : "";
      },
      "number sum",
    );
    const name = { symbol: data.symbols.output, row: this.#words()[0] };
    for (let at = 0; at < shownV; at++) {
      let value = 0;
      /** @param {Progress} progress */
      const colour = (progress) => {
        const count = done.mixture(progress);
        value = count ? partialOutput(path, count)[at] : 0;
        return count ? this.#signed(value, end) : null;
      };
      const says = () => fill(texts.cell_number, { ...name, column: at + 1, value: written(value) });
      this.#cell(x.cells + at * size, y + 1, size, colour, says);
    }
    if (isWide) this.#text(right + 5, y + 12, data.symbols.output, "symbol");
  }

  /** @param {PathLine} line @param {number} at */
  #partText(line, at) {
    const { texts, layer, data, panel } = this;
    if (line.kind === "others") {
      const row = fill(texts.others, { count: line.keys.length });
      return fill(texts.cell_number, { symbol: texts.column_part, row, column: at + 1, value: written(line.part[at]) });
    }
    const [key] = line.keys;
    const value = inBrackets(layer.vector("v", data.head, key)[at]);
    const names = { key: isolated(panel.keys[key]), column: at + 1, weight: exact(line.weight), v: value };
    return fill(texts.cell_part, { ...names, value: written(line.part[at]) });
  }

  // A weight, on the colour that the scale gives it.
  /** @param {number} x @param {number} y @param {(progress: Progress) => number | null} weightOf */
  #weight(x, y, weightOf) {
    const ground = this.#add("rect", { x: x - 44, y: y - 12, width: 47, height: LINE_HEIGHT - 2, class: "ground" });
    const number = this.#text(x, y, "", "number", "end");
    this.parts.push((progress) => {
      const weight = weightOf(progress);
      const colour = weight === null ? null : shade(this.theme.sequential, weight);
      ground.style.fill = colour ? `rgb(${colour})` : "";
      number.style.fill = colour ? inkOn(colour) : "";
      number.textContent = weight === null ? "" : exact(weight);
    });
  }

  // The words that are looked at, one of them chosen: a group for each line.
  /** @param {number} left @param {number} right @param {(nth: number) => number} yOf */
  #choice(left, right, yOf) {
    const { path, panel, texts } = this;
    const group = this.#add("g", { role: "radiogroup", "aria-label": texts.choose });
    return path.lines.map(({ kind, keys }, nth) => {
      const isChosen = nth === path.chosen;
      const y = yOf(nth);
      const word = kind === "key" ? isolated(panel.keys[keys[0]]) : fill(texts[kind], { count: keys.length });
      const line = makeSvg("g", { class: kind !== "key" ? "rest" : isChosen ? "line chosen" : "line" });
      line.append(
        makeSvg("rect", { x: left, y: y - 1, width: right - left, height: LINE_HEIGHT - 1, rx: 2 }),
        makeSvg("text", { x: left + 4, y: y + 12 }, this.#short(word, this.layout.isWide ? 78 : 62)),
      );
      group.append(line);
      if (kind !== "key") return line;
      const attributes = { role: "radio", "aria-checked": isChosen, "aria-label": word, tabindex: isChosen ? 0 : -1 };
      for (const [name, value] of Object.entries(attributes)) line.setAttribute(name, String(value));
      line.addEventListener("click", () => this.#choose(keys[0]));
      return line;
    });
  }

  /** @param {number} key */
  #choose(key) {
    this.key = key;
    if (this.data.steps) move({ key_token: this.panel.keyNames[key] });
    else this.update();
  }

  // Arrow keys choose among the words.
  /** @param {KeyboardEvent} event */
  #walk(event) {
    /** @type {Record<string, number>} */
    const steps = { ArrowDown: 1, ArrowUp: -1, ArrowRight: 1, ArrowLeft: -1 };
    const by = steps[event.key];
    const at = this.choices.indexOf(/** @type {SVGElement} */ (event.target));
    if (!by || at < 0 || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    event.stopPropagation(); // Streamlit has keys of its own
    const next = Math.min(Math.max(at + by, 0), this.choices.length - 1);
    this.#choose(this.path.lines[next].keys[0]);
    this.choices[this.path.chosen].focus({ preventScroll: true });
  }
}

/** @param {PathLine} line */
const shareOrWeight = ({ kind, share, weight }) => (kind === "sink" ? share : weight);
/** @param {number} value */
const brief = (value) => String(Number(value.toPrecision(3))).replace("-", "−");

/** @param {import("../streamlit/adapter.js").Mounted<PathPage>} mounted */
export default async function ({ data, parentElement }) {
  /** @type {HTMLElement & { turn?: number, picture?: CellPathPicture }} */
  const root = elementIn(parentElement, ".cell-path");
  root.turn = (root.turn ?? 0) + 1;
  const { turn } = root;
  const [bytes] = await Promise.all([arrival(data.name, data.digest), ready]);
  if (root.turn !== turn) return; // another head has come meanwhile
  const [panel] = openPayload(bytes);
  root.picture ??= new CellPathPicture(root, data, panel);
  root.picture.open(data, panel);
  fitHeight(root);
}
