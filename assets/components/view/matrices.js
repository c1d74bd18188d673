// The six matrices of one head, below its lines: Q, K, V, scores, weights, output. They are computed from numbers that
// the browser has, so another head, layer or token needs no message to the server.

import { stepsTo } from "../numbers/explanation.js";
import { bySide, listOf, nothingIn } from "../numbers/panel.js";
import { make, makeChoice, renew } from "../page/elements.js";
import { exact, fill, isolated, lowered, paragraph, questionId } from "../page/wording.js";
import { largestOf } from "../pictures/colours.js";
import { MatrixGallery } from "../pictures/matrix_gallery.js";
import { CHOICES, MATRICES } from "../scene/schema.js";
import { withoutCell } from "../scene/what_if.js";

/** @typedef {import("../numbers/payload.js").Layer} Layer */
/** @typedef {import("../numbers/panel.js").Side} Side */
/** @typedef {import("../numbers/payload.js").PayloadPanel} PayloadPanel */
/** @typedef {import("../pictures/heatmap.js").Cell} Cell */
/** @typedef {import("../pictures/matrix_gallery.js").GalleryMatrix} GalleryMatrix */
/** @typedef {Partial<Record<Side, number>>} Pointed a token of each side, as a piece */
/** @typedef {[from: number, to: number]} Range the first, and one after the last */

const NO_MATRIX = CHOICES.matrix[0]; // the choice that none is large
const VECTORS = /** @type {const} */ (["q", "k", "v"]);
/** @type {(name: string) => name is typeof VECTORS[number]} */
const isVector = (name) => VECTORS.some((vector) => vector === name);
const ORDERS = ["number", "token", "variance"]; // of the dimensions of Q, K and V
const ENDS = ["each", "shared"]; // where the colours of Q, K and V end
const MAX_TOKENS = 128; // of each side that are drawn: of a longer text the part around the token in focus

/**
 * At most MAX_TOKENS of `length` positions with `around` as near their middle as possible: the first, and one after
 * the last.
 * @param {number} length
 * @param {number} around
 * @returns {Range}
 */
