// Small pictures of matrices beside each other, one of them enlarged below on request, with the number under the pointer
// or the keyboard's cell, and files to save. The page says which matrices these are and what a press on a cell does.

import { claim, elementIn, make, makeButton, makeSvg, renew, treeOf, write } from "../page/elements.js";
import { arrowOf } from "../page/radios.js";
import { FORMATS, save } from "../page/saving.js";
import { oneTabStop } from "../page/tab_stop.js";
import { exact, fill } from "../page/wording.js";
import { CellPathPicture } from "./cell_path.js";
import { Heatmap, namesAbove, widthOf } from "./heatmap.js";
import { printTheme } from "./theme.js";
import { followFingers, zoomByKey, zoomTools } from "./zoom.js";

/** @typedef {import("./heatmap.js").Numbers} Numbers */
/** @typedef {import("./heatmap.js").Cell} Cell */
/** @typedef {import("../scene/highlight.js").Highlight} Highlight */
/** @typedef {import("../scene/highlight.js").HighlightKind} HighlightKind */

/**
 * A matrix with what it is called and what a file of it says.
 * @typedef {object} GalleryMatrix
 * @property {string} symbol
 * @property {string} meaning
 * @property {Numbers} numbers
 * @property {[HighlightKind | null, HighlightKind | null]} kinds what its rows and columns are, where that can be pointed at
 * @property {boolean} [result] it is made of those before it
 * @property {string | null} [hatched] the meaning of hatched cells, if they are not masked
 * @property {string} [axes] what its rows and its columns are, in words
 * @property {number} [span] so many times as wide as others in its row
 * @property {boolean} [paints] a press or a drag paints its cells
 * @property {{ caption: string[], file: string }} saved
 */

/**
 * The actions and the knowledge of the page around the matrices; a matrix goes by its name.
 * @typedef {object} GalleryOptions
 * @property {() => Record<string, string>} texts
 * @property {boolean} [named] names stand beside the small pictures, too, whose cells can then be pressed
 * @property {{ name: string | null }} [large] holds which matrix is large
 * @property {() => void} update the size has changed, or which matrix is large
 * @property {(name: string, cell: Cell, more: boolean) => void} press a cell is pressed, perhaps with others
 * @property {(name: string | null, cell: Cell | null, things: Highlight | null) => void} point a cell is pointed at, or none
 * @property {(name: string, from: Cell, to: Cell) => void} [paint] the cells from one corner to another are painted
 * @property {(name: string, isHere: boolean) => { rows: number[], columns: number[] }} marks what is in frames; a cell of
 *   it may be pointed at
 * @property {(cell: (Cell & { name: string }) | null) => string} read the sentence on a cell, or on what can be done
 */

const SIDE = 168; // pixels of a small picture
const TALL = 440; // of the cells of the large one
const CELL = { width: 56, height: 30 }; // pixels of the largest cell

// The least and the largest of the numbers that are not hidden; zeros where all are. One by one: as arguments of
// Math.min there may be more than an engine takes.
/** @param {ArrayLike<number>} values */
function rangeOf(values) {
  let [least, most] = [Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY];
  for (let at = 0; at < values.length; at++) {
    if (values[at] < least) least = values[at];
    if (values[at] > most) most = values[at];
  }
  return least <= most ? [least, most] : [0, 0];
}

// The cell to which a key moves from another one, at the edges the same; null for other keys.
/** @param {KeyboardEvent} event @param {Cell} here @param {number} rows @param {number} columns */
function cellAfter(event, { row, column }, rows, columns) {
  if (event.key === "Home" || event.key === "End") return { row, column: event.key === "Home" ? 0 : columns - 1 };
  const arrow = arrowOf(event);
  if (!arrow) return null;
  const [down, right] = arrow;
  /** @param {number} at @param {number} length */
  const within = (at, length) => Math.min(Math.max(at, 0), length - 1);
  return { row: within(row + down, rows), column: within(column + right, columns) };
}

export class MatrixGallery {
  /** @type {Record<string, { map: Heatmap, figure: HTMLElement, button: HTMLButtonElement }>} */
  pictures = {};
  /** @type {Record<string, GalleryMatrix>} */
  matrices = {};
  /** @type {(Cell & { name: string }) | null} what is under the pointer or the keyboard */
  cell = null;
  tall = SIDE; // pixels of a small picture
  /** @type {number[] | null} pixels from side to side of each; null until they are laid out for that */
  rooms = null;
  /** @type {{ name: string, from: Cell, to: Cell } | null} the corners of the cells that are being painted */
  area = null;
  tabled = false; // the numbers of the large one stand below it

