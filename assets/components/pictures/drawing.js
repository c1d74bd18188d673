// The common parts of all drawings of a sentence: tokens, the numbers beside them, and canvases that scroll.
//
// A drawing is given the panel, the selection (which heads are on, what is looked at) and the theme. It has three
// methods: `draw` draws it from scratch, `update` when only the focus has moved, and `scene` returns all of it as shapes
// to save, in the theme of the file. Only the visible part is made, so a text may have thousands of tokens.

import { listOf, longestOf } from "../numbers/panel.js";
import { make, makeButton, penOf, write } from "../page/elements.js";
import { drawnAs, exact, fill, isolated, short } from "../page/wording.js";
import { across, linesOf, MAX_NUMBERS, meanAcross } from "../scene/focus.js";
import { drawCurves, under } from "./curves.js";

export const ROW = 22; // pixels from one token to the next
export const LONG = 48; // tokens: a text with more is long
const TALLEST = { alone: 600, above: 320 }; // pixels of a drawing, then it scrolls: alone, or above matrices
export const SCENE_TOKENS = 1000; // in a saved figure
export const LABEL = { word: 14, number: 11, gap: 8 }; // pixels there, of letters and between them
const OVERSCAN = 8; // tokens beyond what is in sight
const LINES_OF_ALL = 5; // for each token and head, when a long text is drawn without a focus
const STRONG = 0.1; // a weight from which on its token is written in bold
const FEW_LETTERS = 3; // of a token that is never shortened
const FURTHER = 0.8; // of what is in sight: how far a press on "12 more" scrolls

/** @typedef {import("../numbers/panel.js").Panel} Panel */
/** @typedef {import("../numbers/panel.js").TokenSide} TokenSide */
/** @typedef {import("./curves.js").Curve} Curve */
/** @typedef {import("../scene/focus.js").Focus} Focus */
/** @typedef {import("../view/selection.js").Selection} Selection */
/** @typedef {{ text: string, colour?: string }} Note a number beside a word */
/**
 * @typedef {{ text: string, unknown?: boolean, bold?: boolean, notes?: Note[], x: number, y: number, anchor: string,
 *   fill?: string }} Label
 */

/** @typedef {{ head: number | null, values: Float32Array }} HeadNumbers of every token, null for the mean of heads */

/**
 * A line, or a cell of a matrix, under the pointer between tokens.
 * @typedef {{ head: number | null, query: number, key: number, weight: number, hidden?: boolean }} Hit
 */

/**
 * The parts from which a drawing is made.
 * @typedef {{ selection: Selection, theme: import("./theme.js").Theme, panel: Panel, stage: HTMLElement }} DrawnFrom
 */

/**
 * One sentence drawn with its weights: by lines, as shaded text, by arcs, as a matrix.
 * @typedef {object} SentenceDrawing
 * @property {HTMLElement} list its tokens, to the keyboard and to screen readers
 * @property {number} strongest weight of those in sight
 * @property {(room: number, middle: number) => void} draw from scratch, in so many pixels from side to side, with this
 *   token in the middle of what is in sight; 0: what was in sight
 * @property {() => void} update when the focus alone has moved
 * @property {(theme: import("./theme.js").Theme) => Shapes} scene all of it, in the theme of the file
 * @property {(event: MouseEvent) => Hit | null} hit
 * @property {(at: number) => void} reveal
 * @property {(at: number) => void} [show] a token that is not in sight
 * @property {() => void} [settle] scroll to where `draw` began, once it is laid out
 * @property {(marked?: Curve | null) => void} paint with one of its lines marked
 * @property {Curve[]} [curves]
 * @property {(cell: import("./heatmap.js").Cell | null) => void} [mark] a cell under the pointer
 * @property {() => void} [nextPeak] to the next strongest cell of the chosen word
 * @property {import("./heatmap.js").Heatmap} [map]
 */

/**
 * A drawing as shapes, to be saved.
 * @typedef {object} Shapes
 * @property {number} width
 * @property {number} height
 * @property {Curve[]} curves
 * @property {Label[]} labels
 * @property {{ x: number, y: number, width: number, height: number, fill: string, stroke?: string }[]} [rectangles]
 * @property {SVGElement} [map]
 */

