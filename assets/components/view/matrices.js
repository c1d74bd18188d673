// The six matrices of one head, below its lines: Q, K, V, scores, weights, output. They are computed from numbers that
// the browser has, so another head, layer or token needs no message to the server.

import { stepsTo } from "../numbers/explanation.js";
import { listOf, nothingIn, unknownIn } from "../numbers/panel.js";
import { make, renew, required } from "../page/elements.js";
import { exact, fill, isolated, questionId } from "../page/wording.js";
import { largestOf, MatrixGallery } from "../pictures/matrix_gallery.js";
import { CHOICES, MATRICES } from "../scene/schema.js";
import { withoutCell } from "../scene/what_if.js";

/** @typedef {import("./selection.js").Selection} Selection */
/** @typedef {import("../numbers/explanation.js").Explanation} Explanation */
/** @typedef {import("../numbers/explanation.js").Place} Place */
/** @typedef {import("../scene/focus.js").Focus} Focus */
/** @typedef {import("./head_view.js").PageActions} PageActions */

/**
 * The actions of the view when a cell is pressed or pointed at: choose a token, or focus the tokens of the cell.
 * @typedef {object} CellReply
 * @property {(nth: number, side: Side, token: number, more: boolean) => void} choose
 * @property {(nth: number, focus: Focus | null, labels: Partial<Record<Side, string>>) => void} point
 * @property {() => void} describe the focus may have changed
 */
/** @typedef {import("../numbers/payload.js").Layer} Layer */
/** @typedef {import("../numbers/panel.js").Side} Side */
/** @typedef {import("../numbers/payload.js").PayloadPanel} PayloadPanel */
/** @typedef {import("../pictures/heatmap.js").Cell} Cell */
/** @typedef {import("../pictures/heatmap.js").Numbers} Numbers */
/** @typedef {import("../pictures/theme.js").Theme} Theme */
/** @typedef {Partial<Record<Side, number>>} Pointed a token of each side, as a piece */
/** @typedef {[from: number, to: number]} Range the first, and one after the last */

const NO_MATRIX = CHOICES.matrix[0]; // is large
const VECTORS = /** @type {const} */ (["q", "k", "v"]);
/** @type {(name: string) => name is typeof VECTORS[number]} */
const isVector = (name) => VECTORS.some((vector) => vector === name);
const ORDERS = ["number", "token", "variance"]; // of the dimensions of Q, K and V
const ENDS = ["each", "shared"]; // where the colours of Q, K and V end
const MAX_TOKENS = 128; // of each side that are drawn: of a longer text the part around the token in focus

/**
 * At most `size` of `length` positions with `around` as near their middle as possible: the first, and one after
 * the last.
 * @param {number} length
 * @param {number} around
 * @param {number} size
 * @returns {Range}
 */
export function windowAround(length, around, size = MAX_TOKENS) {
  if (length <= size) return [0, length];
  const from = Math.min(Math.max(around - Math.floor(size / 2), 0), length - size);
  return [from, from + size];
}

/**
 * The numbers of a matrix for rows and columns from..to (tokens) or all dimensions; NaN where a mask hides a weight.
 * @param {Layer} layer
 * @param {string} name
 * @param {number} head
 * @param {Range} rows
 * @param {Range} columns
 */
export function valuesOf(layer, name, head, [top, bottom], [left, right]) {
  const values = new Float32Array((bottom - top) * (right - left));
  for (let row = top; row < bottom; row++) {
    const at = (row - top) * (right - left);
    if (name === "scores" || name === "weights") {
      const weights = name === "weights" ? layer.row(head, row) : null;
      for (let key = left; key < right; key++) {
        const seen = !weights || layer.sees(head, row, key);
        values[at + key - left] = weights ? (seen ? weights[key] : NaN) : layer.score(head, row, key);
      }
    } else values.set(isVector(name) ? layer.vector(name, head, row) : layer.output(head, row), at);
  }
  return values;
}

// The columns with the largest numbers first: by the numbers of one row, or by how much a column differs.
/**
 * @param {Float32Array} values
 * @param {number} width
 * @param {string} order
 * @param {number} row
 */
