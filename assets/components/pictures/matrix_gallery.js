// Small pictures of matrices beside each other, one of them enlarged below on request, with the number under the pointer
// or the keyboard's cell, and files to save. The classes that extend this one supply the matrices.

import { elementIn, make, makeButton, makeSvg, renew, required } from "../page/elements.js";
import { FORMATS, save } from "../page/saving.js";
import { oneTabStop } from "../page/tab_stop.js";
import { exact, fill } from "../page/wording.js";
import { ExplanationPanel } from "./explanation_panel.js";
import { Heatmap, namesAbove, widthOf } from "./heatmap.js";
import { printTheme } from "./theme.js";
import { followFingers, zoomByKey, zoomTools } from "./zoom.js";

/** @typedef {import("./heatmap.js").Numbers} Numbers */
/** @typedef {import("./heatmap.js").Cell} Cell */
/** @typedef {import("../page/saving.js").TableCell} TableCell */

/**
 * A matrix with what it is called and what a file of it says.
 * @typedef {object} GalleryMatrix
 * @property {string} symbol
 * @property {string} meaning
 * @property {Numbers} numbers
 * @property {boolean} [result] it is made of those before it
 * @property {string} [hatched] the meaning of hatched cells, if they are not masked
 * @property {string} [axes] what its rows and its columns are
 * @property {number} [span] so many times as wide as others in its row
 * @property {{ caption: string[], file: string }} saved
 */

const SIDE = 168; // pixels of a small picture
const TALL = 440; // of the cells of the large one
const CELL = { width: 56, height: 30 }; // the largest
/** @type {Record<string, [down: number, right: number]>} */
const STEPS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };

/** @param {ArrayLike<number>} values */
export function largestOf(values) {
  let most = 0;
  for (let at = 0; at < values.length; at++) most = Math.max(most, Math.abs(values[at]) || 0);
  return most;
}

// The least and the largest of the numbers that are not hidden; zeros where all are. One by one: as arguments of
// Math.min there may be more than an engine takes.
/** @param {Iterable<number>} values */
export function rangeOf(values) {
  let [least, most] = [Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY];
  for (const value of values) {
    if (value < least) least = value;
    if (value > most) most = value;
  }
  return least <= most ? [least, most] : [0, 0];
}

// The cell to which a key moves from another one, at the edges the same; null for other keys.
/**
 * @param {string} key
 * @param {Cell} here
 * @param {number} rows
 * @param {number} columns
 * @returns {Cell | null}
 */
export function cellAfter(key, { row, column }, rows, columns) {
  if (key === "Home" || key === "End") return { row, column: key === "Home" ? 0 : columns - 1 };
  if (!(key in STEPS)) return null;
  const [down, right] = STEPS[key];
  /** @param {number} at @param {number} length */
  const within = (at, length) => Math.min(Math.max(at, 0), length - 1);
  return { row: within(row + down, rows), column: within(column + right, columns) };
}

export class MatrixGallery {
  /** @type {Record<string, { map: Heatmap, figure: HTMLElement, button: HTMLButtonElement }>} */
  pictures = {};
  /** @type {Record<string, GalleryMatrix>} */
  matrices = {};
  /** @type {string | null} */
  #largeName = null;
  /** @type {(Cell & { name: string }) | null} what is under the pointer or the keyboard */
  cell = null;
  /** @type {import("./theme.js").Theme | null} */
  theme = null;
  /** pixels of a small picture, and whether the names of rows and columns stand beside it */
  tall = SIDE;
  named = false;
  /** @type {{ name: string, from: Cell, to: Cell } | null} the corners of the cells that are being painted */
  area = null;
  tabled = false; // the numbers of the large one stand below it

  constructor() {
    this.root = make("section", "matrices");
    this.row = make("div", "six");
    this.large = make("div", "large");
    this.large.hidden = true;
    this.largeBar = make("div", "bar");
    this.reading = make("p", "reading");
    this.reading.setAttribute("aria-live", "polite");
    this.explanation = new ExplanationPanel(() => this.texts);
    this.root.append(this.row, this.reading, this.large, this.explanation.root);
    this.enlarged = new Heatmap();
    this.zoom = make("div", "zoom");
    this.table = make("div", "table");
    this.table.tabIndex = 0; // it scrolls
    this.table.setAttribute("role", "region");
    this.large.append(this.largeBar, this.enlarged.canvas, this.zoom, this.table);
    followFingers(this.enlarged, () => this.paints(this.largeName));
    this.enlarged.canvas.addEventListener("keydown", (event) => {
      if (!zoomByKey(this.enlarged, event.key)) return;
      event.preventDefault();
      event.stopPropagation();
    });
    this.#follow(this.enlarged, () => this.largeName);
    this.#walk(this.enlarged.canvas, () => this.largeName);
  }

