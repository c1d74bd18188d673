// One line of text with arcs above it.

import { fit } from "../page/elements.js";
import { measured } from "../page/saving.js";
import { isRtl, short } from "../page/wording.js";
import { meanAcross, strongest } from "../scene/focus.js";
import { arc } from "./curves.js";
import { Curved, ROW, SCENE_TOKENS } from "./drawing.js";

const NUMBER_WIDTH = 34; // pixels

export class Arcs extends Curved {
  sides = ["token"];

  get isAcross() {
    return true;
  }

  draw() {
    const { panel, stage } = this;
    const textWidth = measured(`14.4px ${this.theme.font}`);
    this.width = stage.clientWidth;
    let x = 12;
    this.places = panel.tokens.map((token) => {
      const size = Math.max(textWidth(token) + 16, NUMBER_WIDTH);
      x += size;
      return { x: x - size, size };
    });
    this.total = x + 12;
    this.rtl = isRtl(panel.tokens);
    if (this.rtl) for (const place of this.places) place.x = this.total - place.x - place.size;
    this.tall = Math.min(220, 40 + 0.45 * this.total);
    this.scroll.style.height = `${this.tall + ROW * 2 + 16}px`;
    this.long.style.width = `${Math.max(this.total, this.width)}px`;
    this.long.style.height = `${this.tall + ROW * 2}px`;
    fit(this.canvas, this.width, this.tall);
    for (const element of this.shown.values()) element.remove();
    this.shown.clear();
    this.update();
  }

  range() {
    const inside = ({ x, size }) => x + size > this.scroll.scrollLeft && x < this.scroll.scrollLeft + this.width;
    const from = this.places.findIndex(inside);
    const to = this.places.findLastIndex(inside);
    return from < 0 ? [0, 0] : [from, to + 1];
  }

  // Tokens that are not wholly in sight on the left and on the right.
  beyond() {
    const [start, end] = [this.scroll.scrollLeft, this.scroll.scrollLeft + this.width];
    const [left, right] = [
      this.places.filter(({ x }) => x < start - 1),
      this.places.filter(({ x, size }) => x + size > end + 1),
    ];
    return [left.length, right.length];
  }

  put(element, _, at) {
    const { x, size } = this.places[at];
    for (const [name, value] of Object.entries({ left: x, width: size, top: this.tall }))
      element.style[name] = `${value}px`;
  }

  // One number has room below a word, the mean where several heads are on.
  numbersOf(focus) {
    const { selection, panel } = this;
    const head = selection.heads.length === 1 ? selection.heads[0] : null;
    return [{ head, values: meanAcross(selection.layer(panel), selection.heads, focus) }];
  }

  curvesOf(from, to, x, y) {
    const { heads } = this.selection;
    const gap = Math.min(3, 12 / heads.length);
    const middle = (at) => this.places[at].x + this.places[at].size / 2 - this.scroll.scrollLeft + x;
    return this.lines(from, to).map((line) => {
      const aside = (heads.indexOf(line.head) - (heads.length - 1) / 2) * gap * Math.sign(line.key - line.query || 1);
      const [start, end] = [middle(line.query) - aside, middle(line.key) + aside]; // one inside the other
      return { ...line, points: arc(start, end, this.tall - 2 + y, this.tall - 12 + aside) };
    });
  }

  // A token in the middle of what is in sight, or, where both fit, between it and what it looks at most.
  centre(at) {
    const { selection, panel } = this;
    const focus = selection.of(panel).pinned;
    const weights = focus?.tokens.length ? meanAcross(selection.layer(panel), selection.heads, focus) : [];
    const [largest = at] = strongest(weights, {
      threshold: Number.MIN_VALUE,
      count: 1,
      hidden: selection.hidden(panel).key,
    });
    const ends = (tokens) => {
      const places = tokens.map((token) => this.places[token]);
      return [Math.min(...places.map(({ x }) => x)), Math.max(...places.map(({ x, size }) => x + size))];
    };
    const both = ends([at, largest]);
    const [left, right] = both[1] - both[0] <= this.width - 24 ? both : ends([at]);
    this.scroll.scrollLeft = (left + right - this.width) / 2;
  }

  reveal(at) {
    const { x, size } = this.places[at];
    if (x < this.scroll.scrollLeft) this.scroll.scrollLeft = x - 12;
    if (x + size > this.scroll.scrollLeft + this.width) this.scroll.scrollLeft = x + size - this.width + 12;
  }

  scene() {
    const { selection, panel } = this;
    const length = Math.min(panel.tokens.length, SCENE_TOKENS);
    const { focus } = selection.of(panel);
    const numbers = focus ? this.numbersOf(focus) : [];
    return {
      width: this.total,
      height: this.tall + ROW * 2,
      curves: this.curvesOf(0, length, this.scroll.scrollLeft, 0),
      labels: panel.tokens.slice(0, length).flatMap((text, at) => {
        const x = this.places[at].x + this.places[at].size / 2;
        const value = Math.max(0, ...numbers.map(({ values }) => values[at]));
        const under = value >= selection.threshold ? short(value) : "";
        return [
          { text, unknown: panel.unknown.query.has(at), x, y: this.tall + 12, anchor: "middle" },
          ...(under ? [{ note: under, text: "", x, y: this.tall + 30, anchor: "middle" }] : []),
        ];
      }),
    };
  }
}
