// Numbers as coloured cells on a canvas, with the tokens of its rows and columns where there is room for them.
import { HIDDEN_COLOUR, inkOn, pixelOf, shade } from "./colours.js";
import { make } from "./elements.js";

/**
 * One matrix. `rows` and `columns` are the names of its rows and columns.
 * @typedef {object} Numbers
 * @property {string[]} rows
 * @property {string[]} columns
 * @property {Float32Array} values row by row, NaN where a mask hides the cell
 * @property {boolean} signed whether its colours run from −end to end instead of from 0
 * @property {number} end the value at which the colours end
 * @property {[number, number]} [framed] columns from the first to before the second, in a frame
 * @property {boolean} [roots] colours follow the square root: in a long text most weights are small
 * @property {number[]} [untrained] rows that training gave no meaning: their margin is striped, their names are dim
 */

/**
 * How a heatmap looks on the page.
 * @typedef {object} Look
 * @property {import("./colours.js").Colour[]} sequential
 * @property {import("./colours.js").Colour[]} diverging
 * @property {string} ink
 * @property {string} accent
 * @property {string} font
 */

/** @typedef {{ rows: number[], columns: number[], cell: { row: number, column: number } | null }} Marks */

const NAME_ROOM = 14; // pixels that a cell needs for its name to stand beside it
const NAME_SIZE = 12; // of its letters
const SLANT = -Math.PI / 2.6; // of the names of columns
const ABOVE_NUMBERS = 20; // pixels above columns that have numbers for names: these stand upright
const NUMBER_ROOM = 34; // and for its number to stand inside
const STRIPES = 5; // pixels of the striped margin
const NAME_GAP = 8; // between a name and its row
const FRAME_ROOM = 2; // around cells, for the frames of the last ones
const LONGEST_NAME = 80; // of the letters of a name

/**
 * The colour of a value: red, green, blue, opacity.
 * @param {Numbers} numbers
 * @param {Look} look
 */
export function cellColour(numbers, look, value) {
  if (Number.isNaN(value)) return HIDDEN_COLOUR;
  return [...shade(numbers.signed ? look.diverging : look.sequential, shareOf(numbers, value)), 255];
}

/**
 * How far along its scale a value is, 0 to 1.
 * @param {Pick<Numbers, "signed" | "end" | "roots">} numbers
 */
function shareOf({ signed, end, roots }, value) {
  const share = end ? value / end : 0 * value;
  if (signed) return (share + 1) / 2;
  return roots ? Math.sqrt(share) : share;
}

export class Heatmap {
  /** @type {Numbers | null} */
  numbers = null;
  /** @type {HTMLCanvasElement | null} one pixel for each cell */
  picture = null;
  named = false;
  /** pixels beside the cells */
  left = 0;
  above = 0;
  /** and of the cells */
  width = 0;
  height = 0;

  constructor() {
    this.canvas = make("canvas", "heatmap");
    this.canvas.setAttribute("aria-hidden", "true");
  }

  /**
   * Other numbers, to be drawn in so many pixels; `named` writes the names of rows and columns beside them, at least
   * `above` pixels of them above.
   * @param {Numbers} numbers
   * @param {Look} look
   */
  show(numbers, look, width, height, named, above = 0) {
    this.numbers = numbers;
    this.named = named;
    const stripes = numbers.untrained?.length ? STRIPES : 0;
    const right = named ? rightOfNames(numbers, look) : 0;
    this.left = (named ? widestName(numbers.rows, look) + NAME_GAP : 0) + stripes;
    this.above = named ? Math.max(above, namesAbove(numbers, look)) : 0;
    this.width = width - this.left - right;
    this.height = height - this.above - (named ? FRAME_ROOM : 0);
    this.picture = pixels(numbers, look);
    const ratio = window.devicePixelRatio || 1;
    Object.assign(this.canvas, { width: Math.round(width * ratio), height: Math.round(height * ratio) });
    Object.assign(this.canvas.style, { width: `${width}px`, height: `${height}px` });
    this.canvas.getContext("2d").setTransform(ratio, 0, 0, ratio, 0, 0);
  }

