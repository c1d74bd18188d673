// Matrices of any kind as pictures inside Streamlit. Their descriptions come as JSON, their numbers as bytes (blobs.js).
// The page chooses the matrices and what a click on a cell does (pages/_kit/heatmaps.py).

import { arrival } from "../numbers/blobs.js";
import { elementIn, makeButton, required } from "../page/elements.js";
import { fill, isolated, questionId } from "../page/wording.js";
import { follow, heldFocus, unreported } from "../scene/address.js";
import { positionOf } from "../scene/focus_link.js";
import { followHighlight, highlight, litOf } from "../scene/highlight.js";
import { followStep, stepInFocus } from "../scene/step.js";
import { fitHeight } from "../streamlit/adapter.js";
import { MatrixGallery } from "./matrix_gallery.js";
import { themeOf } from "./theme.js";

/** @typedef {import("../scene/highlight.js").HighlightKind} HighlightKind */
/** @typedef {import("./heatmap.js").Cell} Cell */

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
 * @property {string | null} hatched what hatched cells are, where they are not masked
 * @property {[number, number] | null} framed columns from the first to before the second
 * @property {number | null} row in a frame
 * @property {boolean} result
 * @property {string} axes
 * @property {number} span so many times as wide as others in its row
 * @property {string} cell_text of each cell: a template with {symbol}, {row}, {column}, {value}
 * @property {[number | null, number | null] | null} start the first token of its rows and columns; null: not clicked
 * @property {[number[] | null, number[] | null]} partners of each token of its rows and columns which one a click chooses
 * @property {boolean} paints its cells can be painted: always, or where they are explained, with the pen
 * @property {boolean} explains where a number of it comes from can be said
 * @property {[HighlightKind | null, HighlightKind | null]} kinds what its rows and columns are, where that can be pointed at
 * @property {{ caption: string[], file: string }} saved
 */

/**
 * @typedef {object} MatrixPage
 * @property {Record<string, string>} texts
 * @property {Described[]} matrices
 * @property {import("../numbers/explanation.js").Explanation | null} explanation
 * @property {number} tall
 * @property {number} across
 * @property {boolean} stacked below each other on a phone
 * @property {string[] | null} names of the tokens among which the frame around a row follows the focus
 * @property {Record<string, { matrices: string[], results: string[], across: number }> | null} steps of each step
 *   those that it draws; null where the page has no steps and all are drawn
 */

/**
 * A message to the server: cells that were painted, or a cell that was clicked.
 * @typedef {{ name: string, rows: number[], columns: number[] }
 *   | { row: number | null, column: number | null, explained: (Cell & { name: string, id: string }) | null
 *   }} MatrixMessage
 */

/**
 * Described matrices with their numbers: those of all matrices row by row, then a byte for each cell of those that
 * have hidden ones.
 * @param {Described[]} described
 * @param {Uint8Array} bytes
 */
