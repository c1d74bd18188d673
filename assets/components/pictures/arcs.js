// One line of text with arcs above it.

import { fit } from "../page/elements.js";
import { measured, spacious } from "../page/saving.js";
import { isRtl, short } from "../page/wording.js";
import { meanAcross, strongest } from "../scene/focus.js";
import { arc, point } from "./curves.js";
import { Curved, LABEL, ROW, SCENE_TOKENS, strongestOf } from "./drawing.js";

const MARGIN = 12; // pixels before the first word and after the last
const TALLEST_ARC = 220; // pixels that an arc reaches up at most
// How words stand on their line, the first way in which all have room: pixels of their letters, between two, and of a
// number below. A text that has room in none goes on.
const WAYS = [
  { letters: 14, gap: 16, number: 34 },
  { letters: 14, gap: 10, number: 30 },
  { letters: 12.8, gap: 9, number: 30 },
  { letters: 12, gap: 6, number: 28 },
];

/**
 * Where words of these widths (of letters of 1 pixel) stand, and how tall the arcs above them are.
 * @param {number[]} widths
 * @param {typeof WAYS[0]} way
 * @param {boolean} rtl from right to left
 */
function placed(widths, { letters, gap, number }, rtl) {
  let x = MARGIN;
  const places = widths.map((width) => {
    const size = Math.max(width * letters + gap, number);
    x += size;
    return { x: x - size, size };
  });
  const total = x + MARGIN;
  if (rtl) for (const place of places) place.x = total - place.x - place.size;
  return { places, total, tall: Math.min(TALLEST_ARC, 40 + 0.45 * total) };
}

export class Arcs extends Curved {
  /** @type {import("../numbers/panel.js").TokenSide[]} */
  sides = ["token"];
  line = placed([], WAYS[0], false);
  width = 0; // pixels

  get isAcross() {
    return true;
  }

  /** @param {number} room @param {number} middle */
  draw(room, middle) {
    const { panel, theme } = this;
    this.width = room;
    const widthOf = measured(`100px ${theme.font}`);
    const widths = panel.tokens.map((token) => widthOf(token) / 100);
    const rtl = isRtl(panel.tokens);
    const way = WAYS.find((one) => placed(widths, one, rtl).total <= this.width) ?? WAYS[0];
    this.line = placed(widths, way, rtl);
    if (middle) this.beginAt(this.#beginAround(middle), this.line.total - this.width);
    this.long.style.fontSize = `${way.letters}px`;
    this.scroll.style.height = `${this.line.tall + ROW * 2 + 16}px`;
    this.long.style.width = `${Math.max(this.line.total, this.width)}px`;
    this.long.style.height = `${this.line.tall + ROW * 2}px`;
    fit(this.canvas, this.width, this.line.tall);
    this.layOut();
  }

  range = () => {
    /** @param {{ x: number, size: number }} place */
    const inside = ({ x, size }) => x + size > this.scrolled && x < this.scrolled + this.width;
    const from = this.line.places.findIndex(inside);
    const to = this.line.places.findLastIndex(inside);
    return from < 0 ? [0, 0] : [from, to + 1];
  };

  // Tokens that are not wholly in sight on the left and on the right.
  beyond = () => {
    const [start, end] = [this.scrolled, this.scrolled + this.width];
    const [left, right] = [
      this.line.places.filter(({ x }) => x < start - 1),
      this.line.places.filter(({ x, size }) => x + size > end + 1),
    ];
    return [left.length, right.length];
  };

  /** @param {HTMLElement} element @param {import("../numbers/panel.js").TokenSide} _ @param {number} at */
  put = (element, _, at) => {
    const { x, size } = this.line.places[at];
    for (const [name, value] of Object.entries({ left: x, width: size, top: this.line.tall }))
      element.style.setProperty(name, `${value}px`);
  };

  // One number has room below a word: that of the head with the largest weight there.
  numbersOf() {
    const { selection, panel } = this;
    const { weights, heads } = strongestOf(selection, panel);
    if (!heads) return [{ head: null, values: weights }];
    return selection.heads.map((head) => ({
      head,
      values: weights.map((weight, at) => (heads[at] === head ? weight : 0)),
    }));
  }

  /** @param {number} from @param {number} to @param {number} x @param {number} y */
  curvesOf = (from, to, x, y, { places, tall } = this.line) => {
    const { heads } = this.selection;
    const gap = Math.min(3, 12 / heads.length);
    /** @param {number} at */
    const middle = (at) => places[at].x + places[at].size / 2 - this.scrolled + x;
    return this.lines(from, to).map((line) => {
      const aside = (heads.indexOf(line.head) - (heads.length - 1) / 2) * gap * Math.sign(line.key - line.query || 1);
      const [start, end] = [middle(line.query) - aside, middle(line.key) + aside]; // one inside the other
      return { ...line, points: arc(start, end, tall - 2 + y, tall - 12 + aside) };
    });
  };

  // Where what is in sight begins with a token in its middle, or, where both fit, between it and what it looks at most.
  /** @param {number} at */
  #beginAround(at) {
    const { selection, panel } = this;
    const focus = selection.of(panel).pinned;
    const weights = focus?.tokens.length ? meanAcross(selection.layer(panel), selection.heads, focus) : [];
    const [largest = at] = strongest(weights, {
      threshold: Number.MIN_VALUE,
      count: 1,
      hidden: selection.hidden(panel).key,
    });
    /** @param {number[]} tokens */
    const ends = (tokens) => {
      const places = tokens.map((token) => this.line.places[token]);
      return [Math.min(...places.map(({ x }) => x)), Math.max(...places.map(({ x, size }) => x + size))];
    };
    const both = ends([at, largest]);
    const [left, right] = both[1] - both[0] <= this.width - 24 ? both : ends([at]);
    return (left + right - this.width) / 2;
  }