  /**
   * Numbers with their names, as large as there is room and no cell larger than it need be.
   * @param {Numbers} numbers
   * @param {Look} look
   * @param {number} room pixels from side to side
   * @param {number} tall and of all rows
   * @param {{ width: number, height: number }} cell pixels of the largest cell
   */
  fit(numbers, look, room, tall, cell) {
    const beside = widestName(numbers.rows, look) + NAME_GAP + STRIPES + rightOfNames(numbers, look);
    const width = Math.min(room, beside + numbers.columns.length * cell.width);
    const height = Math.min(tall, numbers.rows.length * cell.height) + namesAbove(numbers, look) + FRAME_ROOM;
    this.show(numbers, look, width, height, true);
  }

  get cellWidth() {
    return this.width / this.numbers.columns.length;
  }

  get cellHeight() {
    return this.height / this.numbers.rows.length;
  }

  /**
   * The cell at a place of the window, null beside the cells.
   * @param {{ clientX: number, clientY: number }} place
   */
  at({ clientX, clientY }) {
    if (!this.numbers) return null;
    const box = this.canvas.getBoundingClientRect();
    const column = Math.floor((clientX - box.left - this.left) / this.cellWidth);
    const row = Math.floor((clientY - box.top - this.above) / this.cellHeight);
    const inside = row >= 0 && column >= 0 && row < this.numbers.rows.length && column < this.numbers.columns.length;
    return inside ? { row, column } : null;
  }

  value({ row, column }) {
    return this.numbers.values[row * this.numbers.columns.length + column];
  }

  /**
   * Draw the cells, the frames around marked rows and columns, and the names.
   * @param {Look} look
   * @param {Marks} marks
   */
  paint(look, marks) {
    const context = this.canvas.getContext("2d");
    context.clearRect(0, 0, this.canvas.width, this.canvas.height);
    context.imageSmoothingEnabled = false;
    context.drawImage(this.picture, this.left, this.above, this.width, this.height);
    for (const row of this.numbers.untrained ?? []) drawStripes(this, context, look, row);
    if (this.named) writeValues(this, context, look);
    drawMarks(this, context, look, marks);
    if (this.named) writeNames(this, context, look, marks);
  }
}

/** @param {Numbers} numbers */
function pixels(numbers, look) {
  const picture = make("canvas");
  Object.assign(picture, { width: numbers.columns.length, height: numbers.rows.length });
  putPixels(picture.getContext("2d"), numbers, look, numbers.columns.length);
  return picture;
}

/**
 * Numbers as pixels, one each, in rows of so many, with their first at a place of a canvas.
 * @param {CanvasRenderingContext2D} context
 * @param {Pick<Numbers, "values" | "signed" | "end" | "roots">} numbers
 * @param {Pick<Look, "sequential" | "diverging">} look
 */
export function putPixels(context, numbers, look, width, x = 0, y = 0) {
  const { values, signed } = numbers;
  const image = context.createImageData(width, values.length / width);
  const cells = new Uint32Array(image.data.buffer);
  const pixel = pixelOf(signed ? look.diverging : look.sequential);
  for (let at = 0; at < cells.length; at++) cells[at] = pixel(shareOf(numbers, values[at]));
  context.putImageData(image, x, y);
}

/** @param {Heatmap} map */
function writeValues(map, context, look) {
  const { cellWidth, cellHeight, numbers } = map;
  if (cellWidth < NUMBER_ROOM || cellHeight < NAME_ROOM) return;
  context.font = `${Math.min(12, cellHeight * 0.62)}px ${look.font}`;
  context.textAlign = "center";
  context.textBaseline = "middle";
  numbers.rows.forEach((_, row) => {
    numbers.columns.forEach((_, column) => {
      const value = map.value({ row, column });
      if (Number.isNaN(value)) return;
      context.fillStyle = inkOn(cellColour(numbers, look, value).slice(0, 3));
      const text = Math.abs(value) < 0.005 ? "·" : value.toFixed(2); // a dot: a row of 0.00 hides the others
      context.fillText(text, map.left + (column + 0.5) * cellWidth, map.above + (row + 0.5) * cellHeight);
    });
  });
}