export function withNumbers(described, bytes) {
  /** @param {string[] | number} columns */
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

class PageMatrices extends MatrixGallery {
  /** @type {MatrixPage | null} */
  #scene = null;
  /** @type {ReturnType<typeof withNumbers>} */
  all = [];
  named = true;
  pen = false; // a press paints cells instead of explaining their numbers

  /** @type {(event: string, message: MatrixMessage) => void} to the server */
  send = () => {};

  /** @param {HTMLElement} root */
  constructor(root) {
    super();
    this.row.classList.add("named");
    this.penButton = makeButton("", "pen", () => {
      this.pen = !this.pen;
      this.update();
    });
    this.root.prepend(this.penButton);
    root.append(this.root);
    new ResizeObserver(() => this.update()).observe(root);
    followHighlight(this.root, () => this.light());
  }

  get scene() {
    return required(this.#scene, "matrices of the page");
  }

  get texts() {
    return this.scene.texts;
  }

  /** @param {MatrixPage} scene @param {Uint8Array} bytes */
  open(scene, bytes) {
    this.#scene = scene;
    this.all = withNumbers(scene.matrices, bytes);
    this.tall = scene.tall;
    this.row.classList.toggle("stacked", scene.stacked);
    this.penButton.hidden = !scene.matrices.some((one) => one.paints && one.explains);
    this.penButton.textContent = this.texts.pen;
    this.explanation.answer(scene.explanation);
    if (scene.names) follow(this.root, () => this.light());
    if (scene.steps) followStep(this.root, () => this.update());
    this.update();
  }

  update() {
    if (!this.#scene || !this.root.clientWidth) return;
    this.theme = themeOf(this.root);
    this.penButton.setAttribute("aria-pressed", String(this.pen));
    const step = this.scene.steps?.[stepInFocus()];
    const shown = step ? step.matrices.map((name) => this.#of(name)) : this.all;
    /** @param {Described} one */
    const result = (one) => (step ? step.results.includes(one.name) : one.result);
    const matrices = Object.fromEntries(shown.map((one) => [one.name, { ...titled(one), result: result(one) }]));
    this.row.style.setProperty("--across", String(step?.across ?? this.scene.across));
    // A figure has its width once it stands in its place.
    if (Object.keys(matrices).join() !== Object.keys(this.pictures).join()) this.show(matrices);
    this.show(matrices);
    this.light();
  }

  light() {
    if (!this.theme) return;
    this.paint((name) => this.#marks(name));
    this.read(this.cell ? this.#cellText(this.cell) : this.pen ? this.texts.paint : this.texts.how);
  }

  /** @param {string | null} name @param {Cell | null} cell */
  point(name, cell) {
    highlight(this.root, cell && name ? this.#pointed(name, cell) : null);
    this.light();
  }

  /** @param {string} name @param {Cell} cell */
  choose(name, cell) {
    const { start, partners, explains } = this.#of(name);
    if (!start && !explains) return;
    /** @param {0 | 1} axis @param {number} place */
    const at = (axis, place) => {
      const first = start?.[axis] ?? null;
      if (first === null) return null;
      return partners[axis] ? partners[axis][first + place] : first + place;
    };
    const explained = explains ? { name, row: cell.row, column: cell.column, id: questionId() } : null;
    this.send("picked", { row: at(0, cell.row), column: at(1, cell.column), explained });
  }

  /** @param {string | null} name */
  paints(name) {
    if (!name) return false;
    const { paints, explains } = this.#of(name);
    return paints && (this.pen || !explains);
  }

  /** @param {string} name @param {Cell} from @param {Cell} to */
  painted(name, from, to) {
    /** @param {"row" | "column"} axis */
    const between = (axis) => [Math.min(from[axis], to[axis]), Math.max(from[axis], to[axis])];
    this.send("painted", { name, rows: between("row"), columns: between("column") });
  }

  /** @param {string} name */
  #of(name) {
    return required(
      this.all.find((one) => one.name === name),
      `matrix ${name}`,
    );
  }

  // The things that the row and the column of a cell stand for.
  /** @param {string} name @param {Cell} cell @returns {import("../scene/highlight.js").Highlight} */
  #pointed(name, { row, column }) {
    const { kinds, rows, columns } = this.#of(name);
    const [one, other] = [nameAt(kinds[0], rows, row), nameAt(kinds[1], columns, column)];
    return { ...(kinds[0] && { [kinds[0]]: one }), ...(kinds[1] && { [kinds[1]]: other }) };
  }

  // A cell that is pointed at lights its row and column here, and in the other pictures what these are.
  /** @param {string} name @returns {import("./heatmap.js").Marks} */
  #marks(name) {
    const { kinds, rows, columns } = this.#of(name);
    const row = this.#framed(name);
    const framed = row === null ? [] : [row];
    if (this.area?.name === name) return { rows: framed, columns: [], cell: null, area: this.area };
    if (this.cell?.name === name) return { rows: framed, columns: [], cell: this.cell };
    const [lit, across] = [highlightedAt(kinds[0], rows), highlightedAt(kinds[1], columns)];
    return { rows: [...framed, ...lit], columns: across, cell: null };
  }

  /** @param {string} name */
  #framed(name) {
    const { row, start } = this.#of(name);
    const at = row !== null && this.scene.names ? positionOf(this.scene.names, heldFocus().token ?? "") : -1;
    return at < 0 ? row : at - (start?.[0] ?? 0);
  }

  /** @param {Cell & { name: string }} cell */
  #cellText({ name, row, column }) {
    const { symbol, rows, columns, values, hidden, masked, cell_text } = this.#of(name);
    const at = row * columns.length + column;
    const value = hidden?.[at] ? (masked ?? "") : values[at].toPrecision(4);
    return fill(cell_text, { symbol, row: isolated(rows[row]), column: isolated(columns[column]), value });
  }
}

// The thing pointed at in a list of names: tokens by their labels, heads and layers by their numbers.
/** @param {HighlightKind | null} kind */
const isToken = (kind) => kind !== "head" && kind !== "layer";
/** @param {HighlightKind | null} kind @param {string[]} names @param {number} at */
const nameAt = (kind, names, at) => (isToken(kind) ? names[at] : at + 1);

/** @param {HighlightKind | null} kind @param {string[]} names */
function highlightedAt(kind, names) {
  const lit = litOf(kind);
  const at = typeof lit === "string" ? names.indexOf(lit) : Number(lit) - 1;
  return at in names ? [at] : [];
}

/** @param {ReturnType<typeof withNumbers>[0]} one @returns {import("./matrix_gallery.js").GalleryMatrix} */
function titled(one) {
  const { symbol, meaning, result, axes, span, saved, rows, columns, values, signed, end, framed } = one;
  const numbers = { rows, columns, values, signed, end, framed: framed ?? undefined };
  return { symbol, meaning, result, hatched: one.hatched ?? undefined, axes, span, saved, numbers };
}

/** @param {import("../streamlit/adapter.js").Mounted<MatrixPage & { name: string, digest: string }>} mounted */
export default async function ({ data, parentElement, setTriggerValue }) {
  /** @type {HTMLElement & { turn?: number, heatmaps?: PageMatrices }} */
  const root = elementIn(parentElement, ".heatmaps");
  root.turn = (root.turn ?? 0) + 1;
  const { turn } = root;
  const bytes = await arrival(data.name, data.digest);
  if (root.turn !== turn) return; // other matrices have come meanwhile
  root.heatmaps ??= new PageMatrices(root);
  root.heatmaps.send = (name, value) => setTriggerValue(name, { ...value, ...unreported() });
  root.heatmaps.open(data, bytes);
  fitHeight(root);
}
