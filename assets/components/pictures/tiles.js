// The cells in sight of a matrix that is too large to be kept, in tiles that are computed between frames: those in the
// middle first. One value of a tile is the largest of pool × pool cells, as one pixel is not larger.

/**
 * @typedef {object} Tile
 * @property {number} pool
 * @property {number} row of its first cell
 * @property {number} column
 * @property {number} down cells
 * @property {number} wide cells
 * @property {number} across values of a row
 * @property {Float32Array} values NaN where all cells are hidden
 * @property {number} next cell row that is not computed yet, from its first
 * @property {HTMLCanvasElement} [picture]
 * @property {Path2D} [hidden]
 */
/** @typedef {[from: number, to: number]} Seen */
/** @typedef {{ rows: Seen, columns: Seen, height: number, width: number }} Sight of a matrix of height × width cells */

const TILE_SIDE = 128; // values of a tile
const TILES_KEPT = 256; // tiles
const TILE_SLICE = 6; // milliseconds of work between two frames, beside those of painting

export class Tiles {
  /** @type {Map<string, Tile>} the least recently seen first */
  kept = new Map();
  /** @type {Tile[]} to be computed */
  missing = [];
  isWorking = false;

  /**
   * @param {(row: number, column: number) => number} exact
   * @param {() => void} changed called where a tile in sight is done
   */
  constructor(exact, changed) {
    this.exact = exact;
    this.changed = changed;
  }

  // The tiles in sight that are done; the others are computed from now on.
  /** @param {Sight} sight @param {number} pool */
  inSight({ rows, columns, height, width }, pool) {
    const size = TILE_SIDE * pool;
    const [row, column] = [(rows[0] + rows[1]) / 2, (columns[0] + columns[1]) / 2];
    const found = [];
    for (let top = Math.floor(rows[0] / size) * size; top < rows[1]; top += size)
      for (let left = Math.floor(columns[0] / size) * size; left < columns[1]; left += size)
        found.push(this.#tile(pool, top, left, height, width));
    /** @param {Tile} tile */
    const away = (tile) => Math.hypot(tile.row + size / 2 - row, tile.column + size / 2 - column);
    this.missing = found.filter((tile) => !this.#isDone(tile)).sort((a, b) => away(a) - away(b));
    if (this.missing.length && !this.isWorking) {
      this.isWorking = true;
      requestAnimationFrame(() => this.#work());
    }
    return found.filter((tile) => this.#isDone(tile));
  }

  // Work until `end` (a time of `now`), at least for one row; whether a tile was done.
  /** @param {number} end @param {() => number} now */
  advance(end, now = () => performance.now()) {
    let done = false;
    while (this.missing.length) {
      const [tile] = this.missing;
      this.#row(tile);
      if (this.#isDone(tile)) done = Boolean(this.missing.shift());
      if (now() >= end) break;
    }
    return done;
  }

  #work() {
    this.isWorking = false;
    const done = this.advance(performance.now() + TILE_SLICE);
    if (done) this.changed(); // which asks for what is still missing
    if (!this.missing.length || this.isWorking) return;
    this.isWorking = true;
    requestAnimationFrame(() => this.#work());
  }

  /** @param {Tile} tile */
  #isDone = ({ next, down }) => next >= down;

  // One row of cells of a tile.
  /** @param {Tile} tile */
  #row(tile) {
    const { pool, wide, across, values, row, column } = tile;
    const base = Math.floor(tile.next / pool) * across;
    for (let at = 0; at < wide; at++) {
      const value = this.exact(row + tile.next, column + at);
      const into = base + Math.floor(at / pool);
      if (!Number.isNaN(value) && !(values[into] >= value)) values[into] = value;
    }
    tile.next += 1;
  }

  /** @param {number} pool @param {number} row @param {number} column @param {number} height @param {number} width */
  #tile(pool, row, column, height, width) {
    const name = `${pool} ${row} ${column}`;
    const size = TILE_SIDE * pool;
    const [down, wide] = [Math.min(size, height - row), Math.min(size, width - column)];
    const [high, across] = [Math.ceil(down / pool), Math.ceil(wide / pool)];
    const tile = this.kept.get(name) ?? {
      ...{ pool, row, column, down, wide, across, next: 0 },
      values: new Float32Array(high * across).fill(NaN),
    };
    this.kept.delete(name);
    this.kept.set(name, tile);
    if (this.kept.size > TILES_KEPT) {
      const [oldest] = this.kept.keys();
      this.kept.delete(oldest);
    }
    return tile;
  }
}