/** @param {Heatmap} map */
function drawStripes({ left, above, cellHeight }, context, look, row) {
  const [top, bottom] = [above + row * cellHeight, above + (row + 1) * cellHeight];
  context.save();
  context.beginPath();
  context.rect(left - STRIPES, top, STRIPES - 1, bottom - top);
  context.clip();
  context.strokeStyle = look.ink;
  context.globalAlpha = 0.55;
  context.lineWidth = 1;
  for (let y = top - STRIPES; y < bottom + STRIPES; y += 3) {
    context.beginPath();
    context.moveTo(left - STRIPES, y + STRIPES);
    context.lineTo(left, y);
    context.stroke();
  }
  context.restore();
}

/** @param {Heatmap} map */
function drawMarks(map, context, look, { rows, columns, cell }) {
  const { left, above, cellWidth, cellHeight, width, height } = map;
  const { framed } = map.numbers;
  context.strokeStyle = look.accent;
  context.lineWidth = 2;
  for (const row of rows) context.strokeRect(left + 1, above + row * cellHeight, width - 2, Math.max(cellHeight, 2));
  for (const column of columns)
    context.strokeRect(left + column * cellWidth, above + 1, Math.max(cellWidth, 2), height - 2);
  if (framed) {
    const [from, to] = framed;
    context.strokeRect(left + from * cellWidth, above + 1, (to - from) * cellWidth, height - 2);
  }
  if (!cell) return;
  context.strokeStyle = look.ink;
  context.lineWidth = 1.5;
  const [x, y] = [left + cell.column * cellWidth, above + cell.row * cellHeight];
  context.strokeRect(x, y, Math.max(cellWidth, 3), Math.max(cellHeight, 3));
}

/** @param {Heatmap} map */
function writeNames(map, context, look, marks) {
  const { left, above, cellWidth, cellHeight, numbers } = map;
  context.fillStyle = look.ink;
  context.textBaseline = "middle";
  const write = (name, bold) => {
    context.font = nameFont(look, bold);
    context.fillText(shortenedTo(context, name, LONGEST_NAME), 0, 0);
  };
  const each = (names, size, room = NAME_ROOM) => {
    const every = Math.max(1, Math.ceil(room / size));
    return [...names.entries()].filter(([at]) => at % every === 0);
  };
  for (const [row, name] of each(numbers.rows, cellHeight)) {
    context.save();
    context.textAlign = "right";
    context.translate(left - STRIPES - 3, above + (row + 0.5) * cellHeight);
    context.globalAlpha = numbers.untrained?.includes(row) ? 0.5 : 1;
    write(name, marks.rows.includes(row));
    context.restore();
  }
  const upright = areNumbers(numbers.columns);
  const room = upright ? widestName(numbers.columns.slice(-1), look) + 6 : NAME_ROOM;
  for (const [column, name] of each(numbers.columns, cellWidth, room)) {
    context.save();
    context.textAlign = upright ? "center" : "left";
    context.translate(left + (column + 0.5) * cellWidth, above - (upright ? ABOVE_NUMBERS / 2 : 6));
    if (!upright) context.rotate(SLANT);
    write(name, marks.columns.includes(column));
    context.restore();
  }
}

const nameFont = (look, bold) => `${bold ? 600 : 400} ${NAME_SIZE}px ${look.font}`;
const areNumbers = (names) => names.every((name) => /^\d+$/.test(name));

function widestName(names, look) {
  const context = make("canvas").getContext("2d");
  context.font = nameFont(look, true);
  return Math.min(
    LONGEST_NAME,
    names.reduce((widest, name) => Math.max(widest, context.measureText(name).width), 0),
  );
}

// The pixels that the names of columns take above the cells.
export function namesAbove({ columns }, look) {
  if (areNumbers(columns)) return ABOVE_NUMBERS;
  return widestName(columns, look) * Math.abs(Math.sin(SLANT)) + NAME_SIZE;
}

// And the slanted last ones on their right.
function rightOfNames({ columns }, look) {
  return areNumbers(columns) ? FRAME_ROOM : widestName(columns.slice(-3), look) * Math.cos(SLANT);
}

// The text, cut at its end where it is wider than so many pixels.
export function shortenedTo(context, text, width) {
  if (context.measureText(text).width <= width) return text;
  const characters = [...text];
  while (characters.length && context.measureText(`${characters.join("")}…`).width > width) characters.pop();
  return `${characters.join("")}…`;
}