export function orderOf(values, width, order, row) {
  const columns = Array.from({ length: width }, (_, column) => column);
  if (order === "number") return columns;
  const height = values.length / width;
  const sizes = columns.map((column) => {
    if (order === "token") return values[row * width + column];
    const numbers = Array.from({ length: height }, (_, at) => values[at * width + column]);
    const mean = numbers.reduce((sum, value) => sum + value, 0) / height;
    return numbers.reduce((sum, value) => sum + (value - mean) ** 2, 0) / height;
  });
  return columns.sort((a, b) => sizes[b] - sizes[a] || a - b);
}

// Positions inside a window, relative to its start.
/** @param {number[]} positions @param {Range} part */
const within = (positions, [from, to]) => positions.filter((at) => at >= from && at < to).map((at) => at - from);

/** @param {number} number */
const subscript = (number) => [...String(number)].map((digit) => String.fromCharCode(0x2080 + Number(digit))).join("");

export class HeadMatrices extends MatrixGallery {
  state = { order: ORDERS[0], end: ENDS[0] };
  /** @type {Pointed} the tokens of the cell under the pointer */
  pointed = {};
  scene = "";
  explains = ""; // whose number is explained
  explained = ""; // and which: the matrix with the row and the column, from 1
  question = ""; // whose answer is awaited
  /** @type {(import("./head_view.js").Header | PayloadPanel[] | string)[]} the theme is the text */
  drawnFrom = [];
  /** @type {Record<Side, Range>} of each side the tokens that are drawn */
  parts = { query: [0, 0], key: [0, 0] };

  /** @type {PageActions["explain"] | null} */
  ask = null;

  /**
   * @param {Selection} selection
   * @param {CellReply} reply
   */
  constructor(selection, reply) {
    super();
    this.selection = selection;
    this.reply = reply;
    this.bar = make("div", "bar");
    this.explanation.closed = () => {
      this.explained = "";
      this.#moveFocus({ number: "" });
    };
  }

  get texts() {
    return this.selection.header.texts;
  }

  // The matrix that is large, and the number that is explained, are part of what the view looks at.
  get largeName() {
    const { matrix } = this.selection.state;
    return matrix === NO_MATRIX ? null : matrix;
  }

  set largeName(name) {
    this.#moveFocus({ matrix: name ?? NO_MATRIX });
  }