  /** @param {number} at */
  reveal(at) {
    const { x, size } = this.line.places[at];
    if (x < this.scroll.scrollLeft) this.scroll.scrollLeft = x - 12;
    if (x + size > this.scroll.scrollLeft + this.width) this.scroll.scrollLeft = x + size - this.width + 12;
  }

  /** @param {import("./theme.js").Theme} theme @returns {import("./drawing.js").Shapes} */
  scene(theme) {
    const { selection, panel } = this;
    const length = Math.min(panel.tokens.length, SCENE_TOKENS);
    const tokens = panel.tokens.slice(0, length);
    const { focus } = selection.of(panel);
    const numbers = focus ? this.numbersOf() : [];
    const widthOf = spacious(`${LABEL.word}px ${theme.font}`);
    const widths = tokens.map((token) => widthOf(token) / LABEL.word);
    const line = placed(widths, { ...WAYS[0], letters: LABEL.word }, isRtl(panel.tokens));
    const { places, total } = line;
    // Only as tall as the arcs that there are.
    const curves = this.curvesOf(0, length, this.scrolled, 0, line);
    const peak = curves.reduce((highest, { points }) => Math.min(highest, point(points, 0.5)[1]), line.tall);
    const tall = line.tall - peak + MARGIN;
    return {
      width: total,
      height: tall + ROW * 2,
      curves: this.curvesOf(0, length, this.scrolled, tall - line.tall, line),
      labels: tokens.flatMap((text, at) => {
        const x = places[at].x + places[at].size / 2;
        const notes = numbers
          .filter(({ values }) => values[at] > 0 && values[at] >= selection.threshold)
          .map(({ head, values }) => ({
            text: short(values[at]),
            colour: head === null ? undefined : theme.textColours[head % theme.textColours.length],
          }));
        const bold = focus?.tokens.includes(at);
        return [
          { text, unknown: panel.unknown.query.has(at), bold, x, y: tall + 12, anchor: "middle" },
          ...(notes.length ? [{ notes, text: "", x, y: tall + 30, anchor: "middle" }] : []),
        ];
      }),
      rectangles: tokens.flatMap((_, at) => {
        const { x, size: width } = places[at];
        const frame = { x, y: tall + 1, width, height: ROW, fill: "none", stroke: theme.accent };
        return focus?.tokens.includes(at) ? [frame] : [];
      }),
    };
  }
}
