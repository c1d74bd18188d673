// The places and sizes of the drawing of one number's path (cell_path.js).

/** @typedef {import("../numbers/cell_path.js").CellPath} CellPath */
/** @typedef {{ x: number, y: number }} Point */
/** @typedef {ReturnType<typeof layoutOf>} Layout */

export const NUMBER = { least: 11, most: 24, named: 80, height: 15 }; // pixels of a number, and of one with a name
export const LINE_HEIGHT = 18; // from one key to the next
export const SCORE_BOX = { width: 88, height: 28, gap: 22 };
export const ABOVE = 22; // above the first row
const BOX_ROW = 60; // from one row of boxes to the next
export const NAME_WIDTH = 100; // pixels of the name of a vector
const MORE_WIDTH = 34; // and of "+48" behind it
const OUTPUT_WIDTH = 44; // of the name of the output behind its numbers
const TO_TABLE = 70; // between the vectors and the softmax
const WIDE = 760; // pixels in which the softmax has room beside the vectors
const MIN_CELLS = 4;
const BOXES = 4; // beside each other, where the table leaves room

// Are the terms those of keys or heads, and not of dimensions?
/** @param {CellPath["products"]} products */
export const isNamed = ({ name }) => name === "mixture" || name === "heads";

// Places and sizes: the softmax is beside the vectors, on a phone below them. A sum alone has the whole width.
/** @param {CellPath} path @param {number} width */
export function layoutOf({ products, changes, softmax, lines, output }, width) {
  const isWide = width >= WIDE && softmax !== null;
  const [nK, nV] = [products.terms.length, output.length];
  const of = isWide ? { word: 88, score: 64, power: 80, weight: 62 } : { word: 66, score: 54, power: 78, weight: 50 };
  const table = of.word + of.score + of.power + of.weight + (isWide ? 18 : 8);
  const ofOutput = nV ? OUTPUT_WIDTH : 0;
  const before = isWide ? NAME_WIDTH + MORE_WIDTH + TO_TABLE + table + ofOutput : NAME_WIDTH + MORE_WIDTH;
  const room = width - before; // of the numbers of a query, and on a wide screen of a value
  const size = Math.floor(room / (isWide ? nK + nV : nK));
  const most = isNamed(products) ? NUMBER.named : NUMBER.most;
  const number = Math.min(Math.max(size, NUMBER.least), most);
  /** @param {number} count @param {number} space */
  const fitting = (count, space) => Math.min(count, Math.max(MIN_CELLS, Math.floor(space / number)));
  const shownK = fitting(nK, isWide ? Math.max(room / 2, room - nV * number) : room);
  const shownV = fitting(nV, isWide ? room - shownK * number : width - table - 14);
  const [k, sums, boxes] = isWide ? [22, 70, 150] : [20, 58, 120];
  const up = products.factors.length ? 0 : sums; // without factors the terms are the first row
  const rows = { q: ABOVE, k: ABOVE + k, products: ABOVE + sums - up, boxes: ABOVE + boxes - up };
  const begin = width >= WIDE ? NAME_WIDTH : 0;
  const step = SCORE_BOX.width + SCORE_BOX.gap;
  const vectors = NAME_WIDTH + Math.max(shownK * number + MORE_WIDTH, BOXES * step);
  const last = width - ofOutput - table - shownV * number; // where the table ends at the right edge
  const left = isWide ? (nV ? last : Math.min(last, vectors + TO_TABLE)) : 14;
  const right = nV ? width - (isWide ? ofOutput : 0) : left + table;
  const across = Math.max(1, Math.floor(((isWide ? left - TO_TABLE : width) - begin + SCORE_BOX.gap) / step));
  /** @param {number} nth */
  const placeOf = (nth) => ({
    x: begin + (nth % across) * step,
    y: rows.boxes + Math.floor(nth / across) * BOX_ROW,
  });
  const bottom = placeOf(changes.length).y + SCORE_BOX.height + 4;
  const top = isWide ? 0 : bottom + 20;
  const columns = { word: left + 4, score: left + of.word + of.score - 6, power: 0, weight: 0, cells: 0 };
  columns.power = columns.score + of.power;
  columns.weight = columns.power + of.weight;
  columns.cells = columns.weight + (isWide ? 18 : 8);
  const height = softmax ? Math.max(bottom, top + ABOVE + (lines.length + 1) * LINE_HEIGHT + 8) : bottom;
  return { isWide, number, shownK, shownV, rows, placeOf, left, right, top, columns, height };
}

// From the last box to the line of the key.
/**
 * @param {Point} box the upper left corner of the last box
 * @param {Point} to
 * @param {boolean} isWide
 * @param {number} top
 */
export function wireTo({ x, y }, to, isWide, top) {
  if (isWide) {
    const [from, middle] = [x + SCORE_BOX.width, y + SCORE_BOX.height / 2];
    const begin = Math.max(to.x - TO_TABLE, from);
    const half = (begin + to.x) / 2;
    return `M${from} ${middle}H${begin}C${half} ${middle} ${half} ${to.y} ${to.x} ${to.y}`;
  }
  const [from, low] = [x + SCORE_BOX.width / 2, y + SCORE_BOX.height];
  return `M${from} ${low}C${from} ${top} 4 ${low} 4 ${top + ABOVE}V${to.y}H${to.x}`;
}
