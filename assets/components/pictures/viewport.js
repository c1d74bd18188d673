// The visible part of a matrix: positions and sizes, without a canvas.
const MAX_CELL = 72; // pixels a cell

// Where the matrix lies: columns × rows of cells of `cell` × `high` pixels, the first at (x, y) of a view of
// width × height. Cells are `tall` times as high as wide, as far as that is not too much.
export class Viewport {
  x = 0;
  y = 0;

  /** @param {number} columns @param {number} width @param {number} height @param {number} rows @param {number} tall */
  constructor(columns, width, height, rows = columns, tall = 1) {
    this.columns = columns;
    this.rows = rows;
    this.width = width;
    this.height = height;
    this.tall = tall;
    this.minCell = Math.min(width / columns, height / rows / tall);
    this.cell = this.minCell;
  }

  get high() {
    return Math.min(this.cell * this.tall, Math.max(MAX_CELL, this.minCell * this.tall));
  }

  whole() {
    this.cell = this.minCell;
    this.x = 0;
    this.y = 0;
  }

  get zoomed() {
    return this.cell > this.minCell * 1.001;
  }

  // Make cells `by` times as large, the place (x, y) staying where it is.
  /** @param {number} by @param {number} x @param {number} y */
  zoom(by, x, y) {
    const before = [this.cell, this.high];
    this.cell = Math.min(Math.max(this.cell * by, this.minCell), Math.max(MAX_CELL, this.minCell));
    this.x = x - ((x - this.x) * this.cell) / before[0];
    this.y = y - ((y - this.y) * this.high) / before[1];
    this.pan(0, 0);
  }

  /** @param {number} dx @param {number} dy */
  pan(dx, dy) {
    const [across, down] = [this.columns * this.cell, this.rows * this.high];
    this.x = Math.min(0, Math.max(this.x + dx, Math.min(0, this.width - across)));
    this.y = Math.min(0, Math.max(this.y + dy, Math.min(0, this.height - down)));
  }

  // The cell under a place, null outside of what is in sight.
  /** @param {number} x @param {number} y */
  at(x, y) {
    if (x < 0 || y < 0 || x >= this.width || y >= this.height) return null;
    const [row, column] = [Math.floor((y - this.y) / this.high), Math.floor((x - this.x) / this.cell)];
    return row >= 0 && column >= 0 && row < this.rows && column < this.columns ? { row, column } : null;
  }

  // The first cell in sight and the one after the last, along an axis ("x" or "y").
  /** @param {"x" | "y"} axis @returns {[from: number, to: number]} */
  seen(axis) {
    const [extent, count, size] =
      axis === "x" ? [this.width, this.columns, this.cell] : [this.height, this.rows, this.high];
    const from = Math.max(0, Math.floor(-this[axis] / size));
    return [from, Math.min(count, Math.ceil((extent - this[axis]) / size))];
  }

  // The cell, or a place inside it, comes as near to the middle as the edges let it.
  /** @param {{ row: number, column: number }} cell */
  centre({ row, column }) {
    const dx = this.width / 2 - (column + 0.5) * this.cell - this.x;
    this.pan(dx, this.height / 2 - (row + 0.5) * this.high - this.y);
  }

  /** @param {{ row: number, column: number }} cell */
  reveal({ row, column }) {
    const [left, top] = [this.x + column * this.cell, this.y + row * this.high];
    const dx = left < 0 ? -left : Math.min(0, this.width - this.cell - left);
    const dy = top < 0 ? -top : Math.min(0, this.height - this.high - top);
    this.pan(dx, dy);
  }
}