  // The matrix that is large.
  get largeName() {
    return this.#largeName;
  }

  set largeName(name) {
    this.#largeName = name;
  }

  /** @returns {Record<string, string>} */
  get texts() {
    throw new Error("the words are those of who extends this");
  }

  get look() {
    return required(this.theme, "theme of these matrices");
  }

  // The focus, the size or the theme may have changed, or which matrix is large.
  update() {}

  // A cell of a matrix is pointed at, or none.
  /** @param {string | null} _name @param {Cell | null} _cell */
  point(_name, _cell) {}

  // A cell of the large matrix is chosen, perhaps with others.
  /** @param {string} _name @param {Cell} _cell @param {boolean} _more */
  choose(_name, _cell, _more) {}

  // Whether a press or a drag on a matrix paints its cells.
  /** @param {string | null} _name */
  paints(_name) {
    return false;
  }

  // The cells from one corner to another are painted.
  /** @param {string} _name @param {Cell} _from @param {Cell} _to */
  painted(_name, _from, _to) {}

  // Say where the number of a chosen cell comes from.
  /** @param {string} _name @param {Cell} _cell */
  explain(_name, _cell) {}

  // True if explanations are computed locally; then a click on a thumbnail explains as well.
  /** @param {string} _name */
  explainsAtOnce(_name) {
    return false;
  }

  /**
   * Other matrices, by their names, in this order.
   * @param {Record<string, GalleryMatrix>} matrices
   */
  show(matrices) {
    this.matrices = matrices;
    const names = Object.keys(matrices);
    if (this.cell && !isInside(this.cell, matrices[this.cell.name]?.numbers)) this.cell = null;
    if (this.largeName && !names.includes(this.largeName)) this.largeName = null;
    for (const name of names) this.pictures[name] ??= this.#picture(name);
    for (const name of Object.keys(this.pictures)) if (!names.includes(name)) delete this.pictures[name];
    const figures = names.map((name) => this.pictures[name].figure);
    if (figures.some((figure, at) => this.row.children[at] !== figure) || this.row.children.length > figures.length)
      this.row.replaceChildren(...figures);
    // Rows of one token stand at one height in all of them.
    const above = this.named ? Math.max(...names.map((name) => namesAbove(matrices[name].numbers, this.look))) : 0;
    for (const name of names) this.#small(name, above);
    this.#enlarge();
    oneTabStop(this.row);
  }

  /** @param {(name: string) => import("./heatmap.js").Marks} marks */
  paint(marks) {
    for (const [name, { map }] of Object.entries(this.pictures)) map.paint(this.look, marks(name));
    if (!this.largeName) return;
    if (this.cell?.name === this.largeName) this.enlarged.reveal(this.cell);
    this.enlarged.paint(this.look, marks(this.largeName));
  }

  /** @param {string} text */
  read(text) {
    if (this.reading.textContent !== text) this.reading.textContent = text;
  }