  /** @param {GalleryOptions} options */
  constructor(options) {
    this.options = options;
    this.large = options.large ?? { name: null };
    this.row = make("div", options.named ? "six named" : "six");
    this.reading = Object.assign(make("p", "reading"), { ariaLive: "polite" });
    this.explanation = new CellPathPicture(options.texts);
    this.explanation.root.classList.add("framed");
    this.explanation.closed = () => {};
    this.theme = this.explanation.theme;
    this.enlarged = new Heatmap();
    this.largeBar = make("div", "bar");
    this.zoom = make("div", "zoom");
    this.table = Object.assign(make("div", "table"), { tabIndex: 0, role: "region" }); // it scrolls
    this.frame = make("div", "large", this.largeBar, this.enlarged.canvas, this.zoom, this.table);
    this.frame.hidden = true;
    this.root = make("section", "matrices", this.row, this.reading, this.frame, this.explanation.root);
    followFingers(this.enlarged, () => this.#paints(this.large.name));
    this.#listen(this.enlarged, () => this.large.name);
  }

  get texts() {
    return this.options.texts();
  }

  /** @param {string | null} name */
  #paints(name) {
    return Boolean(name && this.matrices[name]?.paints);
  }

  /**
   * Other matrices, by their names, in this order.
   * @param {Record<string, GalleryMatrix>} matrices
   */
  show(matrices) {
    const { cell, large, pictures, row } = this;
    this.matrices = matrices;
    const names = Object.keys(matrices);
    if (cell && !isInside(cell, matrices[cell.name]?.numbers)) this.cell = null;
    if (large.name && !names.includes(large.name)) large.name = null;
    for (const name of names) pictures[name] ??= this.#picture(name);
    for (const name of Object.keys(pictures)) if (!names.includes(name)) delete pictures[name];
    const figures = names.map((name) => pictures[name].figure);
    if (figures.some((figure, at) => row.children[at] !== figure) || row.children.length > figures.length) {
      row.replaceChildren(...figures);
      this.rooms = null;
    }
    // Rows of one token stand at one height in all of them.
    const { named } = this.options;
    const above = named ? Math.max(...names.map((name) => namesAbove(matrices[name].numbers, this.theme))) : 0;
    for (const name of names) pictures[name].figure.style.gridColumn = `span ${matrices[name].span ?? 1}`;
    const rooms = this.rooms ?? names.map((name) => pictures[name].figure.clientWidth || this.tall);
    this.rooms = rooms;
    names.forEach((name, nth) => {
      this.#small(name, rooms[nth], above);
    });
    this.#enlarge();
    this.explanation.update();
    oneTabStop(row);
  }

  // The frames, the cell that is pointed at, and the sentence on it.
  paint() {
    const { cell, enlarged, large, options, reading } = this;
    /** @param {string} name @param {Heatmap} map */
    const paint = (name, map) => {
      const area = this.area?.name === name ? this.area : null;
      const here = cell?.name === name ? cell : null;
      map.paint({ ...options.marks(name, Boolean(area ?? here)), cell: area ? null : here, area });
    };
    for (const [name, { map }] of Object.entries(this.pictures)) paint(name, map);
    if (large.name) {
      if (cell?.name === large.name) enlarged.reveal(cell);
      paint(large.name, enlarged);
    }
    write(reading, options.read(cell));
  }