function windowAround(length, around) {
  if (length <= MAX_TOKENS) return [0, length];
  const from = Math.min(Math.max(around - MAX_TOKENS / 2, 0), length - MAX_TOKENS);
  return [from, from + MAX_TOKENS];
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
/** @param {Float32Array} values @param {number} width @param {string} order @param {number} row */
function orderOf(values, width, order, row) {
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

/** @param {number} at @param {Range} part */
const isWithin = (at, [from, to]) => at >= from && at < to;
// Positions inside a window, relative to its start.
/** @param {Iterable<number>} positions @param {Range} part */
const within = (positions, part) => [...positions].filter((at) => isWithin(at, part)).map((at) => at - part[0]);

export class HeadMatrices {
  state = { order: ORDERS[0], end: ENDS[0] };
  scene = "";
  explains = ""; // whose number is explained
  explained = ""; // and which: the matrix with the row and the column, from 1
  question = ""; // whose answer is awaited
  /** @type {(import("./head_view.js").Header | PayloadPanel[] | string)[]} the theme is the text */
  drawnFrom = [];
  /** @type {Record<Side, Range>} of each side the tokens that are drawn */
  parts = { query: [0, 0], key: [0, 0] };

  /** @param {import("./head_view.js").HeadView} view */
  constructor(view) {
    const { selection } = view;
    this.view = view;
    this.selection = selection;
    this.bar = make("div", "bar");
    /** @param {string | null} name */
    const enlarge = (name) => this.#moveFocus({ matrix: name ?? NO_MATRIX });
    this.gallery = new MatrixGallery({
      texts: () => this.texts,
      // The matrix that is large, and the number that is explained, are part of what the view looks at.
      large: {
        get name() {
          const { matrix } = selection.state;
          return matrix === NO_MATRIX ? null : matrix;
        },
        set name(name) {
          enlarge(name);
        },
      },
      update: () => this.update(),
      press: (name, cell, more) => this.#press(name, cell, more),
      point: (name, cell, things) =>
        view.point(selection.nth, name && cell ? this.#focusAt(name, cell) : null, things ?? {}),
      marks: (name) => this.#marks(name),
      read: (cell) => this.#read(cell),
    });
    this.root = this.gallery.root;
    this.gallery.explanation.closed = () => {
      [this.explained, this.question] = ["", ""]; // what the server still says about it is not shown
      this.#moveFocus({ number: "" });
    };
  }

  get texts() {
    return this.selection.header.texts;
  }

  /** @param {{ matrix?: string, number?: string }} changes */
  #moveFocus(changes) {
    const { state } = this.selection;
    const { matrix = state.matrix, number = state.number } = changes;
    if (matrix === state.matrix && number === state.number) return;
    Object.assign(state, { matrix, number });
    this.view.describe();
  }

  // The sentence in focus and its layer as they were sent: pieces are not joined, nothing is left out.
  get panel() {
    return this.selection.original[this.selection.nth];
  }

  get layer() {
    const [first] = this.panel.layers.values();
    const { panels } = this.selection;
    return this.panel.layers.get(this.selection.layer(panels[0]).number) ?? first;
  }

  // The theme or the numbers may be other ones; where they are not, what is drawn stays.
  draw() {
    const { selection } = this;
    const { theme } = this.view;
    this.gallery.theme = theme;
    const from = [selection.header, selection.original, JSON.stringify(theme)];
    if (from.some((one, at) => one !== this.drawnFrom[at])) Object.assign(this, { drawnFrom: from, scene: "" });
    this.update();
  }

  // The focus has moved. What it does not change is not computed anew.
  update() {
    const { focus, gallery, layer, root, selection } = this;
    const head = selection.chosenHead;
    root.hidden = !selection.header.matrices || !layer.heads.includes(head);
    this.bar.hidden = root.hidden;
    if (root.hidden || !this.view.width) return;
    if (this.explained && this.explains !== this.#place) gallery.explanation.close();
    const parts = { query: this.#part("query", focus), key: this.#part("key", focus) };
    const row = focus.query ?? focus.key ?? 0;
    const ordered = this.state.order === "token" ? row : null;
    const shown = [selection.nth, layer.number, head, parts, this.state, selection.state.fitted, gallery.large.name];
    const scene = JSON.stringify([...shown, ordered, this.view.width]);
    if (this.scene !== scene) {
      this.scene = scene;
      this.parts = parts;
      this.#compute(layer, head, focus);
    }
    this.#explainWhatIsAsked();
    gallery.paint();
  }

  // The number of the link, or of Back; one that is not in sight is left alone.
  #explainWhatIsAsked() {
    const { matrix, number } = this.selection.state;
    const drawn = this.gallery.matrices[matrix];
    const asked = number && drawn ? `${matrix} ${number}` : "";
    if (asked === this.explained) return;
    if (!asked) return this.gallery.explanation.close();
    this.explained = asked;
    const { rows, columns } = MATRICES[matrix];
    const [row, column] = number.split(",").map((at) => Number(at) - 1);
    const isColumn = columns ? isWithin(column, this.parts[columns]) : drawn.numbers.columns[column] !== undefined;
    if (isColumn && isWithin(row, this.parts[rows])) this.explain(matrix, { row, column });
  }

  // The tokens in focus, as pieces of the sentence; of several the last.
  get focus() {
    const panel = this.selection.panels[this.selection.nth];
    const { focus } = this.selection.of(panel);
    const last = focus?.tokens.at(-1);
    /** @type {Pointed} */
    const chosen = {};
    if (focus && last !== undefined) chosen[focus.side] = panel.pieceOf(focus.side, last);
    return { ...chosen, ...this.pointed };
  }

  // The tokens of the cell under the pointer.
  /** @returns {Pointed} */
  get pointed() {
    const { cell } = this.gallery;
    if (!cell) return {};
    const { rows, columns } = MATRICES[cell.name];
    const { row, column } = this.#placeOf(cell.name, cell);
    return { [rows]: row, ...(columns && { [columns]: column }) };
  }

  // A drawn cell as one of the whole matrix: dimensions may be in another order, and of a long text a part is drawn.
  /** @param {string} name @param {Cell} cell @returns {Cell} */
  #placeOf(name, { row, column }) {
    const { rows, columns } = MATRICES[name];
    const dimension = () => Number(this.gallery.matrices[name].numbers.columns[column]) - 1;
    return { row: this.parts[rows][0] + row, column: columns ? this.parts[columns][0] + column : dimension() };
  }

  /** @param {Side} side @param {Pointed} focus */
  #part(side, focus) {
    const same = this.panel.keys === this.panel.tokens;
    const around = focus[side] ?? (same ? (focus.query ?? focus.key) : 0) ?? 0;
    // While the pointer is on a cell the part stays where it is.
    if (this.gallery.cell) return this.parts[side];
    return windowAround(listOf(this.panel, side).length, around);
  }

  // The matrices that can be computed: of some layers only the weights are known.
  /** @param {Layer} layer @param {number} head @param {Pointed} focus */
  #compute(layer, head, focus) {
    const names = Object.keys(MATRICES).filter((name) => name === "weights" || (layer.q && layer.v));
    const matrices = Object.fromEntries(names.map((name) => [name, this.#matrix(layer, name, head, focus)]));
    if (this.state.end === "shared" && layer.q) {
      const vectors = VECTORS.map((name) => matrices[name].numbers);
      const end = Math.max(...vectors.map((numbers) => numbers.end));
      for (const numbers of vectors) numbers.end = end;
    }
    this.gallery.show(matrices);
    this.#top(layer, head);
  }

  /** @param {Layer} layer @param {string} name @param {number} head @param {Pointed} focus @returns {GalleryMatrix} */
  #matrix(layer, name, head, focus) {
    const { panel, parts, texts } = this;
    const { header, nth, state } = this.selection;
    const { symbol, rows, columns, signed } = MATRICES[name];
    /** @type {Range} */
    const range = columns ? parts[columns] : [0, layer.vector(isVector(name) ? name : "v", head, 0).length];
    const values = valuesOf(layer, name, head, parts[rows], range);
    const width = range[1] - range[0];
    const row = (focus[rows] ?? focus.query ?? focus.key ?? 0) - parts[rows][0];
    const order = columns ? [] : orderOf(values, width, isVector(name) ? this.state.order : ORDERS[0], row);
    const unknown = bySide(header.unknown?.[nth]);
    const number = layer.number + 1;
    // Query heads share keys and values, which have the number of their own head.
    const shared = header.kv && (name === "k" || name === "v") ? Math.floor((head * header.kv) / layer.nHeads) : head;
    return {
      symbol: symbol.replace("{}", lowered(shared + 1)),
      meaning: texts[`matrix_${name}`],
      numbers: {
        values: columns ? values : values.map((_, at) => values[at - (at % width) + order[at % width]]),
        rows: listOf(panel, rows).slice(...parts[rows]),
        columns: columns ? listOf(panel, columns).slice(...range) : order.map((at) => String(at + 1)),
        signed,
        end: !signed && !state.fitted ? 1 : largestOf(values),
        dim: rows === "query" ? within(nothingIn(header, nth, layer.number, [head]), parts.query) : [],
        unknown: {
          rows: within(unknown[rows], parts[rows]),
          columns: columns ? within(unknown[columns], parts[columns]) : [],
        },
      },
      kinds: [rows, columns],
      saved: {
        caption: [panel.title, `${header.source} · ${fill(texts.layer, { layer: number })} · Headscope`],
        file: `${header.file}-layer-${number}-head-${head + 1}-${name}`,
      },
    };
  }

  /** @param {Layer} layer @param {number} head */
  #top(layer, head) {
    const { texts } = this;
    const { nth, titles } = this.selection;
    const which = titles.length > 1 ? ` · ${isolated(titles[nth])}` : "";
    const title = make("h2", "", `${fill(texts.matrices, { head: head + 1, layer: layer.number + 1 })}${which}`);
    /** @param {"order" | "end"} name @param {string[]} options */
    const choice = (name, options) => {
      /** @param {string} value */
      const choose = (value) => {
        this.state[name] = value;
        this.update();
      };
      const label = texts[`matrices_${name}`];
      return makeChoice(label, options, this.state[name], choose, (value) => texts[`matrices_${name}_${value}`]);
    };
    renew(this.bar, layer.q ? [title, choice("order", ORDERS), choice("end", ENDS)] : [title]);
  }

  // The browser has what scores, weights and outputs are made of; X, the columns of W and all code are the server's.
  /** @param {string} name @param {Cell} cell of the whole matrix */
  explain(name, { row, column }) {
    const { layer, panel, texts } = this;
    const { explain: ask, steps: stepsOf } = this.view.page;
    const { explanation, matrices } = this.gallery;
    const { header, nth } = this.selection;
    const { edits, kv } = header;
    const { rows, columns } = MATRICES[name];
    const place = { head: this.selection.chosenHead, row, column };
    const [from, to] = [listOf(panel, rows)[row], columns ? listOf(panel, columns)[column] : column + 1];
    const where = { symbol: matrices[name].symbol, from, to };
    this.explains = this.#place;
    this.explained = `${name} ${row + 1},${column + 1}`;
    this.#moveFocus({ matrix: name, number: `${row + 1},${column + 1}` });
    const question = { name, panel: nth, layer: layer.number, ...place, id: questionId() };
    this.question = question.id;
    const ours = stepsTo(layer, columns ? "weights" : name, place, listOf(panel, "key"), texts.path_sink);
    const steps = ours ?? stepsOf?.(question) ?? null;
    if (!steps && ask) return ask(question);
    if (!steps) {
      const refusal = layer.q ? texts.path_alone : texts.matrices_only_weights;
      return explanation.showUpToIt({ ...where, refusal });
    }
    // The path of a score goes on to the weight, and that of a weight to the output.
    const beyond = columns &&
      layer.v && {
        mixed: { layer, place },
        stage: name === "scores" ? "products" : undefined,
        symbols: { q: matrices.q.symbol, k: matrices.k.symbol, output: matrices.output.symbol },
        shared: kv ? layer.nHeads / kv : 1,
        without: this.#without(place),
      };
    const value = name === "scores" ? steps[0].value : steps.at(-1)?.value;
    const whole = { ...where, id: question.id, value, steps, edits: edits?.[nth], ...beyond };
    explanation.showUpToIt(whole, ask ? () => ask(question) : null);
  }

  // The page on which the first sentence is computed without this edge, where that can be computed.
  /** @param {import("../numbers/explanation.js").Place} place */
  #without({ head, row, column }) {
    const text = this.selection.header.without;
    if (!text || this.selection.nth > 0) return null;
    return { text, href: withoutCell({ layer: this.layer.number, head, row, column }) };
  }

  // Shows what the server says about the number that was asked for last.
  /** @param {import("../numbers/explanation.js").Explanation | null} [explanation] */
  answer(explanation) {
    if (explanation && explanation.id === this.question) this.gallery.explanation.answer(explanation);
  }

  // Identifies these numbers, so that an explanation of others is removed.
  get #place() {
    const { chosenHead, nth } = this.selection;
    return JSON.stringify([nth, this.layer.number, chosenHead, this.panel.tokens]);
  }

  // A press chooses the token of the row and says where the number comes from.
  /** @param {string} name @param {Cell} cell @param {boolean} more */
  #press(name, cell, more) {
    const { side, tokens } = this.#focusAt(name, cell);
    const place = this.#placeOf(name, cell); // before another part of a long text is drawn
    const { nth, pinned } = this.selection;
    const held = pinned?.[nth];
    const isHeld = !more && held?.side === side && String(held.tokens) === String(tokens); // and stays so
    if (!isHeld) this.view.choose(nth, side, tokens[0], more);
    this.explain(name, place);
  }

  // The token of a cell's row.
  /** @param {string} name @param {Cell} cell @returns {import("../scene/focus.js").Focus} */
  #focusAt(name, { row }) {
    const side = MATRICES[name].rows;
    const { nth, panels } = this.selection;
    return { side, tokens: [panels[nth].wordOf(side, this.parts[side][0] + row)] };
  }

  /** @param {string} name */
  #marks(name) {
    const { focus, parts } = this;
    /** @param {Side | null} side */
    const inside = (side) => (side ? within([focus[side] ?? -1], parts[side]) : []);
    return { rows: inside(MATRICES[name].rows), columns: inside(MATRICES[name].columns) };
  }

  // The numbers of the cell under the pointer; without one, what to do.
  /** @param {(Cell & { name: string }) | null} cell @returns {string} */
  #read(cell) {
    const { layer, panel, texts } = this;
    if (!cell) return paragraph([!layer.q && texts.matrices_only_weights, texts.matrices_how], texts);
    const { name, row, column } = cell;
    const { query = -1, key = -1 } = this.pointed;
    const head = this.selection.chosenHead;
    const [from, to] = [panel.tokens[query], panel.keys[key]].map((token) => isolated(token ?? ""));
    if (!MATRICES[name].columns) {
      const { symbol } = this.gallery.matrices[name];
      const { map } = this.gallery.pictures[name];
      const value = map.value({ row, column }).toPrecision(4);
      const token = MATRICES[name].rows === "key" ? to : from;
      return fill(texts.matrices_number, { symbol, token, number: map.numbers.columns[column], value });
    }
    const seen = !layer.q || layer.sees(head, query, key);
    const weight = seen ? exact(layer.row(head, query)[key]) : "0";
    if (!layer.q) {
      const who = fill(texts.one_head, { heads: head + 1 });
      return fill(texts.cell, { from, to, who, value: weight });
    }
    const score = layer.score(head, query, key);
    const scaled = (score * layer.rule.scale).toPrecision(4);
    const template = seen ? texts.matrices_cell : texts.matrices_cell_hidden;
    return fill(template, { from, to, score: score.toPrecision(4), scaled, weight });
  }
}
