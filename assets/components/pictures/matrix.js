// The weights of one sentence as a heatmap: the mean of the heads that are on. Of one head of a long text the server has
// sent the largest weight of each block; others are computed in slices between frames. Zoomed in, cells are exact.

import { listOf, longestOf } from "../numbers/panel.js";
import { make, makeButton } from "../page/elements.js";
import { exact, fill, isolated } from "../page/wording.js";
import { meanAcross, strongest } from "../scene/focus.js";
import { LONG, mark, tallestOf, tokenElement } from "./drawing.js";
import { Heatmap, marginsOf } from "./heatmap.js";
import { seenByAny, sentGrid, WeightGrid } from "./weight_grid.js";
import { followFingers, goTo, zoomTools } from "./zoom.js";

/** @typedef {import("../numbers/panel.js").AnyLayer} AnyLayer */
/** @typedef {import("./heatmap.js").Cell} Cell */

const SLICE = 8; // milliseconds of work between two frames
const PAUSE = 120; // and from one picture of what is computed so far to the next
const SIZE = { few: 260, cell: 26 }; // pixels of all cells of a short text, and of a cell
const PEAKS = 100; // of a row, after which its first one follows
const MIN_HEIGHT = 52; // pixels: few rows of very many cells can still be zoomed into

/** @param {AnyLayer} layer @param {number[]} heads @param {number} query @param {number} key */
const meanOf = (layer, heads, query, key) =>
  heads.reduce((sum, head) => sum + layer.weight(head, query, key), 0) / heads.length;

export class Matrix {
  map = new Heatmap();
  /** @type {WeightGrid | null} the weights of the heads that are on; null for none */
  pooled = null;
  /** @type {Cell | null} under the pointer */
  cursor = null;
  /** @type {{ of: string, at: number, others: number[], cell: Cell | null }} of the chosen row or column */
  peaks = { of: "", at: -1, others: [], cell: null };
  /** @type {AnyLayer | null} */
  drawnFrom = null;
  heads = "";
  painted = 0;

  /** @param {import("./drawing.js").DrawnFrom} from */
  constructor({ selection, theme, panel, stage }) {
    this.selection = selection;
    this.theme = theme;
    this.panel = panel;
    this.map.canvas.classList.add("matrix");
    followFingers(this.map);
    const { texts } = selection.header;
    this.peak = makeButton(texts.peak, "", () => this.nextPeak());
    this.peak.title = texts.peak_how;
    this.peakSaid = Object.assign(make("span", "said"), { role: "status" });
    const zoom = zoomTools(this.map, texts);
    zoom.splice(-1, 0, this.peak, this.peakSaid); // before what the colours mean
    this.spoken = make("div", "unseen"); // the chosen row for those who do not see it
    this.list = make("div", "cells", this.map.canvas, this.spoken);
    stage.replaceChildren(this.list, make("div", "zoom", ...zoom));
  }

  /** @returns {import("./heatmap.js").Numbers} */
  get numbers() {
    const { selection, panel, pooled } = this;
    const { heads } = selection; // found out once, not for each cell
    const layer = selection.layer(panel);
    return {
      rows: panel.tokens,
      columns: listOf(panel, "key"),
      values: pooled?.finished ?? new Float32Array(0),
      step: pooled?.step,
      exact: (query, key) => (seenByAny(layer, heads, query, key) ? meanOf(layer, heads, query, key) : NaN),
      sum: pooled?.sum,
      signed: false,
      end: selection.state.fitted ? this.strongest : 1,
      roots: (pooled?.step ?? 1) > 1 || (selection.state.fitted && longestOf(panel) > LONG),
      dim: selection.nothing(panel),
      unknown: { rows: [...panel.unknown.query], columns: [...panel.unknown.key] },
    };
  }

  get strongest() {
    return this.pooled?.maximum ?? 0;
  }

  /** @param {number} room */
  draw(room) {
    this.#pool();
    const { numbers, theme, selection } = this;
    const [rows, columns] = [numbers.rows.length, numbers.columns.length];
    const { left, right } = marginsOf(numbers, theme);
    const wanted = Math.max(SIZE.few / Math.max(rows, columns), SIZE.cell);
    const width = Math.min(wanted, (room - left - right) / columns, tallestOf(selection.header) / rows);
    const height = Math.max(width, MIN_HEIGHT / rows);
    this.map.fit(numbers, theme, room, rows * height, { width, height });
    this.update();
  }

