// What of a matrix is in sight, and all of it pooled to a picture: numbers without a canvas.
import { meanAcross } from "./focus.js";

const GRID = 768;
const MAX_CELL = 72; // pixels a cell

// Where the matrix lies: columns × rows of cells of `cell` pixels, the first at (x, y) of a view of width × height.
export class Viewport {
  x = 0;
  y = 0;

  constructor(columns, width, height, rows = columns) {
    this.columns = columns;
    this.rows = rows;
    this.width = width;
    this.height = height;
    this.minCell = Math.min(width / columns, height / rows);
    this.cell = this.minCell;
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
  zoom(by, x, y) {
    const cell = Math.min(Math.max(this.cell * by, this.minCell), Math.max(MAX_CELL, this.minCell));
    const ratio = cell / this.cell;
    this.cell = cell;
    this.x = x - (x - this.x) * ratio;
    this.y = y - (y - this.y) * ratio;
    this.pan(0, 0);
  }

  pan(dx, dy) {
    const [across, down] = [this.columns * this.cell, this.rows * this.cell];
    this.x = Math.min(0, Math.max(this.x + dx, Math.min(0, this.width - across)));
    this.y = Math.min(0, Math.max(this.y + dy, Math.min(0, this.height - down)));
  }

  // The cell under a place, null outside of what is in sight.
  at(x, y) {
    if (x < 0 || y < 0 || x >= this.width || y >= this.height) return null;
    const [key, query] = [Math.floor((x - this.x) / this.cell), Math.floor((y - this.y) / this.cell)];
    return query >= 0 && key >= 0 && query < this.rows && key < this.columns ? { query, key } : null;
  }

  // The first cell in sight and the one after the last, along an axis ("x" or "y").
  seen(axis) {
    const [extent, count] = axis === "x" ? [this.width, this.columns] : [this.height, this.rows];
    const from = Math.max(0, Math.floor(-this[axis] / this.cell));
    return [from, Math.min(count, Math.ceil((extent - this[axis]) / this.cell))];
  }

  reveal(query, key) {
    const [left, top] = [this.x + key * this.cell, this.y + query * this.cell];
    const dx = left < 0 ? -left : Math.min(0, this.width - this.cell - left);
    const dy = top < 0 ? -top : Math.min(0, this.height - this.cell - top);
    this.pan(dx, dy);
  }
}

// May any of the heads look there? Each can have a mask of its own.
export const seenByAny = (layer, heads, query, key) => heads.some((head) => layer.sees(head, query, key));

// Mean weights of the heads, pooled to at most `grid` a side; NaN where all cells are hidden. Row by row.
export class Pooled {
  constructor(layer, heads, grid = GRID) {
    this.layer = layer;
    this.heads = heads;
    this.step = Math.ceil(Math.max(layer.nQuery, layer.nKey) / grid);
    this.rows = Math.ceil(layer.nQuery / this.step);
    this.columns = Math.ceil(layer.nKey / this.step);
    this.values = new Float32Array(this.rows * this.columns).fill(NaN);
    this.maximum = 0;
    this.next = 0;
  }

  get done() {
    return this.next >= this.layer.nQuery;
  }

  // Work until `end` (a time of `now`), at least for one row.
  advance(end, now = () => performance.now()) {
    do {
      if (this.done) return;
      const base = Math.floor(this.next / this.step) * this.columns;
      const row = meanAcross(this.layer, this.heads, { side: "query", tokens: [this.next] });
      for (let key = 0; key < row.length; key++) {
        if (row[key] === 0 && !seenByAny(this.layer, this.heads, this.next, key)) continue;
        const at = base + Math.floor(key / this.step);
        if (!(this.values[at] >= row[key])) this.values[at] = row[key];
        if (row[key] > this.maximum) this.maximum = row[key];
      }
      this.next += 1;
    } while (now() < end);
  }
}
