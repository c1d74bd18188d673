// Two columns of tokens, those who look and those who are looked at, with lines between them.

import { listOf, longestOf } from "../numbers/panel.js";
import { fit } from "../page/elements.js";
import { measured } from "../page/saving.js";
import { short } from "../page/wording.js";
import { between } from "./curves.js";
import { Curved, numbersOf, ROW, SCENE_TOKENS, tallestOf } from "./drawing.js";

const MAX_BESIDE = 2; // numbers that a token has room for
const BOLD = 1.1; // how much wider a token in focus is
const MAX_WIDTH = { beside: 340, alone: 620 }; // pixels of the lines: longer ones are hard to follow

export class Lines extends Curved {
  sides = ["query", "key"];

  draw() {
    const { selection, panel, stage } = this;
    const width = stage.clientWidth;
    const [widest, widestKey] = this.sides.map((side) => this.#widest(side));
    this.numbers = 52 * Math.min(MAX_BESIDE, Math.max(1, selection.heads.length));
    this.left = Math.min(widest + 18 + (panel.two ? this.numbers : 0), (panel.two ? 0.4 : 0.32) * width);
    this.right = Math.min(widestKey + 18 + this.numbers, 0.48 * width);
    this.middle = Math.max(
      40,
      Math.min(width - this.left - this.right, MAX_WIDTH[selection.panels.length > 1 ? "beside" : "alone"]),
    );
    this.height = Math.min(longestOf(panel) * ROW, tallestOf(selection.header));
    this.scroll.style.height = `${this.height}px`;
    this.long.style.height = `${longestOf(panel) * ROW}px`;
    stage.style.setProperty("--middle", `${this.left + this.middle / 2}px`);
    this.canvas.style.marginLeft = `${this.left}px`;
    fit(this.canvas, this.middle, this.height);
    for (const element of this.shown.values()) element.remove();
    this.shown.clear();
    this.update();
  }

  // Pixels of the widest token of a side.
  #widest(side) {
    const textWidth = measured(`14.4px ${this.theme.font}`);
    return listOf(this.panel, side).reduce((widest, token) => Math.max(widest, textWidth(token)), 0) * BOLD;
  }

  range() {
    const from = Math.floor(this.scroll.scrollTop / ROW);
    return [from, from + Math.ceil(this.height / ROW) + 1];
  }

  // Tokens that are not wholly in sight above and below.
  beyond() {
    const { scrollTop } = this.scroll;
    const below = longestOf(this.panel) - Math.floor((scrollTop + this.height + 1) / ROW);
    return [Math.ceil((scrollTop - 1) / ROW), below].map((count) => Math.max(0, count));
  }

  put(element, side, at) {
    const own = side === "query" ? { left: 0, width: this.left } : { left: this.left + this.middle, width: this.right };
    for (const [name, value] of Object.entries({ ...own, top: at * ROW, height: ROW }))
      element.style[name] = `${value}px`;
  }

  // As in the matrices the names of rows in which no head that is on has anything to find are dim.
  update() {
    super.update();
    const { selection, panel } = this;
    const dim = selection.nothing(panel);
    for (const element of this.shown.values())
      element.classList.toggle("dim", element.dataset.side === "query" && dim.includes(Number(element.dataset.at)));
  }

  answers(side, focus) {
    return side !== focus.side;
  }

  curvesOf(from, to, x, y) {
    const { heads } = this.selection;
    const gap = Math.min(3, 12 / heads.length);
    const level = (at, head) =>
      (at + 0.5) * ROW - this.scroll.scrollTop + y + (heads.indexOf(head) - (heads.length - 1) / 2) * gap;
    return this.lines(from, to).map((line) => ({
      ...line,
      points: between(x, level(line.query, line.head), x + this.middle, level(line.key, line.head)),
    }));
  }

  centre(at) {
    this.scroll.scrollTop = (at + 0.5) * ROW - this.height / 2;
  }

  reveal(at) {
    const [top, { scrollTop }] = [at * ROW, this.scroll];
    if (top < scrollTop) this.scroll.scrollTop = top;
    if (top + ROW > scrollTop + this.height) this.scroll.scrollTop = top + ROW - this.height;
  }

  scene() {
    const { selection, panel } = this;
    const length = Math.min(longestOf(panel), SCENE_TOKENS);
    const { focus } = selection.of(panel);
    const numbers = focus ? numbersOf(selection, panel, focus) : [];
    const room = (side) => this.#widest(side) + 18 + (side === "key" || panel.two ? this.numbers : 0);
    const [left, right] = this.sides.map(room); // nothing is cut off
    const label = (side, at) => {
      const isKey = side === "key";
      const seen =
        focus && side !== focus.side ? numbers.filter(({ values }) => values[at] >= selection.threshold) : [];
      const named = (head) => (head === null || numbers.length === 1 ? "" : `${head + 1}: `); // colour is not enough
      const own = seen.map(({ head, values }) => named(head) + short(values[at])).join("  ");
      const x = isKey ? left + this.middle + 8 : left - 8;
      const unknown = panel.unknown[side].has(at);
      return {
        text: listOf(panel, side)[at],
        unknown,
        note: own,
        x,
        y: (at + 0.5) * ROW,
        anchor: isKey ? "start" : "end",
      };
    };
    const every = (side) => Array.from({ length: Math.min(length, listOf(panel, side).length) }, (_, at) => at);
    return {
      width: left + this.middle + right,
      height: length * ROW,
      curves: this.curvesOf(0, length, left, this.scroll.scrollTop).filter((c) => c.query < length && c.key < length),
      labels: this.sides.flatMap((side) => every(side).map((at) => label(side, at))),
    };
  }
}
