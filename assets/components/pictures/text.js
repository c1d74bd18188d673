// The words as running text, each shaded by its weight from 0 to 1. With small weights brought out, the scale ends at the
// largest visible weight of all sentences, so that they can be compared. Where a text looks at another one, both are
// there, the one that looks above; the other one is shaded.

import { listOf } from "../numbers/panel.js";
import { fadeWhereMore, make, required } from "../page/elements.js";
import { SPARE } from "../page/saving.js";
import { isRtl, short } from "../page/wording.js";
import { colourOf, inkOn, lookOf, shade } from "./colours.js";
import { mark, SCENE_TOKENS, strongestOf, tallestOf, tokenElement, tokenOf } from "./drawing.js";

/** @typedef {import("../numbers/panel.js").Panel} Panel */
/** @typedef {import("./drawing.js").Shapes} Shapes */

const TINT = 0.8; // of a head's colour behind a word with the weight 1

/** @param {HTMLElement} element of a token */
const numberOn = (element) => required(element.lastElementChild, "place for a number");

export class ShadedText {
  isStrip = false; // above a drawing that has the numbers
  strongest = 0;
  end = 1; // of the scale
  /** @type {HTMLElement[]} of the tokens */
  elements;

  /** @param {import("./drawing.js").DrawnFrom} from */
  constructor({ selection, theme, panel, stage }) {
    const { texts } = selection.header;
    this.selection = selection;
    this.theme = theme;
    this.panel = panel;
    this.stage = stage;
    /** @type {import("../numbers/panel.js").TokenSide[]} */
    this.sides = panel.two ? ["query", "key"] : ["token"];
    this.prose = this.sides.map((side) => {
      const every = listOf(panel, side);
      const tokens = every.map((_, at) => tokenElement(panel, side, at, texts));
      return Object.assign(make("div", "prose", ...tokens), { dir: isRtl(every) ? "rtl" : "ltr" });
    });
    this.elements = /** @type {HTMLElement[]} */ (this.prose.flatMap((text) => [...text.children]));
    const parts = this.prose.flatMap((text, nth) => {
      const whose = make("p", "whose", nth ? texts.text_key : texts.text_query);
      whose.role = "presentation"; // a list has options alone
      return [panel.two && whose, text];
    });
    this.scroll = make("div", "scroll", ...parts);
    fadeWhereMore(this.scroll);
    this.scroll.tabIndex = -1; // until it is a list of its own
    this.list = this.scroll;
    stage.replaceChildren(this.scroll);
  }

  draw() {
    this.scroll.style.maxHeight = `${tallestOf(this.selection.header)}px`;
    this.update();
  }

  update() {
    const { selection, panel } = this;
    const { focus } = selection.of(panel);
    const { weights, heads } = strongestOf(selection, panel);
    const hidden = selection.hidden(panel)[focus?.side === "key" ? "query" : "key"];
    this.strongest = Math.max(...selection.panels.map((one) => this.largest(one)));
    this.end = (selection.state.fitted && this.strongest) || 1;
    for (const element of this.elements) {
      mark(selection, panel, element);
      const { side, at } = tokenOf(element);
      const answers = focus && side !== focus.side;
      const share = answers && !hidden.has(at) ? Math.min(1, weights[at] / this.end) : 0;
      const colour = this.#colour(heads?.[at] ?? null, share);
      element.style.background = share >= 0.02 ? `rgb(${colour})` : "";
      element.style.color = share >= 0.02 ? inkOn(colour) : "";
      const isWritten = answers && !this.isStrip && weights[at] >= Math.max(selection.threshold, 0.005);
      numberOn(element).textContent = isWritten ? short(weights[at]) : "";
    }
  }

  // The colour of a weight: a tint of its head's colour, or, for the mean of many heads, on the scale of weights.
  /** @param {number | null} head @param {number} share @param {import("./theme.js").Theme} theme */
  #colour(head, share, { palette, paper, sequential } = this.theme) {
    if (head === null) return shade(sequential, share);
    return shade([colourOf(paper), colourOf(lookOf(palette, head).colour)], TINT * share);
  }

  // The largest weight of those that answer in a sentence and are not hidden.
  /** @param {Panel} panel */
  largest(panel) {
    const { focus } = this.selection.of(panel);
    const hidden = this.selection.hidden(panel)[focus?.side === "key" ? "query" : "key"];
    return Math.max(0, ...strongestOf(this.selection, panel).weights.filter((_, at) => !hidden.has(at)));
  }

  paint() {}

  hit = () => null;

  // The element of a token on the side where the keyboard is.
  /** @param {number} at */
  element(at) {
    const side = this.selection.active(this.panel)?.side ?? "query";
    const nth = Math.max(0, this.sides.indexOf(side));
    const { children } = this.prose[nth];
    return /** @type {HTMLElement} */ (children[Math.min(at, children.length - 1)]);
  }

  // A token that is not in sight comes to its middle.
  /** @param {number} at */
  show(at) {
    const { offsetTop, offsetHeight } = this.element(at);
    const { scrollTop, clientHeight } = this.scroll;
    const isInSight = offsetTop >= scrollTop && offsetTop + offsetHeight <= scrollTop + clientHeight;
    if (!isInSight) this.scroll.scrollTop = offsetTop - clientHeight / 2;
  }

  /** @param {number} at */
  reveal(at) {
    this.element(at).scrollIntoView({ block: "nearest", inline: "nearest" });
  }

  // As it stands here, with as much room from side to side as its words need where their font is missing.
  /** @param {import("./theme.js").Theme} theme @returns {Shapes} */
  scene(theme) {
    const box = this.scroll.getBoundingClientRect();
    const { weights, heads } = strongestOf(this.selection, this.panel);
    /** @type {NonNullable<Shapes["rectangles"]>} */
    const rectangles = [];
    /** @type {Shapes["labels"]} */
    const labels = [];
    let right = 0;
    this.elements.slice(0, SCENE_TOKENS).forEach((element) => {
      const { side, at } = tokenOf(element);
      const own = element.getBoundingClientRect();
      const [x, y] = [SPARE * (own.left - box.left), own.top - box.top + this.scroll.scrollTop];
      const [width, height] = [SPARE * own.width, own.height];
      right = Math.max(right, x + width);
      const share = Math.min(1, weights[at] / this.end);
      const colour = element.style.background ? this.#colour(heads?.[at] ?? null, share, theme) : null;
      const stroke = element.classList.contains("focus") ? theme.accent : "none";
      if (colour || stroke !== "none")
        rectangles.push({ x, y, width, height, fill: colour ? `rgb(${colour})` : "none", stroke });
      const fill = colour ? inkOn(colour) : undefined;
      const text = listOf(this.panel, side)[at];
      labels.push({ text, x: x + width / 2, y: y + 13, anchor: "middle", fill });
      const note = numberOn(element).textContent;
      if (note)
        labels.push({ text: "", notes: [{ text: note }], x: x + width / 2, y: y + height - 8, anchor: "middle", fill });
    });
    return { width: right, height: this.scroll.scrollHeight, curves: [], rectangles, labels };
  }
}
