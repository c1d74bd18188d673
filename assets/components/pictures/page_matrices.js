// Matrices of any kind as pictures inside Streamlit. Their descriptions come as JSON, their numbers as bytes (blobs.js).
// The page chooses the matrices and what a click on a cell does (pages/_kit/heatmaps.py).

import { arrival } from "../numbers/blobs.js";
import { elementIn, makeButton, required } from "../page/elements.js";
import { byPointer, fill, isolated, questionId } from "../page/wording.js";
import { follow, heldFocus, unreported } from "../scene/address.js";
import { positionOf } from "../scene/focus_link.js";
import { followHighlight, highlight, litOf } from "../scene/highlight.js";
import { followStep, stepInFocus } from "../scene/step.js";
import { fitHeight } from "../streamlit/adapter.js";
import { MatrixGallery } from "./matrix_gallery.js";
import { themeOf } from "./theme.js";

/** @typedef {import("./heatmap.js").Cell} Cell */

/**
 * A matrix as the page describes it; its numbers come as bytes.
 * @typedef {object} DescribedMatrix
 * @property {string} name
 * @property {string[]} rows
 * @property {string[] | number} columns names, or how many columns are numbered from 1
 * @property {boolean} signed
 * @property {number} end
 * @property {string | null} masked what is said of its hidden cells; null: none is
 * @property {[number, number] | null} framed columns from the first to before the second
 * @property {number | null} row in a frame
 * @property {string} cell_text of each cell: a template with {symbol}, {row}, {column}, {value}
 * @property {[number | null, number | null] | null} start the first token of its rows and columns; null: not clicked
 * @property {[number[] | null, number[] | null]} partners of each token of its rows and columns which one a click chooses
 * @property {boolean} paints its cells can be painted: always, or where they are explained, with the pen
 * @property {boolean} explains where a number of it comes from can be said
 */
/** @typedef {Omit<import("./matrix_gallery.js").GalleryMatrix, "numbers"> & DescribedMatrix} Described */

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
 * Described matrices with their numbers: those of all matrices row by row, then a byte for each cell of those that
 * have hidden ones.
 * @param {Described[]} described
 * @param {Uint8Array} bytes
 */
export function withNumbers(described, bytes) {
  /** @param {string[] | number} columns */
  const named = (columns) =>
    typeof columns === "number" ? Array.from({ length: columns }, (_, at) => String(at + 1)) : columns;
  const sizes = described.map(({ rows, columns }) => rows.length * named(columns).length);
  let at = bytes.byteOffset;
  let masks = at + 4 * sizes.reduce((sum, size) => sum + size, 0);
  return described.map((one, nth) => {
    const { rows, columns, signed, end, framed } = one;
    const values = new Float32Array(bytes.buffer, at, sizes[nth]).slice();
    at += 4 * sizes[nth];
    if (one.masked) {
      new Uint8Array(bytes.buffer, masks, sizes[nth]).forEach((is, cell) => {
        if (is) values[cell] = NaN;
      });
      masks += sizes[nth];
    }
    return { ...one, numbers: { rows, columns: named(columns), values, signed, end, framed: framed ?? undefined } };
  });
}

class PageMatrices {
  /** @type {ReturnType<typeof withNumbers>} */
  all = [];
  pen = false; // a press paints cells instead of explaining their numbers
  /** @type {(event: string, message: object) => void} to the server */
  send = () => {};