/** @param {import("../view/head_view.js").Header} header */
export const tallestOf = ({ matrices }) => (matrices ? TALLEST.above : TALLEST.alone);

// Pixels of so many rows, or the most that there may be; one word alone is not left out, since “1 more” takes its room.
/** @param {number} rows @param {number} most */
export const heightInSight = (rows, most) => (rows * ROW < most + ROW ? rows * ROW : most);

/** @param {Panel} panel @param {TokenSide} side @param {number} at @param {Record<string, string>} texts */
export function tokenElement(panel, side, at, texts) {
  const every = listOf(panel, side);
  const text = every[at];
  const word = make("bdi", [...text].length <= FEW_LETTERS ? "whole" : "", text);
  const element = make("div", `token ${side}`, word, make("span", "numbers"));
  Object.assign(element.dataset, { side, at });
  if (panel.unknown[side === "key" ? "key" : "query"].has(at)) {
    element.classList.add("unknown");
    element.title = fill(texts.unknown, { token: isolated(text) });
  }
  const place = { ariaPosInSet: String(at + 1), ariaSetSize: String(every.length) };
  return Object.assign(element, { id: `${panel.id}-${side}-${at}`, lang: drawnAs(text), role: "option", ...place });
}

/**
 * The token that an element stands for.
 * @param {HTMLElement} element
 */
export const tokenOf = ({ dataset }) => ({ side: /** @type {TokenSide} */ (dataset.side), at: Number(dataset.at) });

// The weights of a token from a threshold on, the largest first: where not all have room, the smallest are left out.
/** @param {HeadNumbers[]} numbers @param {number} at @param {number} threshold */
export const seenAt = (numbers, at, threshold) =>
  numbers.filter(({ values }) => values[at] >= threshold).sort((one, other) => other.values[at] - one.values[at]);

// The weight's own figures beside a token: each head's, named where there are several, or the mean.
/**
 * @param {HTMLElement} element
 * @param {HeadNumbers[]} weights
 * @param {number} threshold
 * @param {string[]} textColours of heads
 */
function putNumbers(element, weights, threshold, textColours) {
  const { at } = tokenOf(element);
  const { length } = weights;
  element.lastElementChild?.replaceChildren(
    ...seenAt(weights, at, threshold).map(({ head, values }) => {
      const number = make("i", "", short(values[at]));
      if (head !== null) number.style.color = textColours[head % textColours.length];
      if (head !== null && length > 1) number.prepend(make("sub", "", String(head + 1)));
      return number;
    }),
  );
  element.classList.toggle(
    "strong",
    weights.some(({ values }) => values[at] >= STRONG),
  );
}

// The weight that is drawn as 1 would be, where small weights are brought out.
/** @param {Selection} selection @param {{ strongest: number }} drawing */
export function broughtOut({ header, state }, { strongest }) {
  return state.fitted && strongest > 0 ? fill(header.texts.brought_out, { weight: exact(strongest) }) : "";
}

// One weight for each token that answers: of a few heads the largest, and whose it is; of many their mean.
/** @param {Selection} selection @param {Panel} panel @returns {{ weights: Float32Array, heads: number[] | null }} */
export function strongestOf(selection, panel) {
  const { focus } = selection.of(panel);
  const { heads } = selection;
  if (!focus) return { weights: new Float32Array(longestOf(panel)), heads: null };
  const layer = selection.layer(panel);
  if (!heads.length || heads.length > MAX_NUMBERS) return { weights: meanAcross(layer, heads, focus), heads: null };
  const rows = heads.map((head) => across(layer, head, focus));
  const best = Array.from(rows[0], (_, at) =>
    rows.reduce((most, row, nth) => (row[at] > rows[most][at] ? nth : most), 0),
  );
  return { weights: Float32Array.from(best, (nth, at) => rows[nth][at]), heads: best.map((nth) => heads[nth]) };
}