  /** @param {string} name */
  #picture(name) {
    const { named, update } = this.options;
    const map = new Heatmap();
    const button = makeButton(named ? "⤢" : "", "", (event) => {
      if (event instanceof MouseEvent && event.detail > 1) return; // a double click is one click
      this.large.name = this.large.name === name ? null : name;
      update();
      if (this.large.name) this.frame.scrollIntoView({ block: "nearest" });
    });
    if (!named) button.append(map.canvas);
    const caption = make("figcaption", "", make("b"), " ", make("span"), " ", make("small"), named && button);
    const figure = make("figure", "", caption, named ? map.canvas : button);
    this.#listen(map, () => name);
    return { map, figure, button };
  }

  /** @param {string} name @param {number} room @param {number} above */
  #small(name, room, above) {
    const { theme, tall, texts } = this;
    const { named = false } = this.options;
    const { map, figure, button } = this.pictures[name];
    const { symbol, meaning, numbers, result, axes, hatched } = this.matrices[name];
    const width = named ? Math.min(room, widthOf(numbers, theme, CELL.width)) : room;
    map.show(numbers, theme, width, named ? tall : Math.min(width, tall), named, above);
    write(elementIn(figure, "b"), `${result ? "→ " : ""}${symbol}`);
    write(elementIn(figure, "span"), meaning);
    const colours = numbers.signed ? texts.colours_signed : texts.colours_weights;
    const notes = [fill(colours, { end: numbers.end.toPrecision(3) }), map.hidden && (hatched ?? texts.colours_masked)];
    write(elementIn(figure, "small"), [...notes, axes].filter(Boolean).join(" · "));
    const described = this.#described(name);
    button.ariaLabel = named ? `${texts.matrices_enlarge}: ${described}` : described;
    button.ariaExpanded = String(this.large.name === name);
    if (named) map.canvas.ariaLabel = described;
    map.canvas.classList.toggle("paints", this.#paints(name));
  }

  /** @param {string} name */
  #described(name) {
    const { symbol, meaning, numbers } = this.matrices[name];
    const [low, high] = rangeOf(numbers.values).map((value) => `${value < 0 ? "−" : ""}${exact(Math.abs(value))}`);
    const [rows, columns] = [numbers.rows.length, numbers.columns.length];
    const what = [symbol, meaning].filter(Boolean).join(", ");
    return fill(this.texts.matrix_alt, { what, rows, columns, low, high });
  }

  // A cell that is pointed at is read. In the large picture, and in those with names, a press or Enter chooses a cell, a
  // drag paints those between where it begins and where it ends, and arrow keys walk.
  /** @param {Heatmap} map @param {() => string | null} nameOf */
  #listen(map, nameOf) {
    const { canvas } = map;
    const { named, press } = this.options;
    canvas.addEventListener("pointermove", (event) => this.#at(nameOf(), map.at(event)));
    canvas.addEventListener("pointerleave", () => this.#at(nameOf(), null));
    if (map !== this.enlarged && !named) return;
    canvas.addEventListener("pointerdown", (event) => {
      const [name, cell] = [nameOf(), map.at(event)];
      if (event.button !== 0 || !name || !cell || !this.#paints(name)) return;
      canvas.setPointerCapture(event.pointerId);
      this.area = { name, from: cell, to: cell };
      this.#point(name, cell);
    });
    canvas.addEventListener("pointerup", () => {
      if (!this.area) return;
      const { name, from, to } = this.area;
      this.area = null;
      this.options.paint?.(name, from, to);
      this.#point(name, to);
    });
    canvas.addEventListener("pointercancel", () => {
      this.area = null;
    });
    canvas.addEventListener("click", (event) => {
      const [name, cell] = [nameOf(), map.at(event)];
      if (!name || !cell || this.#paints(name)) return;
      this.cell = null;
      press(name, cell, event.shiftKey || event.ctrlKey || event.metaKey);
    });
    Object.assign(canvas, { tabIndex: 0, role: "application", ariaHidden: null });
    canvas.addEventListener("keydown", (event) => {
      const name = nameOf();
      if (!name || !this.#pressKey(event, map, name)) return;
      claim(event);
    });
    canvas.addEventListener("blur", () => this.#at(null, null));
  }

  // Whether the key does something: keys zoom the large picture, and Esc closes what was opened last.
  /** @param {KeyboardEvent} event @param {Heatmap} map @param {string} name */
  #pressKey(event, map, name) {
    const { key, shiftKey, ctrlKey, metaKey, altKey } = event;
    if (ctrlKey || metaKey || altKey) return false;
    const isLarge = map === this.enlarged;
    if (isLarge && zoomByKey(map, key)) return true;
    const { rows, columns } = this.matrices[name].numbers;
    const here = this.cell?.name === name ? this.cell : null;
    const after = here ? cellAfter(event, here, rows.length, columns.length) : { row: 0, column: 0 };
    if (key === "Escape") return this.closeLast();
    if (key === "Enter" && here) {
      if (this.#paints(name)) this.options.paint?.(name, here, here);
      else {
        this.options.press(name, here, shiftKey);
        this.#point(name, here); // the keyboard stays where it is
      }
    } else if (after && (arrowOf(event) || here)) this.#at(name, after);
    else return false;
    return true;
  }

  /** @param {string | null} name @param {Cell | null} cell */
  #at(name, cell) {
    const before = JSON.stringify(this.cell);
    this.cell = cell && name ? { name, ...cell } : null;
    if (cell && this.area?.name === name) this.area.to = cell;
    if (JSON.stringify(this.cell) !== before) this.#point(name, cell);
  }

  // The things that the row and the column of a cell stand for are pointed at: tokens by their labels, heads and layers
  // by their numbers.
  /** @param {string | null} name @param {Cell | null} cell */
  #point(name, cell) {
    if (!name || !cell) return this.options.point(name, cell, null);
    const { kinds, numbers } = this.matrices[name];
    /** @type {[HighlightKind | null, string, number][]} */
    const axes = [
      [kinds[0], numbers.rows[cell.row], cell.row],
      [kinds[1], numbers.columns[cell.column], cell.column],
    ];
    /** @param {HighlightKind | null} kind */
    const isNumbered = (kind) => kind === "head" || kind === "layer";
    const things = axes.flatMap(([kind, label, at]) => (kind ? [[kind, isNumbered(kind) ? at + 1 : label]] : []));
    this.options.point(name, cell, Object.fromEntries(things));
  }

  // Closes the explanation of a number or, without one, the large picture; whether there was either.
  closeLast() {
    if (!this.explanation.explanation) return this.close();
    this.explanation.close();
    return true;
  }

  // The large picture becomes small; whether there was one.
  close() {
    const { name } = this.large;
    if (!name) return false;
    const hadKeys = this.frame.contains(treeOf(this.root).activeElement);
    this.large.name = null;
    this.options.update();
    if (hadKeys) this.pictures[name].button.focus({ preventScroll: true });
    return true;
  }

  // One picture large, with the names of its rows and columns and, where there is room, its numbers.
  #enlarge() {
    const { enlarged, texts } = this;
    const { name } = this.large;
    this.frame.hidden = !name;
    enlarged.canvas.classList.toggle("paints", this.#paints(name));
    if (!name) return;
    const { symbol, meaning, numbers } = this.matrices[name];
    enlarged.fit(numbers, this.theme, this.root.clientWidth - 26, TALL, CELL);
    enlarged.canvas.ariaLabel = this.#described(name);
    renew(this.zoom, zoomTools(enlarged, texts));
    const files = FORMATS.map((format) => makeButton(format.toUpperCase(), "", () => save(this.#file(name), format)));
    const table = makeButton(texts.matrices_table, "", () => {
      this.tabled = !this.tabled;
      this.#tabulate(name, table);
    });
    this.#tabulate(name, table);
    const close = Object.assign(
      makeButton("✕", "", () => this.close()),
      { ariaLabel: texts.matrices_close },
    );
    renew(this.largeBar, [make("h3", "", `${symbol} ${meaning}`), table, ...files, close]);
    oneTabStop(this.largeBar);
  }

  // The numbers of the large picture for those who do not see it, where they are asked for.
  /** @param {string} name @param {HTMLButtonElement} button */
  #tabulate(name, button) {
    const { symbol, meaning, numbers } = this.matrices[name];
    button.ariaPressed = String(this.tabled);
    Object.assign(this.table, { hidden: !this.tabled, ariaLabel: `${symbol} ${meaning}` });
    this.table.replaceChildren(...(this.tabled ? [tableOfMatrix(numbers, this.texts.matrices_hidden)] : []));
  }

  // The large picture as a file: what of it is in sight, or its numbers as a table.
  /** @param {string} name @returns {import("../page/saving.js").Figure} */
  #file(name) {
    const { enlarged, texts } = this;
    const { symbol, meaning, numbers, saved, hatched } = this.matrices[name];
    const theme = printTheme(this.root);
    const note = enlarged.hidden ? [fill(texts.sentence, { words: hatched ?? texts.colours_masked })] : [];
    return {
      printed: true,
      meta: {
        title: `${symbol} ${meaning}`,
        caption: [...note, ...saved.caption],
        file: saved.file,
        pixels: texts.pixels,
      },
      look: () => theme,
      legend: [enlarged.legend(theme)],
      drawn: () => {
        const { width, height } = enlarged;
        const look = { width, height, viewBox: `0 0 ${width} ${height}` };
        return { figure: makeSvg("svg", look, enlarged.printed(theme)), width, height };
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
function tableOfMatrix(numbers, hidden) {
  const [head, ...body] = linesOfMatrix(numbers).map((line, at) => {
    const cells = line.map((cell, nth) => {
      if (at && nth) return make("td", "", Number.isNaN(cell) ? hidden : Number(cell).toPrecision(4));
      if (!at && !nth) return make("td");
      return Object.assign(make("th", "", String(cell)), { scope: at ? "row" : "col" });
    });
    return make("tr", "", ...cells);
  });
  return make("table", "", make("thead", "", head), make("tbody", "", ...body));
}

/** @param {Cell} cell @param {Numbers | undefined} numbers */
const isInside = ({ row, column }, numbers) => numbers && row < numbers.rows.length && column < numbers.columns.length;

/** @param {Numbers} numbers @param {number} at */
const rowOf = ({ columns, values }, at) => [...values.subarray(at * columns.length, (at + 1) * columns.length)];

/**
 * A matrix as the lines of a table: its columns' names, then each row.
 * @param {Numbers} numbers
 * @returns {import("../page/saving.js").TableCell[][]}
 */
function linesOfMatrix(numbers) {
  return [["", ...numbers.columns], ...numbers.rows.map((name, at) => [name, ...rowOf(numbers, at)])];
}
