// Numbers as coloured cells on a canvas, from all of them at once to single cells, with the tokens of rows and columns
// where there is room.

import { fit, make, penOf, required } from "../page/elements.js";
import { measured, shortenedTo } from "../page/saving.js";
import { fill, paragraph, short } from "../page/wording.js";
import { HIDDEN_COLOUR, inkOn, pixelOf, shade } from "./colours.js";
import { SvgPen } from "./svg_pen.js";
import { Tiles } from "./tiles.js";
import { Viewport } from "./viewport.js";

/**
 * One matrix. `rows` and `columns` are the names of its rows and columns.
 * @typedef {object} Numbers
 * @property {string[]} rows
 * @property {string[]} columns
 * @property {Float32Array} values row by row, NaN where a mask hides the cell; none of them: nothing is drawn
 * @property {number} [step] of a long text: one of the values is the largest of a block of step × step cells,
 * @property {(row: number, column: number) => number} [exact] this is the value of one of them,
 * @property {(row: number, column: number) => number} [sum] and this the sum of the block around it, where it is known
 * @property {boolean} signed whether its colours run from −end to end instead of from 0
 * @property {number} end the value at which the colours end
 * @property {[number, number]} [framed] columns from the first to before the second, in a frame
 * @property {boolean} [roots] colours follow the square root: in a long text most weights are small
 * @property {number[]} [dim] rows whose names are dim
 * @property {Unknown} [unknown] names with a dotted line below
 */

/** @typedef {import("./theme.js").Theme} Theme */
/** @typedef {{ rows: number[], columns: number[] }} Unknown words outside a vocabulary */
/** @typedef {{ row: number, column: number }} Cell */
/** @typedef {{ rows: number[], columns: number[], cell: Cell | null, area?: { from: Cell, to: Cell } | null }} Marks */

const MAX_VECTORS = 4096; // cells in a file: more of them are one picture of pixels
const FINE = 4; // pixels of that picture for each on screen
const NAME_ROOM = 14; // pixels that a cell needs for its name to stand beside it
const NAME_SIZE = 12; // pixels of the letters of a name
const SLANT = -Math.PI / 2.6; // of the names of columns
const ABOVE_NUMBERS = 20; // pixels above columns that have numbers for names: these stand upright
const LETTER_ROOM = 8.5; // pixels that a cell needs for each letter of the number inside it
const NAME_GAP = 8; // between a name and its row
const THIN = 8; // pixels of a row or column whose frame leaves all of it to be seen
const FRAME_ROOM = 2; // around cells, for the frames of the last ones
const LONGEST_NAME = 96; // pixels of a name; a longer one is cut
const COARSE = 3; // pixels of a block from which on exact tiles are laid over it
const HATCH = 6; // pixels from one line of the hatching to the next
const HATCH_STRENGTH = 0.45;
/** @type {Map<string, CanvasPattern>} by ink and how many pixels a canvas has for each of the page */
const hatchings = new Map();
/** @type {Marks} */
const NONE = { rows: [], columns: [], cell: null };
/** @type {Numbers} */
const NO_NUMBERS = { rows: [], columns: [], values: new Float32Array(0), signed: false, end: 1 };

/**
 * The colour of a value: red, green, blue, opacity.
 * @param {Numbers} numbers
 * @param {Theme} look
 * @param {number} value
 */
export function cellColour(numbers, look, value) {
  if (Number.isNaN(value)) return HIDDEN_COLOUR;
  return [...shade(numbers.signed ? look.diverging : look.sequential, shareOf(numbers, value)), 255];
}

/**
 * How far along its scale a value is, 0 to 1.
 * @param {Pick<Numbers, "signed" | "end" | "roots">} numbers
 * @param {number} value
 */
function shareOf({ signed, end, roots }, value) {
  const share = end ? value / end : 0 * value;
  if (signed) return (share + 1) / 2;
  return roots ? Math.sqrt(share) : share;
}

export class Heatmap {
  numbers = NO_NUMBERS;
  look = /** @type {Theme} */ ({}); // as long as there are no numbers
  /** @type {Marks} */
  marks = NONE;
  /** one pixel for each of the values, once they are drawn */
  picture = make("canvas");
  isDrawn = false;
  /** @type {Path2D | null} the cells that a mask hides */
  hidden = null;
  /** @type {Tiles | null} exact cells of a long text where it is zoomed in */
  tiles = null;
  viewport = new Viewport(0, 0, 0);
  named = false;
  /** pixels of all of it */
  width = 0;
  height = 0;
  /** pixels beside the cells */
  left = 0;
  above = 0;
  /** what else follows the zoom */
  moved = () => {};

