// All weights of a head, or the mean of several heads, in a grid small enough to draw.
import { Layer } from "../numbers/payload.js";
import { meanAcross } from "../scene/focus.js";

/** @typedef {import("../numbers/panel.js").AnyLayer} AnyLayer */

const GRID = 768; // cells of a side, at most

// May any of the heads look there? Each can have a mask of its own.
/** @param {AnyLayer} layer @param {number[]} heads @param {number} query @param {number} key */
export const seenByAny = (layer, heads, query, key) => heads.some((head) => layer.sees(head, query, key));

// The weights of a head of a long text as a server has pooled them; null for several heads and for a short text.
/** @param {AnyLayer} layer @param {number[]} heads */
export function sentGrid(layer, heads) {
  const blocks = heads.length === 1 && layer instanceof Layer ? layer.blocks(heads[0]) : null;
  if (!blocks) return null;
  const { step, largest: values, sums, columns } = blocks;
  let maximum = 0;
  for (const value of values) if (value > maximum) maximum = value;
  /** @param {number} row @param {number} column */
  const sum = (row, column) => sums[Math.floor(row / step) * columns + Math.floor(column / step)];
  return Object.assign(new WeightGrid(layer, heads), { step, values, columns, maximum, next: layer.nQuery, sum });
}

// Mean weights of the heads, pooled to at most `grid` a side; NaN where all cells are hidden. Row by row.
export class WeightGrid {
  /** @param {AnyLayer} layer @param {number[]} heads @param {number} grid */
  constructor(layer, heads, grid = GRID) {
    this.layer = layer;
    this.heads = heads;
    this.step = Math.ceil(Math.max(layer.nQuery, layer.nKey) / grid);
    this.rows = Math.ceil(layer.nQuery / this.step);
    this.columns = Math.ceil(layer.nKey / this.step);
    this.values = new Float32Array(this.rows * this.columns).fill(NaN);
    this.maximum = 0;
    this.next = 0;
    /** @type {((row: number, column: number) => number) | undefined} of the block around a cell, where it is known */
    this.sum = undefined;
  }

  get done() {
    return this.next >= this.layer.nQuery;
  }

  // The rows of the grid that have all their weights.
  get finished() {
    return this.values.subarray(0, this.done ? undefined : Math.floor(this.next / this.step) * this.columns);
  }

  // Work until `end` (a time of `now`), at least for one row.
  /** @param {number} end @param {() => number} now */
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