  /** @param {HTMLElement} root @param {MatrixPage} scene */
  constructor(root, scene) {
    this.scene = scene;
    this.gallery = new MatrixGallery({
      texts: () => this.scene.texts,
      named: true,
      update: () => this.update(),
      press: (name, cell) => this.#press(name, cell),
      point: (_name, _cell, things) => {
        highlight(this.gallery.root, things);
        this.gallery.paint();
      },
      paint: (name, from, to) => {
        /** @param {"row" | "column"} axis */
        const between = (axis) => [Math.min(from[axis], to[axis]), Math.max(from[axis], to[axis])];
        this.send("painted", { name, rows: between("row"), columns: between("column") });
      },
      marks: (name, isHere) => this.#marks(name, isHere),
      read: (cell) => (cell ? this.#cellText(cell) : this.#how()),
    });
    const gallery = this.gallery.root;
    this.penButton = makeButton("", "pen", () => {
      this.pen = !this.pen;
      this.update();
    });
    gallery.prepend(this.penButton);
    root.append(gallery);
    new ResizeObserver(() => this.update()).observe(root);
    followHighlight(gallery, () => this.gallery.paint());
  }

  /** @param {MatrixPage} scene @param {Uint8Array} bytes */
  open(scene, bytes) {
    const { gallery, penButton } = this;
    this.scene = scene;
    this.all = withNumbers(scene.matrices, bytes);
    gallery.tall = scene.tall;
    gallery.row.classList.toggle("stacked", scene.stacked);
    penButton.hidden = !scene.matrices.some((one) => one.paints && one.explains);
    penButton.textContent = scene.texts.pen;
    gallery.explanation.answer(scene.explanation);
    if (scene.names) follow(gallery.root, () => gallery.paint());
    if (scene.steps) followStep(gallery.root, () => this.update());
    this.update();
  }

  update() {
    const { gallery } = this;
    if (!gallery.root.clientWidth) return;
    gallery.theme = themeOf(gallery.root);
    this.penButton.ariaPressed = String(this.pen);
    const step = this.scene.steps?.[stepInFocus()];
    const shown = step ? step.matrices.map((name) => this.#of(name)) : this.all;
    const matrices = shown.map((one) => {
      const result = step ? step.results.includes(one.name) : one.result;
      return [one.name, { ...one, result, paints: one.paints && (this.pen || !one.explains) }];
    });
    gallery.row.style.setProperty("--across", String(step?.across ?? this.scene.across));
    const show = () => {
      gallery.rooms = null;
      gallery.show(Object.fromEntries(matrices));
    };
    // A figure has its width once it stands in its place.
    if (shown.map(({ name }) => name).join() !== Object.keys(gallery.pictures).join()) show();
    show();
    gallery.paint();
  }

  // A press chooses the tokens of a cell, and asks where its number comes from.
  /** @param {string} name @param {Cell} cell */
  #press(name, { row, column }) {
    const { start, partners, explains } = this.#of(name);
    if (!start && !explains) return;
    /** @param {0 | 1} axis @param {number} place */
    const token = (axis, place) => {
      const first = start?.[axis] ?? null;
      if (first === null) return null;
      return partners[axis] ? partners[axis][first + place] : first + place;
    };
    const explained = explains ? { name, row, column, id: questionId() } : null;
    this.send("picked", { row: token(0, row), column: token(1, column), explained });
  }

  /** @param {string} name */
  #of(name) {
    return required(
      this.all.find((one) => one.name === name),
      `matrix ${name}`,
    );
  }

  // The row in focus is framed. A cell that is pointed at lights its row and column in the other pictures.
  /** @param {string} name @param {boolean} isHere */
  #marks(name, isHere) {
    const { kinds, numbers, row, start } = this.#of(name);
    const { names } = this.scene;
    const at = row !== null && names ? positionOf(names, heldFocus().token ?? "") : -1;
    const framed = at < 0 ? row : at - (start?.[0] ?? 0);
    const rows = framed === null ? [] : [framed];
    if (isHere) return { rows, columns: [] };
    return { rows: [...rows, ...litAt(kinds[0], numbers.rows)], columns: litAt(kinds[1], numbers.columns) };
  }

  // The hint for the matrices in sight: a step may draw none whose numbers are explained.
  /** @returns {string} */
  #how() {
    const explains = Object.keys(this.gallery.pictures).some((name) => this.#of(name).explains);
    return byPointer(this.scene.texts)[this.pen ? "paint" : explains ? "how" : "unexplained"];
  }

  /** @param {Cell & { name: string }} cell */
  #cellText({ name, row, column }) {
    const { symbol, numbers, masked, cell_text } = this.#of(name);
    const { rows, columns, values } = numbers;
    const number = values[row * columns.length + column];
    const value = Number.isNaN(number) && masked ? masked : number.toPrecision(4);
    return fill(cell_text, { symbol, row: isolated(rows[row]), column: isolated(columns[column]), value });
  }
}

// The thing pointed at in a list of names: tokens by their labels, heads and layers by their numbers.
/** @param {import("../scene/highlight.js").HighlightKind | null} kind @param {string[]} names */
function litAt(kind, names) {
  const lit = litOf(kind);
  const at = typeof lit === "string" ? names.indexOf(lit) : Number(lit) - 1;
  return at in names ? [at] : [];
}

/** @param {import("../streamlit/adapter.js").Mounted<MatrixPage & { name: string, digest: string }>} mounted */
export default async function ({ data, parentElement, setTriggerValue }) {
  /** @type {HTMLElement & { turn?: number, heatmaps?: PageMatrices }} */
  const root = elementIn(parentElement, ".heatmaps");
  root.turn = (root.turn ?? 0) + 1;
  const { turn } = root;
  const bytes = await arrival(data.name, data.digest);
  if (root.turn !== turn) return; // other matrices have come meanwhile
  root.heatmaps ??= new PageMatrices(root, data);
  root.heatmaps.send = (name, value) => setTriggerValue(name, { ...value, ...unreported() });
  root.heatmaps.open(data, bytes);
  fitHeight(root);
}
