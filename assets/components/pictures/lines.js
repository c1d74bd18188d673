// Two columns of tokens, those that look and those that are looked at, with lines between them.

import { listOf, longestOf } from "../numbers/panel.js";
import { fit } from "../page/elements.js";
import { measured, SLIDE, spacious } from "../page/saving.js";
import { short } from "../page/wording.js";
import { between } from "./curves.js";
import { Curved, heightInSight, LABEL, ROW, SCENE_TOKENS, seenAt, tallestOf, tokenOf } from "./drawing.js";

/** @typedef {import("../numbers/panel.js").Side} Side */
/** @typedef {import("../numbers/panel.js").TokenSide} TokenSide */
/** @typedef {import("./drawing.js").Shapes} Shapes */

const MAX_BESIDE = 2; // numbers that a token has room for
const BOLD = 1.1; // how much wider a token in focus is
const MAX_WIDTH = { beside: 340, alone: 960 }; // pixels of the lines; a sentence alone has the page
const STEEPEST = 130; // and in a file: shorter ones are too steep
const WORD_MARGIN = 18; // pixels beside the words of a side
const AROUND = 84; // pixels of the words above and below a file, less its margins

export class Lines extends Curved {
  /** @type {Side[]} */
  sides = ["query", "key"];
  // pixels
  height = 0;
  left = 0;
  middle = 0;
  right = 0;

  /** @param {number} width @param {number} middle */
  draw(width, middle) {
    const { selection, panel, stage } = this;
    const [widest, widestKey] = this.sides.map((side) => this.#widest(side));
    const numbers = 52 * Math.min(MAX_BESIDE, Math.max(1, selection.heads.length));
    this.left = Math.min(widest + WORD_MARGIN, 0.32 * width); // its numbers stand where the lines begin
    this.right = Math.min(widestKey + WORD_MARGIN + numbers, 0.48 * width);
    this.middle = Math.max(
      40,
      Math.min(width - this.left - this.right, MAX_WIDTH[selection.panels.length > 1 ? "beside" : "alone"]),
    );
    this.height = heightInSight(longestOf(panel), tallestOf(selection.header));
    if (middle) this.beginAt((middle + 0.5) * ROW - this.height / 2, longestOf(panel) * ROW - this.height);
    this.scroll.style.height = `${this.height}px`;
    this.long.style.height = `${longestOf(panel) * ROW}px`;
    stage.style.setProperty("--middle", `${this.left + this.middle / 2}px`);
    this.canvas.style.marginLeft = `${this.left}px`;
    fit(this.canvas, this.middle, this.height);
    this.layOut();
  }

  // Pixels of the widest token of a side.
  /** @param {Side} side */
  #widest(side) {
    const textWidth = measured(`14px ${this.theme.font}`);
    return listOf(this.panel, side).reduce((widest, token) => Math.max(widest, textWidth(token)), 0) * BOLD;
  }

  range = () => {
    const from = Math.floor(this.scrolled / ROW);
    return [from, from + Math.ceil(this.height / ROW) + 1];
  };

  // Tokens that are not wholly in sight above and below.
  beyond = () => {
    const below = longestOf(this.panel) - Math.floor((this.scrolled + this.height + 1) / ROW);
    return [Math.ceil((this.scrolled - 1) / ROW), below].map((count) => Math.max(0, count));
  };

  /** @param {HTMLElement} element @param {TokenSide} side @param {number} at */
  put = (element, side, at) => {
    const own = side === "query" ? { left: 0, width: this.left } : { left: this.left + this.middle, width: this.right };
    for (const [name, value] of Object.entries({ ...own, top: at * ROW, height: ROW }))
      element.style.setProperty(name, `${value}px`);
  };

  // As in the matrices the names of rows in which no head that is on has anything to find are dim.
  update() {
    super.update();
    const { selection, panel } = this;
    const dim = selection.nothing(panel);
    for (const element of this.shown.values()) {
      const { side, at } = tokenOf(element);
      element.classList.toggle("dim", side === "query" && dim.includes(at));
    }
  }

