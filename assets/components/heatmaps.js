// Matrices of any kind as pictures, inside Streamlit: what they are called comes as JSON, their numbers by themselves
// (blobs.js). Which matrices, and what a press on a cell means, is up to the page (pages/_kit/heatmaps.py).
import { tell } from "./address.js";
import { arrival } from "./blobs.js";
import { MatrixPictures, themeLook } from "./matrix_pictures.js";
import { followStep, stepInFocus } from "./step_in_focus.js";
import { drawn } from "./streamlit.js";
import { fill, isolated } from "./text.js";

/**
 * A matrix as the page describes it.
 * @typedef {object} Described
 * @property {string} name
 * @property {string} symbol
 * @property {string} meaning
 * @property {string[]} rows
 * @property {string[] | number} columns names, or how many columns are numbered from 1
 * @property {boolean} signed
 * @property {number} end
 * @property {string | null} masked what is said of its hidden cells; null: none is
 * @property {[number, number] | null} framed columns from the first to before the second
 * @property {number | null} row in a frame
 * @property {number[]} untrained
 * @property {boolean} result
 * @property {string} axes
 * @property {number} span so many times as wide as others in its row
 * @property {string} says of a cell: a template with {symbol}, {row}, {column}, {value}
 * @property {[number | null, number | null] | null} start the first token of its rows and columns; null: no tokens
 * @property {{ caption: string[], file: string }} saved
 */

/**
 * @typedef {object} Scene
 * @property {Record<string, string>} texts
 * @property {Described[]} matrices
 * @property {number} tall
 * @property {number} across
 * @property {boolean} stacked below each other on a phone
 * @property {Record<string, { matrices: string[], results: string[], across: number }> | null} steps of each step
 *   those that it draws; null where the page has no steps and all are drawn
 */

/**
 * Described matrices with their numbers: those of all matrices row by row, then a byte for each cell of those that
 * have hidden ones.
 * @param {Described[]} described
 * @param {Uint8Array} bytes
 */
export function withNumbers(described, bytes) {
  const named = (columns) =>
    typeof columns === "number" ? Array.from({ length: columns }, (_, at) => String(at + 1)) : columns;
  const all = described.map((one) => ({ ...one, columns: named(one.columns) }));
  const sizes = all.map(({ rows, columns }) => rows.length * columns.length);
  let at = 0;
  let masks = bytes.byteOffset + 4 * sizes.reduce((sum, size) => sum + size, 0);
  return all.map((one, nth) => {
    const values = new Float32Array(bytes.buffer, bytes.byteOffset + at, sizes[nth]).slice();
    at += 4 * sizes[nth];
    const hidden = one.masked ? new Uint8Array(bytes.buffer, masks, sizes[nth]) : null;
    if (hidden) masks += sizes[nth];
    hidden?.forEach((is, cell) => {
      if (is) values[cell] = NaN;
    });
    return { ...one, values, hidden };
  });
}

export class Heatmaps extends MatrixPictures {
  /** @type {Scene | null} */
  scene = null;
  /** @type {ReturnType<typeof withNumbers>} */
  all = [];
  named = true;

  /** @type {(event: string, value: any) => void} to the server */
  send = () => {};

  constructor(root) {
    super();
    this.plot = (name) => this.send("plotted", name);
    this.row.classList.add("named");
    root.append(this.root);
    new ResizeObserver(() => this.update()).observe(root);
  }

  get texts() {
    return this.scene.texts;
  }

  /** @param {Scene} scene */
  open(scene, bytes) {
    this.scene = scene;
    this.all = withNumbers(scene.matrices, bytes);
    this.tall = scene.tall;
    this.row.classList.toggle("stacked", scene.stacked);
    if (scene.steps) followStep(this.root, () => this.update());
    this.update();
  }

  update() {
    if (!this.scene || !this.root.clientWidth) return;
    this.theme = themeLook(this.root);
    const step = this.scene.steps?.[stepInFocus()];
    const shown = step ? step.matrices.map((name) => this.#of(name)) : this.all;
    const result = (one) => (step ? step.results.includes(one.name) : one.result);
    const matrices = Object.fromEntries(shown.map((one) => [one.name, { ...titled(one), result: result(one) }]));
    this.row.style.setProperty("--across", String(step?.across ?? this.scene.across));
    // A figure has its width once it stands in its place.
    if (Object.keys(matrices).join() !== Object.keys(this.pictures).join()) this.show(matrices);
    this.show(matrices);
    this.light();
  }

  light() {
    this.paint((name) => this.#marks(name));
    this.read(this.cell ? this.#cellText(this.cell) : this.texts.how);
  }

  point() {
    this.light();
  }

  choose(name, cell) {
    const { start } = this.#of(name);
    if (!start) return;
    const [row, column] = start.map((first, axis) => (first === null ? null : first + (axis ? cell.column : cell.row)));
    this.send("picked", { row, column });
  }

  #of = (name) => this.all.find((one) => one.name === name);

  // A cell that is pointed at lights its row and column here, and the same token in the other pictures.
  #marks(name) {
    const { row, start } = this.#of(name);
    const marks = { rows: row === null ? [] : [row], columns: [], cell: null };
    if (this.cell?.name === name) return { ...marks, cell: this.cell };
    const from = this.cell && this.#of(this.cell.name).start?.[0];
    if (typeof from !== "number" || typeof start?.[0] !== "number") return marks;
    const same = from + this.cell.row - start[0];
    return same in this.#of(name).rows ? { ...marks, rows: [...marks.rows, same] } : marks;
  }

  #cellText({ name, row, column }) {
    const { symbol, rows, columns, values, hidden, masked, says } = this.#of(name);
    const at = row * columns.length + column;
    const value = hidden?.[at] ? masked : values[at].toPrecision(4);
    return fill(says, { symbol, row: isolated(rows[row]), column: isolated(columns[column]), value });
  }
}

/** @returns {import("./matrix_pictures.js").Matrix} */
function titled({ symbol, meaning, result, axes, span, saved, rows, columns, values, signed, end, framed, untrained }) {
  const numbers = { rows, columns, values, signed, end, framed: framed ?? undefined, untrained };
  return { symbol, meaning, result, axes, span, saved, numbers };
}

export default async function ({ data, parentElement, setTriggerValue }) {
  const root = parentElement.querySelector(".heatmaps");
  root.turn = (root.turn ?? 0) + 1;
  const { turn } = root;
  const bytes = await arrival(data.name, data.digest);
  if (root.turn !== turn) return; // other matrices have come meanwhile
  root.heatmaps ??= new Heatmaps(root);
  root.heatmaps.send = (name, value) => {
    tell();
    setTriggerValue(name, value);
  };
  root.heatmaps.open(data, bytes);
  drawn(root);
}