/** @param {Selection} selection @param {Panel} panel @param {HTMLElement} element */
export function mark(selection, panel, element) {
  const { side, at } = tokenOf(element);
  const { pinned, focus } = selection.of(panel);
  /** @param {Focus | null} chosen */
  const isIn = (chosen) => Boolean(chosen?.tokens.includes(at) && (side === "token" || side === chosen.side));
  element.classList.toggle("focus", isIn(focus));
  element.ariaSelected = String(isIn(pinned));
  element.classList.toggle("away", selection.hidden(panel)[side === "key" ? "key" : "query"].has(at));
}

// Does the reader like things to move?
const movesSmoothly = () => matchMedia("(prefers-reduced-motion: no-preference)").matches;

// How much of a text goes on beyond its drawing: "← 12 more" and "23 more →", which a press scrolls to. They
// stand at the beginning and the end of what is in sight; keys and screen readers have the tokens themselves.
class More {
  /**
   * @param {HTMLElement} stage
   * @param {HTMLElement} scroll the box that scrolls
   * @param {boolean} across from left to right
   * @param {Record<string, string>} texts
   */
  constructor(stage, scroll, across, texts) {
    /** @type {Record<string, string>} */
    this.words = { left: texts.more_left, right: texts.more_right, up: texts.more_up, down: texts.more_down };
    this.ends = (across ? ["left", "right"] : ["up", "down"]).map((way, nth) => {
      const button = makeButton("", `more ${way}`, (event) => {
        event.stopPropagation(); // not a click on the drawing
        const by = (nth ? FURTHER : -FURTHER) * (across ? scroll.clientWidth : scroll.clientHeight);
        scroll.scrollBy({ [across ? "left" : "top"]: by, behavior: movesSmoothly() ? "smooth" : "auto" });
      });
      stage.append(Object.assign(button, { tabIndex: -1, hidden: true, ariaHidden: "true" }));
      return button;
    });
  }

  // So many tokens are not in sight before and after.
  /** @param {...number} counts */
  show(...counts) {
    this.ends.forEach((button, nth) => {
      const [count, way] = [counts[nth], button.classList[1]];
      button.hidden = !count;
      write(button, count ? fill(this.words[way], { count }) : "");
    });
  }
}

// The base of all drawings with curves: a box that scrolls, a canvas that stays, tokens that come and go.
export class Curved {
  /** @type {Curve[]} */
  curves = [];
  /** @type {Map<string, HTMLElement>} the elements of tokens, by side and position */
  shown = new Map();
  strongest = 0;
  scrolled = 0; // pixels; an element that is asked for them is laid out at once
  /** @type {TokenSide[]} of the tokens: "query" and "key", or "token" for both */
  sides = [];
  // Each drawing with curves has its own of these.
  /** @type {() => number[]} the first token in sight and the one after the last */
  range = () => [];
  /** @type {() => number[]} how many tokens are not wholly in sight before and after */
  beyond = () => [];
  /** @type {(from: number, to: number, x: number, y: number) => Curve[]} of the tokens in sight, moved by (x, y) */
  curvesOf = () => [];
  /** @type {(element: HTMLElement, side: TokenSide, at: number) => void} a token in its place */
  put = () => {};

  /** @param {DrawnFrom} from */
  constructor({ selection, theme, panel, stage }) {
    this.selection = selection;
    this.theme = theme;
    this.texts = selection.header.texts;
    this.panel = panel;
    this.stage = stage;
    this.canvas = Object.assign(make("canvas"), { ariaHidden: "true" });
    this.long = make("div", "long", this.canvas);
    this.scroll = make("div", "scroll", this.long);
    this.list = this.scroll; // of tokens, to the keyboard and to screen readers
    this.scroll.onscroll = () => {
      const now = this.scroll[this.isAcross ? "scrollLeft" : "scrollTop"];
      if (now === this.scrolled) return; // it was drawn there
      this.scrolled = now;
      this.update();
    };
    stage.replaceChildren(this.scroll);
    this.more = new More(stage, this.scroll, this.isAcross, this.texts);
  }

  // Does it scroll from left to right?
  get isAcross() {
    return false;
  }

  // The first pixel in sight of all, at the latest the `last` one at which the end is in sight.
  /** @param {number} place @param {number} last */
  beginAt(place, last) {
    this.scrolled = Math.round(Math.max(0, Math.min(place, last)));
  }