  constructor() {
    this.canvas = Object.assign(make("canvas", "heatmap"), { ariaHidden: "true" });
  }

  /**
   * Other numbers, to be drawn in so many pixels; `named` writes the names of rows and columns beside them, at least
   * `above` pixels of them above. What is zoomed stays so while as many cells have the same room.
   * @param {Numbers} numbers
   * @param {Theme} look
   * @param {number} width
   * @param {number} height
   * @param {boolean} named
   * @param {number} above
   */
  show(numbers, look, width, height, named, above = 0) {
    const { rows, columns } = numbers;
    const margins = named ? marginsOf(numbers, look) : { left: 0, right: 0, above: 0 };
    this.look = look;
    this.replace(numbers);
    this.named = named;
    this.left = margins.left;
    this.above = Math.max(named ? above : 0, margins.above);
    const [wide, high] = [width - this.left - margins.right, height - this.above - (named ? FRAME_ROOM : 0)];
    const tall = high / rows.length / (wide / columns.length);
    const viewport = new Viewport(columns.length, wide, high, rows.length, tall);
    const sides = /** @type {const} */ (["columns", "rows", "width", "height"]);
    const same = sides.every((side) => this.viewport[side] === viewport[side]);
    if (!same || !this.viewport.zoomed) this.viewport = viewport;
    Object.assign(this, { width, height });
    fit(this.canvas, width, height);
  }

  // Other numbers in the same place.
  /** @param {Numbers} numbers */
  replace(numbers) {
    const width = Math.ceil(numbers.columns.length / (numbers.step ?? 1));
    const tiles = numbers.exact && (numbers.step ?? 1) > 1 ? new Tiles(numbers.exact, () => this.paint()) : null;
    Object.assign(this, { numbers, isDrawn: false, tiles, hidden: hiddenCells(numbers.values, width) });
  }

  /**
   * Numbers with their names, as large as there is room and no cell larger than it need be.
   * @param {Numbers} numbers
   * @param {Theme} look
   * @param {number} room pixels from side to side
   * @param {number} tall and of all rows
   * @param {{ width: number, height: number }} cell pixels of the largest cell
   */
  fit(numbers, look, room, tall, cell) {
    const width = Math.min(room, widthOf(numbers, look, cell.width));
    const height = Math.min(tall, numbers.rows.length * cell.height) + namesAbove(numbers, look) + FRAME_ROOM;
    this.show(numbers, look, width, height, true);
  }

  /**
   * A place of the window as one among the cells.
   * @param {{ clientX: number, clientY: number }} place
   * @returns {[x: number, y: number]}
   */
  inside({ clientX, clientY }) {
    const box = this.canvas.getBoundingClientRect();
    return [clientX - box.left - this.left, clientY - box.top - this.above];
  }

  /**
   * The cell at a place of the window, null beside the cells.
   * @param {{ clientX: number, clientY: number }} place
   */
  at(place) {
    const [x, y] = this.inside(place);
    return this.viewport.at(x, y);
  }

  /** @param {Cell} cell */
  value({ row, column }) {
    const { values, columns, exact } = this.numbers;
    return exact ? exact(row, column) : values[row * columns.length + column];
  }

  // Cells become `by` times as large, and with 0 all are in sight. The middle stays where it is, or the place that is named.
  /** @param {number} by @param {number} x @param {number} y */
  zoom(by, x = this.viewport.width / 2, y = this.viewport.height / 2) {
    if (by) this.viewport.zoom(by, x, y);
    else this.viewport.whole();
    this.canvas.style.touchAction = this.viewport.zoomed ? "none" : "pan-y"; // one finger moves what is zoomed
    this.paint();
  }

  /** @param {number} dx @param {number} dy */
  pan(dx, dy) {
    this.viewport.pan(dx, dy);
    this.paint();
  }

  // Where it is painted next, the cell is in sight.
  /** @param {Cell} cell */
  reveal(cell) {
    if (this.viewport.zoomed) this.viewport.reveal(cell);
  }

  // Draw the cells, the frames around marked rows and columns, and the names.
  paint(marks = this.marks) {
    this.marks = marks;
    const context = penOf(this.canvas);
    context.clearRect(0, 0, this.canvas.width, this.canvas.height);
    if (!this.numbers.values.length) return;
    this.#paintWith(context);
    this.moved();
  }