  /** @param {number} from @param {number} to @param {number} x @param {number} y @param {number} middle */
  curvesOf = (from, to, x, y, middle = this.middle) => {
    const { heads } = this.selection;
    const gap = Math.min(3, 12 / heads.length);
    /** @type {(at: number, head: number) => number} */
    const level = (at, head) =>
      (at + 0.5) * ROW - this.scrolled + y + (heads.indexOf(head) - (heads.length - 1) / 2) * gap;
    return this.lines(from, to).map((line) => ({
      ...line,
      points: between(x, level(line.query, line.head), x + middle, level(line.key, line.head)),
    }));
  };

  /** @param {number} at */
  reveal(at) {
    const [top, { scrollTop }] = [at * ROW, this.scroll];
    if (top < scrollTop) this.scroll.scrollTop = top;
    if (top + ROW > scrollTop + this.height) this.scroll.scrollTop = top + ROW - this.height;
  }

  // As large as its words need where their font is missing; of two sentences both together have the shape of a slide.
  /** @param {import("./theme.js").Theme} theme @returns {Shapes} */
  scene(theme) {
    const { selection, panel } = this;
    const length = Math.min(longestOf(panel), SCENE_TOKENS);
    const { focus } = selection.of(panel);
    const numbers = focus ? this.numbersOf(focus) : [];
    /** @param {number | null} head */
    const named = (head) => (head === null || numbers.length === 1 ? "" : `${head + 1}: `); // colour is not enough
    const { textColours: colours } = theme;
    /** @type {(side: Side, at: number) => import("./drawing.js").Note[]} */
    const notes = (side, at) => {
      const seen = side === focus?.side ? [] : seenAt(numbers, at, selection.threshold);
      return seen.map(({ head, values }) => ({
        text: named(head) + short(values[at]),
        colour: head === null ? undefined : colours[head % colours.length],
      }));
    };
    /** @type {(side: Side, at: number) => boolean} */
    const isAsked = (side, at) => side === focus?.side && focus.tokens.includes(at);
    /** @param {Side} side */
    const every = (side) => Array.from({ length: Math.min(length, listOf(panel, side).length) }, (_, at) => at);
    const [wordWidth, numberWidth] = [LABEL.word, LABEL.number].map((size) => spacious(`${size}px ${theme.font}`));
    /** @param {Side} side */
    const room = (side) =>
      every(side).reduce((most, at) => {
        const beside = notes(side, at).reduce((sum, { text }) => sum + LABEL.gap + numberWidth(text), 0);
        const word = (isAsked(side, at) ? BOLD : 1) * wordWidth(listOf(panel, side)[at]);
        return Math.max(most, word + beside + WORD_MARGIN);
      }, 0);
    const [left, right] = this.sides.map(room);
    const { length: count } = selection.panels;
    const shaped = ((SLIDE.width / SLIDE.height) * (length * ROW + AROUND)) / count - left - right;
    const middle = Math.min(Math.max(shaped, STEEPEST), MAX_WIDTH[count > 1 ? "beside" : "alone"]);
    /** @type {(side: Side, at: number) => import("./drawing.js").Label} */
    const label = (side, at) => {
      const isKey = side === "key";
      return {
        text: listOf(panel, side)[at],
        unknown: panel.unknown[side].has(at),
        bold: isAsked(side, at),
        notes: notes(side, at),
        x: isKey ? left + middle + LABEL.gap : left - LABEL.gap,
        y: (at + 0.5) * ROW,
        anchor: isKey ? "start" : "end",
      };
    };
    const curves = this.curvesOf(0, length, left, this.scrolled, middle);
    return {
      width: left + middle + right,
      height: length * ROW,
      curves: curves.filter(({ query, key }) => query < length && key < length),
      labels: this.sides.flatMap((side) => every(side).map((at) => label(side, at))),
      rectangles: this.sides.flatMap((side) => {
        const place = side === "key" ? { x: left + middle, width: right } : { x: 0, width: left };
        const frame = { ...place, height: ROW, fill: "none", stroke: theme.accent };
        return every(side).flatMap((at) => (isAsked(side, at) ? [{ ...frame, y: at * ROW }] : []));
      }),
    };
  }
}