  settle() {
    this.scroll[this.isAcross ? "scrollLeft" : "scrollTop"] = this.scrolled;
  }

  // Tokens that are in sight get an element, the others lose theirs.
  arrange() {
    const { selection, panel } = this;
    /** @type {Map<string, [TokenSide, number]>} */
    const inSight = new Map();
    /** @param {TokenSide} side @param {number} at */
    const add = (side, at) => inSight.set(`${side} ${at}`, [side, at]);
    const [from, to] = this.range();
    for (const side of this.sides)
      for (let at = Math.max(0, from - OVERSCAN); at < Math.min(listOf(panel, side).length, to + OVERSCAN); at++)
        add(side, at);
    const active = selection.active(panel); // a screen reader looks for it wherever it is
    if (active) add(selection.sideOf(active.side), active.token);
    for (const [name, element] of this.shown) {
      if (inSight.has(name)) continue;
      element.remove();
      this.shown.delete(name);
    }
    for (const [name, [side, at]] of inSight) {
      if (this.shown.has(name)) continue;
      const element = tokenElement(panel, side, at, this.texts);
      this.put(element, side, at);
      this.shown.set(name, element);
      this.long.append(element);
    }
  }

  // All tokens anew, in the places that a drawing gives them now.
  layOut() {
    for (const element of this.shown.values()) element.remove();
    this.shown.clear();
    this.update();
  }

  update() {
    const { selection, panel } = this;
    this.arrange();
    const { focus } = selection.of(panel);
    const numbers = focus ? this.numbersOf(focus) : [];
    for (const element of this.shown.values()) {
      mark(selection, panel, element);
      if (focus && tokenOf(element).side !== focus.side)
        putNumbers(element, numbers, selection.threshold, this.theme.textColours);
      else {
        element.lastElementChild?.replaceChildren();
        element.classList.remove("strong");
      }
    }
    const [from, to] = this.range();
    this.more.show(...this.beyond());
    this.curves = this.curvesOf(from, to, 0, 0);
    this.paint();
  }

  /** @param {Curve | null} marked */
  paint(marked = null) {
    const context = penOf(this.canvas);
    context.clearRect(0, 0, this.canvas.width, this.canvas.height);
    drawCurves(context, this.curves, this.theme.palette, marked);
  }

  /** @param {Focus} focus @returns {HeadNumbers[]} */
  numbersOf(focus) {
    const { selection, panel } = this;
    const { heads } = selection;
    const layer = selection.layer(panel);
    if (heads.length > MAX_NUMBERS) return [{ head: null, values: meanAcross(layer, heads, focus) }];
    return heads.map((head) => ({ head, values: across(layer, head, focus) }));
  }

  /** @param {Panel} panel @param {number} from @param {number} to */
  linesIn(panel, from, to) {
    const { selection } = this;
    const { focus } = selection.of(panel);
    const count = selection.state.maxLines || (!focus && longestOf(panel) > LONG ? LINES_OF_ALL : 0);
    const options = { focus, from, to: Math.min(to, panel.tokens.length), threshold: selection.threshold, count };
    return linesOf(selection.layer(panel), selection.heads, { ...options, hidden: selection.hidden(panel) });
  }

  // A weight is drawn as strong as it is. Where small weights are brought out, the strongest in sight is drawn as one
  // of 1 would be, the same in all sentences, since they are there to be compared.
  /** @param {number} from @param {number} to */
  lines(from, to) {
    const lines = this.linesIn(this.panel, from, to);
    const others = this.selection.panels.filter((panel) => panel !== this.panel);
    const every = [lines, ...others.map((panel) => this.linesIn(panel, from, to))];
    this.strongest = every.flat().reduce((largest, { weight }) => Math.max(largest, weight), 0);
    const full = this.selection.state.fitted ? this.strongest : 1;
    return lines.map((line) => ({ ...line, strength: Math.min(1, line.weight / full) }));
  }

  // The curve under a pointer, in the place where the event was.
  /** @param {MouseEvent} event */
  hit(event) {
    const box = this.canvas.getBoundingClientRect();
    return under(this.curves, event.clientX - box.left, event.clientY - box.top);
  }
}