  /** @param {CanvasRenderingContext2D | SvgPen} context */
  #paintWith(context) {
    context.save();
    context.translate(this.left, this.above);
    context.beginPath();
    context.rect(0, 0, this.viewport.width, this.viewport.height);
    context.clip();
    if (context instanceof SvgPen) printCells(this, context);
    else drawCells(this, context);
    if (this.named) writeValues(this, context);
    drawMarks(this, context);
    context.restore();
    if (this.named) writeNames(this, context);
  }

  /**
   * It is drawn anew for a file, as vectors and without the pointer's cell.
   * @param {Theme} look
   */
  printed(look) {
    const copy = Object.assign(new Heatmap(), this, {
      look,
      marks: { ...this.marks, cell: null },
      picture: make("canvas"),
    });
    copy.replace(this.numbers);
    const pen = new SvgPen();
    if (this.numbers.values.length) copy.#paintWith(pen);
    return pen.root;
  }

  // The scale of the colours, for the legend of a file.
  /** @param {Theme} look @returns {import("../page/saving.js").LegendEntry} */
  legend({ sequential, diverging }) {
    const { end, roots, signed } = this.numbers;
    const colours = signed ? diverging : sequential;
    /** @param {number} share of the scale */
    const at = (share) => shade(colours, roots ? Math.sqrt(share) : share);
    const largest = end.toPrecision(3);
    return { ends: [signed ? `−${largest}` : "0", largest], colours: Array.from({ length: 25 }, (_, n) => at(n / 24)) };
  }

  // Are exact tiles laid over the blocks?
  get closer() {
    return this.tiles !== null && (this.numbers.step ?? 1) * this.viewport.cell > COARSE;
  }

  // A caption on the meaning of the colours and on how to zoom.
  /** @param {Record<string, string>} texts */
  caption(texts) {
    const { step = 1, end, roots, signed } = this.numbers;
    const cells = Math.min(step, this.closer ? poolOf(this.viewport.cell) : step);
    const pooled = cells > 1 && fill(texts.scale_pooled, { cells: `${cells} × ${cells}` });
    const sum = this.marks.cell ? (this.numbers.sum?.(this.marks.cell.row, this.marks.cell.column) ?? NaN) : NaN;
    const summed = pooled && sum >= 0 && fill(texts.scale_sum, { sum: short(sum), cells: `${step} × ${step}` });
    const scale = fill(roots ? texts.scale_roots : texts.scale, { maximum: short(end) });
    const how = matchMedia("(pointer: coarse)").matches ? texts.zoom_touch : texts.zoom_how;
    const hatched = this.hidden && fill(texts.sentence, { words: texts.colours_masked });
    return paragraph([pooled, summed, !signed && scale, hatched, how], texts);
  }
}

/** @param {Heatmap} map @param {CanvasRenderingContext2D} context */
function drawCells(map, context) {
  const { numbers, look } = map;
  const { x, y, cell, high } = map.viewport;
  const { step = 1 } = numbers;
  if (!map.isDrawn) pixels(map.picture, numbers, look, Math.ceil(numbers.columns.length / step));
  map.isDrawn = true;
  const { width, height } = map.picture;
  context.imageSmoothingEnabled = Math.min(cell, high) * step < 1;
  context.drawImage(map.picture, x, y, width * step * cell, height * step * high);
  if (map.hidden) hatch(context, look, map.hidden, [step * cell, 0, 0, step * high, x, y]);
  if (map.closer) drawTiles(map, context);
}

// The cells of so many rows and columns that share a pixel of a tile.
/** @param {number} cell its pixels */
const poolOf = (cell) => 2 ** Math.max(0, Math.floor(Math.log2(1 / cell)));

// Exactly the cells in sight, where they have been computed; the others follow.
/** @param {Heatmap} map @param {CanvasRenderingContext2D} context */
function drawTiles({ tiles, viewport, numbers, look }, context) {
  const { x, y, cell, high, rows, columns } = viewport;
  const all = { rows: viewport.seen("y"), columns: viewport.seen("x"), height: rows, width: columns };
  for (const tile of required(tiles, "tiles").inSight(all, poolOf(cell))) {
    if (!tile.picture) {
      tile.picture = make("canvas");
      pixels(tile.picture, { ...numbers, values: tile.values }, look, tile.across);
    }
    tile.hidden ??= hiddenCells(tile.values, tile.across) ?? new Path2D();
    const { pool, row, column, across, values } = tile;
    const [left, top] = [x + column * cell, y + row * high];
    const [wide, tall] = [across * pool * cell, (values.length / across) * pool * high];
    context.clearRect(left, top, wide, tall);
    context.imageSmoothingEnabled = false;
    context.drawImage(tile.picture, left, top, wide, tall);
    hatch(context, look, tile.hidden, [pool * cell, 0, 0, pool * high, left, top]);
  }
}