  /** @param {string} name */
  #picture(name) {
    const map = new Heatmap();
    const figure = make("figure");
    /** @param {MouseEvent} event */
    const press = (event) => {
      this.largeName = this.largeName === name ? null : name;
      this.update();
      if (!this.largeName) return;
      const isMouse = event instanceof PointerEvent && event.pointerType === "mouse"; // a finger covers many cells
      const cell = !this.named && isMouse ? map.at(event) : null;
      if (cell && this.explainsAtOnce(name)) this.explain(name, cell);
      this.large.scrollIntoView({ block: "nearest" });
    };
    const button = makeButton(this.named ? "⤢" : "", "", press);
    const caption = make("figcaption");
    caption.append(make("b"), " ", make("span"), " ", make("small"));
    if (this.named) {
      caption.append(button);
      figure.append(caption, map.canvas);
      this.#walk(map.canvas, () => name);
    } else {
      button.append(map.canvas);
      figure.append(button, caption);
    }
    this.#follow(map, () => name);
    return { map, figure, button };
  }

  /** @param {string} name @param {number} above */
  #small(name, above) {
    const { map, figure, button } = this.pictures[name];
    const { symbol, meaning, numbers, result, axes, hatched, span = 1 } = this.matrices[name];
    figure.style.gridColumn = `span ${span}`;
    const room = figure.clientWidth || this.tall;
    const width = this.named ? Math.min(room, widthOf(numbers, this.look, CELL.width)) : room;
    map.show(numbers, this.look, width, this.named ? this.tall : Math.min(width, this.tall), this.named, above);
    elementIn(figure, "b").textContent = `${result ? "→ " : ""}${symbol}`;
    elementIn(figure, "span").textContent = meaning;
    const masked = map.hidden && (hatched ?? this.texts.colours_masked);
    elementIn(figure, "small").textContent = [this.#colours(numbers), masked, axes].filter(Boolean).join(" · ");
    const described = this.#described(name);
    button.setAttribute("aria-label", this.named ? `${this.texts.matrices_enlarge}: ${described}` : described);
    button.setAttribute("aria-expanded", String(this.largeName === name));
    if (this.named) map.canvas.setAttribute("aria-label", described);
    map.canvas.classList.toggle("paints", this.paints(name));
  }

  /** @param {Numbers} numbers */
  #colours({ signed, end }) {
    return fill(signed ? this.texts.colours_signed : this.texts.colours_weights, { end: end.toPrecision(3) });
  }

  /** @param {string} name */
  #described(name) {
    const { symbol, meaning, numbers } = this.matrices[name];
    const [least, most] = rangeOf(numbers.values);
    const [low, high] = [least, most].map((value) => exact(Math.abs(value)));
    return fill(this.texts.matrix_alt, {
      what: [symbol, meaning].filter(Boolean).join(", "),
      rows: numbers.rows.length,
      columns: numbers.columns.length,
      low: least < 0 ? `−${low}` : low,
      high: most < 0 ? `−${high}` : high,
    });
  }

  // Pointing at a cell says its number; a press on one of the large picture chooses its tokens.
  /** @param {Heatmap} map @param {() => string | null} name */
  #follow(map, name) {
    map.canvas.addEventListener("pointermove", (event) => this.#at(name(), map.at(event)));
    map.canvas.addEventListener("pointerleave", () => this.#at(name(), null));
    if (map !== this.enlarged && !this.named) return;
    this.#paintAlong(map.canvas, name, (event) => map.at(event));
    map.canvas.addEventListener("click", (event) => {
      const [cell, pressed] = [map.at(event), name()];
      if (!cell || !pressed || this.paints(pressed)) return;
      this.cell = null;
      this.choose(pressed, cell, event.shiftKey || event.ctrlKey || event.metaKey);
      this.explain(pressed, cell);
    });
  }

  // A drag paints the cells between where it begins and where it ends; one that leaves the cells ends at the last.
  /**
   * @param {HTMLCanvasElement} canvas
   * @param {() => string | null} name
   * @param {(event: PointerEvent) => Cell | null} at
   */
  #paintAlong(canvas, name, at) {
    canvas.addEventListener("pointerdown", (event) => {
      const pressed = name();
      const cell = event.button === 0 && this.paints(pressed) ? at(event) : null;
      if (!cell || !pressed) return;
      canvas.setPointerCapture(event.pointerId);
      this.area = { name: pressed, from: cell, to: cell };
      this.point(pressed, cell);
    });
    canvas.addEventListener("pointerup", () => {
      if (!this.area) return;
      const { name: painted, from, to } = this.area;
      this.area = null;
      this.painted(painted, from, to);
      this.point(painted, to);
    });
    canvas.addEventListener("pointercancel", () => {
      this.area = null;
    });
  }

  // Arrow keys walk the cells of a picture with names, Enter chooses one, Esc makes the large one small.
  /** @param {HTMLCanvasElement} canvas @param {() => string | null} nameOf */
  #walk(canvas, nameOf) {
    canvas.tabIndex = 0;
    canvas.setAttribute("role", "application");
    canvas.removeAttribute("aria-hidden");
    canvas.addEventListener("keydown", (event) => {
      const name = nameOf();
      if (!name) return;
      const { rows, columns } = this.matrices[name].numbers;
      const here = this.cell?.name === name ? this.cell : null;
      const after = here ? cellAfter(event.key, here, rows.length, columns.length) : { row: 0, column: 0 };
      if (event.key === "Escape" && canvas === this.enlarged.canvas) this.#close();
      else if (event.key === "Enter" && here && this.paints(name)) this.painted(name, here, here);
      else if (event.key === "Enter" && here) {
        this.choose(name, here, event.shiftKey);
        this.explain(name, here);
        this.point(name, here); // the keyboard stays where it is
      } else if (after && (event.key in STEPS || here)) this.#at(name, after);
      else return;
      event.preventDefault();
      event.stopPropagation();
    });
    canvas.addEventListener("blur", () => this.#at(null, null));
  }

  /** @param {string | null} name @param {Cell | null} cell */
  #at(name, cell) {
    const before = JSON.stringify(this.cell);
    this.cell = cell && name ? { name, ...cell } : null;
    if (cell && this.area?.name === name) this.area.to = cell;
    if (JSON.stringify(this.cell) !== before) this.point(name, cell);
  }

  #close() {
    const name = this.largeName;
    this.largeName = null;
    this.update();
    if (name) this.pictures[name].button.focus({ preventScroll: true });
  }

  // One picture large, with the names of its rows and columns and, where there is room, its numbers.
  #enlarge() {
    const name = this.largeName;
    this.large.hidden = !name;
    this.enlarged.canvas.classList.toggle("paints", this.paints(name));
    if (!name) return;
    const { symbol, meaning, numbers } = this.matrices[name];
    this.enlarged.fit(numbers, this.look, this.root.clientWidth - 26, TALL, CELL);
    this.enlarged.canvas.setAttribute("aria-label", this.#described(name));
    renew(this.zoom, zoomTools(this.enlarged, this.texts));
    const files = FORMATS.map((format) => makeButton(format.toUpperCase(), "", () => save(this.#file(name), format)));
    const table = makeButton(this.texts.matrices_table, "", () => {
      this.tabled = !this.tabled;
      this.#tabulate(name, table);
    });
    this.#tabulate(name, table);
    const close = makeButton("✕", "", () => this.#close());
    close.setAttribute("aria-label", this.texts.matrices_close);
    const title = make("h3", "", `${symbol} ${meaning}`);
    renew(this.largeBar, [title, table, ...files, close]);
    oneTabStop(this.largeBar);
  }

  // The meaning of the hatching of the large picture, if it has one.
  /** @param {string} name */
  #hatched = (name) => {
    const words = this.matrices[name].hatched ?? this.texts.colours_masked;
    return this.enlarged.hidden ? [fill(this.texts.sentence, { words })] : [];
  };

  // The numbers of the large picture for those who do not see it, where they are asked for.
  /** @param {string} name @param {HTMLButtonElement} button */
  #tabulate(name, button) {
    const { symbol, meaning, numbers } = this.matrices[name];
    button.setAttribute("aria-pressed", String(this.tabled));
    this.table.hidden = !this.tabled;
    this.table.setAttribute("aria-label", `${symbol} ${meaning}`);
    this.table.replaceChildren(...(this.tabled ? [tableOf(numbers, this.texts.matrices_hidden)] : []));
  }

  // The large picture as a file: what of it is in sight, or its numbers as a table.
  /** @param {string} name @returns {import("../page/saving.js").Figure} */
  #file(name) {
    const { symbol, meaning, numbers, saved } = this.matrices[name];
    const theme = printTheme(this.root);
    return {
      printed: true,
      meta: { title: `${symbol} ${meaning}`, caption: [...this.#hatched(name), ...saved.caption], file: saved.file },
      look: () => theme,
      drawn: () => {
        const { width, height } = this.enlarged;
        const figure = makeSvg("svg", { width, height, viewBox: `0 0 ${width} ${height}` });
        figure.append(makeSvg("image", this.enlarged.printed(theme)));
        return { figure, width, height };
      },
      lines: () => linesOfMatrix(numbers),
    };
  }
}

/**
 * A matrix as a table.
 * @param {Numbers} numbers
 * @param {string} hidden what stands for no number
 */
function tableOf(numbers, hidden) {
  /** @type {(text: string, scope: "row" | "col") => HTMLElement} */
  const header = (text, scope) => Object.assign(make("th", "", text), { scope });
  /** @param {number} value */
  const written = (value) => (Number.isNaN(value) ? hidden : value.toPrecision(4));
  /** @param {HTMLElement[]} cells */
  const row = (...cells) => {
    const element = make("tr");
    element.append(...cells);
    return element;
  };
  const [table, head, body] = [make("table"), make("thead"), make("tbody")];
  head.append(row(make("td"), ...numbers.columns.map((name) => header(name, "col"))));
  numbers.rows.forEach((name, at) => {
    body.append(row(header(name, "row"), ...rowOf(numbers, at).map((value) => make("td", "", written(value)))));
  });
  table.append(head, body);
  return table;
}

/** @param {Cell} cell @param {Numbers | undefined} numbers */
const isInside = ({ row, column }, numbers) => numbers && row < numbers.rows.length && column < numbers.columns.length;

/** @param {Numbers} numbers @param {number} at */
const rowOf = ({ columns, values }, at) => [...values.subarray(at * columns.length, (at + 1) * columns.length)];

/**
 * A matrix as the lines of a table: its columns' names, then each row.
 * @param {Numbers} numbers
 * @returns {TableCell[][]}
 */
function linesOfMatrix(numbers) {
  return [["", ...numbers.columns], ...numbers.rows.map((name, at) => [name, ...rowOf(numbers, at)])];
}