  /** @param {{ matrix?: string, number?: string }} changes */
  #moveFocus(changes) {
    const { state } = this.selection;
    const { matrix = state.matrix, number = state.number } = changes;
    if (matrix === state.matrix && number === state.number) return;
    Object.assign(state, { matrix, number });
    this.reply.describe();
  }

  // A sentence whose numbers are here, and its layer as it was sent: pieces are not joined, nothing is left out.
  get nth() {
    return this.selection.nth;
  }

  get panel() {
    return this.selection.original[this.nth] ?? this.selection.original[0];
  }

  // The layer as it was sent; null where a page does not draw matrices.
  /** @returns {Layer | null} */
  get layer() {
    const { header, panels } = this.selection;
    const layer = this.panel?.layers.get(this.selection.layer(panels[0]).number) ?? null;
    return header.matrices ? layer : null;
  }

  get #layerHere() {
    return required(this.layer, "layer of these matrices");
  }

  // The matrices that can be computed: of some layers only the weights are known.
  /** @param {Layer} layer */
  namesOf = (layer) => Object.keys(MATRICES).filter((name) => name === "weights" || (layer.q && layer.v));

  // The source of these numbers, for the picture of all heads, which is drawn anew when this is.
  get shown() {
    const { layer, panel, nth, theme, drawnFrom } = this;
    return { layer, panel, nth, theme, drawnFrom };
  }

  // The theme or the numbers may be other ones; where they are not, what is drawn stays.
  /**
   * @param {Theme} theme
   * @param {PageActions} page
   */
  draw(theme, { explain = null }) {
    const { selection } = this;
    this.theme = theme;
    this.ask = explain;
    const from = [selection.header, selection.original, JSON.stringify(theme)];
    if (from.some((one, at) => one !== this.drawnFrom[at])) Object.assign(this, { drawnFrom: from, scene: "" });
    this.update();
  }

  // The focus has moved. What it does not change is not computed anew.
  update() {
    const { layer } = this;
    const { selection } = this;
    const head = selection.chosenHead;
    this.root.hidden = !layer?.heads.includes(head);
    this.bar.hidden = this.root.hidden;
    if (!layer || this.root.hidden || !this.theme || !this.root.clientWidth) return;
    if (this.explained && this.explains !== this.#place) this.explanation.close();
    const focus = this.focus;
    const parts = { query: this.#part("query", focus), key: this.#part("key", focus) };
    const row = focus.query ?? focus.key ?? 0;
    const ordered = this.state.order === "token" ? row : null;
    const width = this.root.clientWidth;
    const scene = JSON.stringify([
      this.nth,
      layer.number,
      head,
      parts,
      this.state,
      selection.state.fitted,
      this.largeName,
      ordered,
      width,
    ]);
    if (this.scene !== scene) {
      this.scene = scene;
      this.#compute(layer, head, parts, focus);
    }
    this.#explainWhatIsAsked();
    this.paint((name) => this.#marks(name, focus));
    this.read(this.cell ? this.#cellText(this.cell) : this.#how(layer));
  }

  // The number of the link, or of Back; one that is not in sight is left alone.
  #explainWhatIsAsked() {
    const { matrix, number } = this.selection.state;
    const asked = number && this.matrices[matrix] ? `${matrix} ${number}` : "";
    if (asked === this.explained) return;
    if (!asked) return this.explanation.close();
    const { rows, columns } = MATRICES[matrix];
    const { numbers } = this.matrices[matrix];
    const [row, column] = number.split(",").map((at) => Number(at) - 1);
    const cell = {
      row: row - this.parts[rows][0],
      column: columns ? column - this.parts[columns][0] : numbers.columns.indexOf(String(column + 1)),
    };
    this.explained = asked;
    const isHere = numbers.rows[cell.row] !== undefined && numbers.columns[cell.column] !== undefined;
    if (isHere) this.explain(matrix, cell);
  }

  // The tokens in focus, as pieces of the sentence; of several the last.
  get focus() {
    const { panels } = this.selection;
    const panel = panels[this.nth] ?? panels[0];
    const { focus } = this.selection.of(panel);
    const last = focus?.tokens.at(-1);
    /** @type {Pointed} */
    const chosen = {};
    if (focus && last !== undefined) chosen[focus.side] = panel.pieceOf(focus.side, last);
    return { ...chosen, ...(this.cell ? this.pointed : {}) };
  }

  /** @param {Side} side @param {Pointed} focus */
  #part(side, focus) {
    const same = this.panel.keys === this.panel.tokens;
    const around = focus[side] ?? (same ? (focus.query ?? focus.key) : 0) ?? 0;
    // While the pointer is on a cell the part stays where it is.
    if (this.cell) return this.parts[side];
    return windowAround(listOf(this.panel, side).length, around);
  }

  /**
   * @param {Layer} layer
   * @param {number} head
   * @param {Record<Side, Range>} parts
   * @param {Pointed} focus
   */
  #compute(layer, head, parts, focus) {
    this.parts = parts;
    const { header } = this.selection;
    /** @type {Record<string, Numbers>} */
    const numbers = {};
    const names = this.namesOf(layer);
    const unknown = unknownIn(header, this.nth);
    for (const name of names) {
      const { rows, columns, signed } = MATRICES[name];
      /** @type {Range} */
      const range = columns ? parts[columns] : [0, layer.vector(isVector(name) ? name : "v", head, 0).length];
      const values = valuesOf(layer, name, head, parts[rows], range);
      const width = range[1] - range[0];
      const row = (focus[rows] ?? focus.query ?? focus.key ?? 0) - parts[rows][0];
      const order = isVector(name) ? orderOf(values, width, this.state.order, row) : null;
      numbers[name] = {
        values: order ? values.map((_, at) => values[at - (at % width) + order[at % width]]) : values,
        rows: listOf(this.panel, rows).slice(...parts[rows]),
        columns: columns
          ? listOf(this.panel, columns).slice(...range)
          : (order ?? Array.from({ length: width }, (_, at) => at)).map((at) => String(at + 1)),
        signed,
        end: !signed && !this.selection.state.fitted ? 1 : largestOf(values),
        dim: rows === "query" ? within(nothingIn(header, this.nth, layer.number, [head]), parts.query) : [],
        unknown: {
          rows: within(unknown[rows], parts[rows]),
          columns: columns ? within(unknown[columns], parts[columns]) : [],
        },
      };
    }
    if (this.state.end === "shared" && layer.q) {
      const shared = Math.max(...VECTORS.map((name) => numbers[name].end));
      for (const name of VECTORS) numbers[name].end = shared;
    }
    this.#top(layer, head);
    this.show(Object.fromEntries(names.map((name) => [name, this.#matrix(name, numbers[name], layer, head)])));
  }

  /**
   * @param {string} name
   * @param {Numbers} numbers
   * @param {Layer} layer
   * @param {number} head
   * @returns {import("../pictures/matrix_gallery.js").GalleryMatrix}
   */
  #matrix(name, numbers, layer, head) {
    const { texts } = this;
    const { source: origin, file } = this.selection.header;
    const own = name === "k" || name === "v" ? this.#keyHead(layer, head) : head;
    const source = `${origin} · ${fill(texts.layer, { layer: layer.number + 1 })} · Headscope`;
    return {
      symbol: MATRICES[name].symbol.replace("{}", subscript(own + 1)),
      meaning: texts[`matrix_${name}`],
      numbers,
      saved: {
        caption: [this.panel.title, source],
        file: `${file}-layer-${layer.number + 1}-head-${head + 1}-${name}`,
      },
    };
  }

  // Query heads share keys and values: the number of the head of keys and values.
  /** @param {Layer} layer @param {number} head */
  #keyHead(layer, head) {
    const { kv } = this.selection.header;
    return kv ? Math.floor((head * kv) / layer.nHeads) : head;
  }

  /** @param {Layer} layer @param {number} head */
  #top(layer, head) {
    const { texts } = this;
    const { panels, titles } = this.selection;
    const which = panels.length > 1 ? ` · ${isolated(titles[this.nth] ?? this.panel.title)}` : "";
    const title = make("h2", "", `${fill(texts.matrices, { head: head + 1, layer: layer.number + 1 })}${which}`);
    /** @param {"order" | "end"} name @param {string[]} options */
    const choice = (name, options) => {
      const label = make("label", "", texts[`matrices_${name}`]);
      const select = make("select");
      select.append(...options.map((value) => option(texts[`matrices_${name}_${value}`], value, this.state[name])));
      select.onchange = () => {
        this.state[name] = select.value;
        this.update();
      };
      label.append(select);
      return label;
    };
    renew(this.bar, layer.q ? [title, choice("order", ORDERS), choice("end", ENDS)] : [title]);
  }

  // The browser has what scores, weights and outputs are made of; X, the columns of W and all code are the server's.
  /** @param {string} name @param {Cell} cell */
  explain(name, cell) {
    const { panel, texts } = this;
    const layer = this.#layerHere;
    const { rows, columns } = MATRICES[name];
    const { numbers } = this.matrices[name];
    const row = this.parts[rows][0] + cell.row;
    const column = columns ? this.parts[columns][0] + cell.column : Number(numbers.columns[cell.column]) - 1;
    const place = { head: this.selection.chosenHead, row, column };
    const [from, to] = [listOf(panel, rows)[row], columns ? listOf(panel, columns)[column] : column + 1];
    const where = { symbol: this.matrices[name].symbol, from, to };
    this.explains = this.#place;
    this.explained = `${name} ${row + 1},${column + 1}`;
    this.#moveFocus({ matrix: name, number: `${row + 1},${column + 1}` });
    const { ask } = this;
    const question = { name, panel: this.nth, layer: layer.number, ...place, id: questionId() };
    this.question = question.id;
    const steps = stepsTo(layer, name, place, listOf(panel, "key"), texts.explain_sink);
    if (steps) {
      const edits = this.selection.header.edits?.[this.nth];
      const without = name === "output" ? null : this.#without(place);
      const value = steps.at(-1)?.value;
      const ours = { ...where, id: question.id, value, steps, edits, without };
      return this.explanation.show(ours, ask && (() => ask(question)));
    }
    if (ask) return ask(question);
    this.explanation.show({ ...where, refusal: layer.q ? texts.explain_alone : texts.matrices_only_weights });
  }

  /** @param {string} name */
  explainsAtOnce(name) {
    return Boolean(this.#layerHere.q) && !isVector(name);
  }

  // The page on which the first sentence is computed without this edge, where there is a server that can.
  /** @param {Place} place */
  #without({ head, row, column }) {
    const text = this.selection.header.without;
    if (!text || !this.ask || this.nth > 0) return null;
    return { text, href: withoutCell({ layer: this.#layerHere.number, head, row, column }) };
  }

  // Shows what the server says about the number that was asked for last.
  /** @param {Explanation | null} [explanation] */
  answer(explanation) {
    if (explanation && explanation.id === this.question) this.explanation.answer(explanation);
  }

  // Identifies these numbers, so that an explanation of others is removed.
  get #place() {
    return JSON.stringify([this.nth, this.layer?.number, this.selection.chosenHead, this.panel.title]);
  }

  /** @param {string} name @param {Cell} cell @param {boolean} more */
  choose(name, cell, more) {
    const { side, at } = this.#tokenAt(name, cell);
    this.pointed = {};
    const held = this.selection.pinned?.[this.nth];
    if (!more && held?.side === side && held.tokens.length === 1 && held.tokens[0] === at) return; // and stays so
    this.reply.choose(this.nth, side, at, more);
  }

  /** @param {string} name @param {Cell} cell @returns {{ side: Side, at: number }} */
  #tokenAt(name, { row }) {
    const side = MATRICES[name].rows;
    return { side, at: this.selection.panels[this.nth].wordOf(side, this.parts[side][0] + row) };
  }

  // The tokens of the cell are lit in every picture.
  /** @param {string | null} name @param {Cell | null} cell */
  point(name, cell) {
    this.pointed = {};
    if (!cell || !name) return this.reply.point(this.nth, null, {});
    const { rows, columns } = MATRICES[name];
    /** @type {Partial<Record<Side, string>>} */
    const labels = {};
    /** @param {Side} side @param {number} at */
    const pointAt = (side, at) => {
      this.pointed[side] = at;
      labels[side] = listOf(this.panel, side)[at];
    };
    pointAt(rows, this.parts[rows][0] + cell.row);
    if (columns) pointAt(columns, this.parts[columns][0] + cell.column);
    const { side, at } = this.#tokenAt(name, cell);
    this.reply.point(this.nth, { side, tokens: [at] }, labels);
  }

  /** @param {string} name @param {Pointed} focus @returns {import("../pictures/heatmap.js").Marks} */
  #marks(name, focus) {
    const { rows, columns } = MATRICES[name];
    /** @param {Side | null} side */
    const inside = (side) => {
      const at = side ? focus[side] : undefined;
      const [from, to] = side ? this.parts[side] : [0, 0];
      return at !== undefined && at >= from && at < to ? [at - from] : [];
    };
    return { rows: inside(rows), columns: inside(columns), cell: this.cell?.name === name ? this.cell : null };
  }

  // Without a cell under the pointer: what to do.
  /** @param {Layer} layer */
  #how = (layer) =>
    layer.q ? this.texts.matrices_how : `${this.texts.matrices_only_weights} ${this.texts.matrices_how}`;

  /** @param {Cell & { name: string }} cell */
  #cellText({ name, row, column }) {
    const { query = -1, key = -1 } = this.pointed;
    const { texts } = this;
    const layer = this.#layerHere;
    const head = this.selection.chosenHead;
    const [from, to] = [query, key].map((at, nth) => isolated(listOf(this.panel, nth ? "key" : "query")[at] ?? ""));
    const { symbol } = this.matrices[name];
    if (MATRICES[name].columns) {
      if (!layer.q)
        return fill(texts.cell, {
          from,
          to,
          who: fill(texts.one_head, { heads: head + 1 }),
          value: exact(layer.row(head, query)[key]),
        });
      const score = layer.score(head, query, key);
      const scaled = (score * layer.rule.scale).toPrecision(4);
      const [template, weight] = layer.sees(head, query, key)
        ? [texts.matrices_cell, exact(layer.row(head, query)[key])]
        : [texts.matrices_cell_hidden, "0"];
      return fill(template, { from, to, score: score.toPrecision(4), scaled, weight });
    }
    const { map } = this.pictures[name];
    const value = map.value({ row, column }).toPrecision(4);
    const token = MATRICES[name].rows === "key" ? to : from;
    return fill(texts.matrices_number, { symbol, token, number: map.numbers.columns[column], value });
  }
}

/** @param {string} text @param {string} value @param {string} chosen */
function option(text, value, chosen) {
  return Object.assign(make("option", "", text), { value, selected: value === chosen });
}