// The cells in sight as rectangles, or, if they are too many, as one picture.
/** @param {Heatmap} map @param {SvgPen} pen */
function printCells(map, pen) {
  const { numbers, look, viewport } = map;
  const { x, y, cell, high, width, height } = viewport;
  const [[left, right], [top, bottom]] = [viewport.seen("x"), viewport.seen("y")];
  if ((right - left) * (bottom - top) > MAX_VECTORS) {
    const canvas = make("canvas");
    fit(canvas, width, height, FINE);
    drawCells(map, penOf(canvas));
    map.tiles?.advance(Number.POSITIVE_INFINITY); // those of the cells that were just drawn
    drawCells(map, penOf(canvas));
    pen.put("image", { href: canvas.toDataURL("image/png"), x: 0, y: 0, width, height });
    return;
  }
  for (let row = top; row < bottom; row++)
    for (let column = left; column < right; column++) {
      const value = map.value({ row, column });
      const [red, green, blue, opacity] = cellColour(numbers, look, value);
      const [across, down] = [x + column * cell, y + row * high];
      Object.assign(pen, { fillStyle: `rgb(${red},${green},${blue})`, globalAlpha: opacity / 255 });
      pen.fillRect(across, down, cell, high);
      pen.globalAlpha = 1;
      if (Number.isNaN(value)) hatchCell(pen, look, [across, down, cell, high]);
    }
}

// The slanted lines of one hidden cell, as vectors.
/** @param {SvgPen} pen @param {Theme} look @param {[number, number, number, number]} place of the cell */
function hatchCell(pen, { ink }, [x, y, width, height]) {
  Object.assign(pen, { strokeStyle: ink, lineWidth: 1, globalAlpha: HATCH_STRENGTH });
  pen.beginPath();
  // They go on from cell to cell: each is x + y = a multiple of HATCH.
  for (let sum = Math.ceil((x + y) / HATCH) * HATCH; sum < x + y + width + height; sum += HATCH) {
    const begin = Math.max(x, sum - y - height);
    const end = Math.min(x + width, sum - y);
    pen.moveTo(begin, sum - begin);
    pen.lineTo(end, sum - end);
  }
  pen.stroke();
  pen.globalAlpha = 1;
}

/**
 * The cells that a mask hides, in rows of so many, each cell 1 wide and 1 high; null for none.
 * @param {Float32Array} values
 * @param {number} width
 */
function hiddenCells(values, width) {
  const path = new Path2D();
  let some = false;
  for (let at = 0; at < values.length; ) {
    if (!Number.isNaN(values[at++])) continue;
    const [row, from] = [Math.floor((at - 1) / width), (at - 1) % width];
    while (at % width && Number.isNaN(values[at])) at++;
    path.rect(from, row, ((at - 1) % width) + 1 - from, 1);
    some = true;
  }
  return some ? path : null;
}

// Slanted lines over hidden cells: in every theme and at every size they are no value near 0.
/**
 * @param {CanvasRenderingContext2D} context
 * @param {Theme} look
 * @param {Path2D} cells
 * @param {number[]} place as of `setTransform`
 */
function hatch(context, { ink }, cells, place) {
  const path = new Path2D();
  path.addPath(cells, new DOMMatrix(place));
  context.fillStyle = hatching(ink, context.getTransform().a);
  context.fill(path);
}

/** @param {string} ink @param {number} ratio */
function hatching(ink, ratio) {
  const name = `${ink} ${ratio}`;
  const known = hatchings.get(name);
  if (known) return known;
  const tile = make("canvas");
  const pen = penOf(tile);
  Object.assign(tile, { width: HATCH * ratio, height: HATCH * ratio });
  pen.scale(ratio, ratio);
  pen.strokeStyle = ink;
  pen.globalAlpha = HATCH_STRENGTH;
  for (const x of [-HATCH, 0, HATCH]) {
    pen.moveTo(x - 1, HATCH + 1);
    pen.lineTo(x + HATCH + 1, -1);
  }
  pen.stroke();
  const pattern = required(pen.createPattern(tile, "repeat"), "pattern");
  pattern.setTransform(new DOMMatrix().scale(1 / ratio));
  hatchings.set(name, pattern);
  return pattern;
}