  update() {
    if (this.#pool()) this.map.replace(this.numbers);
    const { selection, panel } = this;
    const active = selection.active(panel);
    const { texts } = selection.header;
    const said = active ? [tokenElement(panel, selection.sideOf(active.side), active.token, texts)] : [];
    this.spoken.replaceChildren(...said);
    for (const element of said) mark(selection, panel, element);
    this.peak.disabled = !active;
    if (this.peaks.of !== this.#row) {
      this.peaks = { of: this.#row, at: -1, others: [], cell: null };
      this.peakSaid.textContent = "";
    }
    this.paint();
  }

  // Identifies the row or the column whose peaks these are.
  get #row() {
    const { selection, panel } = this;
    return JSON.stringify([selection.active(panel), selection.heads, selection.state.layer, selection.state.rescaled]);
  }

  // To the next strongest cell of the word that is chosen.
  nextPeak() {
    const { panel, peaks, selection } = this;
    const active = selection.active(panel);
    if (!active) return;
    const { side, token } = active;
    const weights = meanAcross(selection.layer(panel), selection.heads, { side, tokens: [token] });
    if (!peaks.others.length) peaks.others = strongest(weights, { threshold: Number.MIN_VALUE, count: PEAKS });
    if (!peaks.others.length) return;
    peaks.at = (peaks.at + 1) % peaks.others.length;
    const other = peaks.others[peaks.at];
    peaks.cell = side === "query" ? { row: token, column: other } : { row: other, column: token };
    goTo(this.map, peaks.cell);
    this.paint();
    const [from, to] = [panel.tokens[peaks.cell.row], listOf(panel, "key")[peaks.cell.column]].map(isolated);
    const said = { nth: peaks.at + 1, from, to, value: exact(weights[other]) };
    this.peakSaid.textContent = fill(selection.header.texts.peak_said, said);
  }

  // Other heads or another layer: their weights are computed from the first row on.
  #pool() {
    const layer = this.selection.layer(this.panel);
    const heads = String(this.selection.heads);
    if (this.drawnFrom === layer && this.heads === heads) return false;
    Object.assign(this, { drawnFrom: layer, heads });
    const { heads: on } = this.selection;
    this.pooled = on.length ? (sentGrid(layer, on) ?? new WeightGrid(layer, on)) : null;
    requestAnimationFrame(() => this.#work(this.pooled));
    return true;
  }

  /** @param {WeightGrid | null} pooled */
  #work(pooled) {
    if (!pooled || pooled !== this.pooled || !this.map.canvas.isConnected) return;
    pooled.advance(performance.now() + SLICE);
    if (pooled.done || performance.now() - this.painted > PAUSE) {
      this.map.replace(this.numbers);
      this.paint();
    }
    if (!pooled.done) requestAnimationFrame(() => this.#work(pooled));
  }

  paint() {
    this.painted = performance.now();
    const { side, tokens = [] } = this.selection.of(this.panel).focus ?? {};
    const marks = {
      rows: side === "query" ? tokens : [],
      columns: side === "key" ? tokens : [],
      cell: this.cursor ?? this.peaks.cell,
    };
    this.map.paint(marks);
  }

  // The cell of an event: hovering marks it.
  /** @param {MouseEvent} event */
  hit(event) {
    if (event.target !== this.map.canvas) return null;
    const cell = this.map.at(event);
    this.mark(cell);
    const { heads } = this.selection;
    if (!cell || !heads.length) return null;
    const [query, key] = [cell.row, cell.column];
    const layer = this.selection.layer(this.panel);
    const head = heads.length === 1 ? heads[0] : null;
    return {
      query,
      key,
      head,
      weight: meanOf(layer, heads, query, key),
      hidden: !seenByAny(layer, heads, query, key),
    };
  }

  /** @param {Cell | null} cell */
  mark(cell) {
    if (this.cursor?.row === cell?.row && this.cursor?.column === cell?.column) return;
    this.cursor = cell;
    this.paint();
  }

  /** @param {number} at */
  reveal(at) {
    const { viewport } = this.map;
    const [row, column] = [viewport.seen("y")[0], viewport.seen("x")[0]];
    const isKey = this.selection.active(this.panel)?.side === "key";
    this.map.reveal(isKey ? { row, column: at } : { row: at, column: this.cursor?.column ?? column });
    this.paint();
  }

  /** @param {import("./theme.js").Theme} theme @returns {import("./drawing.js").Shapes} */
  scene(theme) {
    const { width, height } = this.map;
    return { width, height, curves: [], labels: [], map: this.map.printed(theme) };
  }
}