/** @param {HTMLCanvasElement} picture @param {Numbers} numbers @param {Theme} look @param {number} width */
function pixels(picture, numbers, look, width) {
  const height = numbers.values.length / width;
  if (picture.width !== width || picture.height !== height) Object.assign(picture, { width, height });
  putPixels(penOf(picture), numbers, look, width);
}

/**
 * Numbers as pixels, one each, in rows of so many, with their first at a place of a canvas.
 * @param {CanvasRenderingContext2D} context
 * @param {Pick<Numbers, "values" | "signed" | "end" | "roots">} numbers
 * @param {Theme} look
 * @param {number} width
 * @param {number} x
 * @param {number} y
 */
export function putPixels(context, numbers, look, width, x = 0, y = 0) {
  const { values, signed } = numbers;
  const image = context.createImageData(width, values.length / width);
  const cells = new Uint32Array(image.data.buffer);
  const pixel = pixelOf(signed ? look.diverging : look.sequential);
  for (let at = 0; at < cells.length; at++) cells[at] = pixel(shareOf(numbers, values[at]));
  context.putImageData(image, x, y);
}

// The number of each cell in sight, where there is room for it.
/** @param {Heatmap} map @param {CanvasRenderingContext2D | SvgPen} context */
function writeValues(map, context) {
  const { numbers, look, viewport } = map;
  const { x, y, cell, high } = viewport;
  const letters = (numbers.signed ? -numbers.end : numbers.end).toFixed(2).length;
  if (cell < LETTER_ROOM * letters || high < NAME_ROOM) return;
  context.font = `${Math.min(13, cell / letters / 0.75, high * 0.62)}px ${look.font}`;
  context.textAlign = "center";
  context.textBaseline = "middle";
  const [[left, right], [top, bottom]] = [viewport.seen("x"), viewport.seen("y")];
  for (let row = top; row < bottom; row++)
    for (let column = left; column < right; column++) {
      const value = map.value({ row, column });
      if (Number.isNaN(value)) continue;
      context.fillStyle = inkOn(cellColour(numbers, look, value).slice(0, 3));
      const text = Math.abs(value) < 0.005 ? "·" : value.toFixed(2).replace("-", "−"); // a dot: a row of 0.00 hides the others
      context.fillText(text, x + (column + 0.5) * cell, y + (row + 0.5) * high);
    }
}

/** @param {Heatmap} map @param {CanvasRenderingContext2D | SvgPen} context */
function drawMarks({ marks, look, viewport, named, numbers }, context) {
  const { x, y, cell, high, width, height } = viewport;
  const { rows, columns } = viewport;
  context.strokeStyle = look.accent;
  /** @param {number} size */
  const frame = (size) => {
    context.lineWidth = size < THIN ? 1 : 2;
    return size < THIN ? 0.5 : 0; // beyond the cells
  };
  let out = frame(high);
  for (const row of marks.rows)
    context.strokeRect(x + 1, y + row * high - out, columns * cell - 2, Math.max(high, 2) + 2 * out);
  out = frame(cell);
  for (const column of marks.columns)
    context.strokeRect(x + column * cell - out, y + 1, Math.max(cell, 2) + 2 * out, rows * high - 2);
  context.lineWidth = 2;
  if (numbers.framed) {
    const [from, to] = numbers.framed;
    context.strokeRect(x + from * cell, y + 1, (to - from) * cell, rows * high - 2);
  }
  if (marks.area) {
    const { from: one, to: other } = marks.area;
    const [column, row] = [Math.min(one.column, other.column), Math.min(one.row, other.row)];
    const [wide, tall] = [Math.abs(one.column - other.column) + 1, Math.abs(one.row - other.row) + 1];
    context.strokeRect(x + column * cell, y + row * high, wide * cell, tall * high);
  }
  if (!marks.cell) return;
  const [left, top] = [x + marks.cell.column * cell, y + marks.cell.row * high];
  if (named) {
    context.lineWidth = 1;
    context.globalAlpha = 0.7;
    context.strokeRect(0, top, width, Math.max(high, 1));
    context.strokeRect(left, 0, Math.max(cell, 1), height);
    context.globalAlpha = 1;
  }
  context.strokeStyle = look.ink;
  context.lineWidth = 1.5;
  context.strokeRect(left, top, Math.max(cell, 3), Math.max(high, 3));
}

// Names of rows on the left and of columns above: as many as there is room for.
/** @param {Heatmap} map @param {CanvasRenderingContext2D | SvgPen} context */
function writeNames({ left, above, numbers, look, marks, viewport }, context) {
  const { x, y, cell, high } = viewport;
  context.fillStyle = look.ink;
  context.textBaseline = "middle";
  /** @param {string} name @param {boolean} bold @param {boolean} [dotted] */
  const write = (name, bold, dotted) => {
    context.font = nameFont(look, bold);
    const text = shortenedTo(name, LONGEST_NAME, (one) => context.measureText(one).width);
    context.fillText(text, 0, 0);
    if (dotted) underline(context, context.measureText(text).width, look.ink);
  };
  /** @param {[from: number, to: number]} seen @param {number} size @param {number} room */
  const shown = ([from, to], size, room = NAME_ROOM) => {
    const every = Math.max(1, Math.ceil(room / size));
    const first = Math.ceil(from / every) * every;
    return Array.from({ length: Math.max(0, Math.ceil((to - first) / every)) }, (_, nth) => first + nth * every);
  };
  for (const row of shown(viewport.seen("y"), high)) {
    context.save();
    context.textAlign = "right";
    context.translate(left - NAME_GAP, above + y + (row + 0.5) * high);
    context.globalAlpha = numbers.dim?.includes(row) ? 0.5 : 1;
    write(numbers.rows[row], marks.rows.includes(row), numbers.unknown?.rows.includes(row));
    context.restore();
  }
  const upright = areNumbers(numbers.columns);
  const room = upright ? widestName(numbers.columns.slice(-1), look) + 6 : NAME_ROOM;
  for (const column of shown(viewport.seen("x"), cell, room)) {
    context.save();
    context.textAlign = upright ? "center" : "left";
    context.translate(left + x + (column + 0.5) * cell, above - (upright ? ABOVE_NUMBERS / 2 : 6));
    if (!upright) context.rotate(SLANT);
    write(numbers.columns[column], marks.columns.includes(column), numbers.unknown?.columns.includes(column));
    context.restore();
  }
}

// Dots below a text that has just been written at (0, 0).
/** @param {CanvasRenderingContext2D | SvgPen} context @param {number} width @param {string} ink */
function underline(context, width, ink) {
  /** @type {Partial<Record<CanvasTextAlign, number>>} */
  const begins = { right: -width, center: -width / 2 };
  const from = begins[context.textAlign] ?? 0;
  context.setLineDash([1.5, 2]);
  context.strokeStyle = ink;
  context.lineWidth = 1;
  context.beginPath();
  context.moveTo(from, NAME_SIZE / 2 + 1);
  context.lineTo(from + width, NAME_SIZE / 2 + 1);
  context.stroke();
}

/** @param {Theme} look @param {boolean} bold */
const nameFont = (look, bold) => `${bold ? 600 : 400} ${NAME_SIZE}px ${look.font}`;
/** @param {string[]} names */
const areNumbers = (names) => names.every((name) => /^\d+$/.test(name));

/** @param {string[]} names @param {Theme} look */
function widestName(names, look) {
  const width = measured(nameFont(look, true));
  return Math.min(
    LONGEST_NAME,
    names.reduce((widest, name) => Math.max(widest, width(name)), 0),
  );
}

// The pixels that the names of columns take above the cells.
/** @param {Numbers} numbers @param {Theme} look */
export function namesAbove({ columns }, look) {
  if (areNumbers(columns)) return ABOVE_NUMBERS;
  return widestName(columns, look) * Math.abs(Math.sin(SLANT)) + NAME_SIZE;
}

// The pixels that names take around the cells: on the right the last slanted ones reach over.
/** @param {Numbers} numbers @param {Theme} look */
export function marginsOf(numbers, look) {
  const { rows, columns } = numbers;
  const right = areNumbers(columns) ? FRAME_ROOM : widestName(columns.slice(-3), look) * Math.cos(SLANT);
  return { left: widestName(rows, look) + NAME_GAP, right, above: namesAbove(numbers, look) };
}

// The pixels from side to side of cells that are so wide, with their names.
/** @param {Numbers} numbers @param {Theme} look @param {number} cell */
export function widthOf(numbers, look, cell) {
  const { left, right } = marginsOf(numbers, look);
  return left + right + numbers.columns.length * cell;
}
