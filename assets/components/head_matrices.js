// The six matrices of one head beneath its lines: Q, K, V, scores, weights, output. They are computed from the
// numbers that the view has, so that another head, layer or token asks nobody.
import { themeColours } from "./colours.js";
import { make, makeButton, makeSvg, renew } from "./elements.js";
import { Heatmap } from "./heatmap.js";
import { listOf } from "./panel.js";
import { save } from "./saving.js";
import { exact, fill, isolated } from "./text.js";

/** @typedef {import("./head_view.js").HeadView} HeadView */
/** @typedef {import("./payload.js").Layer} Layer */
/** @typedef {"query" | "key"} Side */

// What the rows and the columns of each are: tokens of a side, or dimensions (null).
/** @type {Record<string, { symbol: string, rows: Side, columns: Side | null }>} */
const MATRICES = {
  q: { symbol: "Q", rows: "query", columns: null },
  k: { symbol: "K", rows: "key", columns: null },
  v: { symbol: "V", rows: "key", columns: null },
  scores: { symbol: "S", rows: "query", columns: "key" },
  weights: { symbol: "A", rows: "query", columns: "key" },
  output: { symbol: "head", rows: "query", columns: null },
};
const VECTORS = ["q", "k", "v"];
const ORDERS = ["number", "token", "variance"]; // of the dimensions of Q, K and V
const ENDS = ["each", "shared"]; // where the colours of Q, K and V end
const MAX_TOKENS = 128; // of each side that are drawn: of a longer text the part around the token in focus
const SIDE = 168; // pixels of a small picture
const TALL = 440; // of the large one
const CELL = { width: 56, height: 30 };

/**
 * At most `size` of `length` positions with `around` as near their middle as possible: the first, and one after
 * the last.
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
 * @param {number[]} rows
 * @param {number[]} columns
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
    } else values.set(name === "output" ? layer.output(head, row) : layer.vector(name, head, row), at);
  }
  return values;
}

// The columns with the largest numbers first: by the numbers of one row, or by how much a column differs.
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

const largestOf = (values) => values.reduce((most, value) => Math.max(most, Math.abs(value) || 0), 0);

// The least and the largest of the numbers that are not hidden; zeros where all are. One by one: as arguments of
// Math.min there may be more than an engine takes.
export function rangeOf(values) {
  let [least, most] = [Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY];
  for (const value of values) {
    if (value < least) least = value;
    if (value > most) most = value;
  }
  return least <= most ? [least, most] : [0, 0];
}

const subscript = (number) => [...String(number)].map((digit) => String.fromCharCode(0x2080 + Number(digit))).join("");

export class HeadMatrices {
  state = { large: /** @type {string | null} */ (null), order: ORDERS[0], end: ENDS[0] };
  /** @type {{ query?: number, key?: number, name: string, row: number, column: number } | null} */
  cursor = null;
  /** @type {Record<string, { map: Heatmap, figure: HTMLElement }>} */
  pictures = {};
  /** @type {import("./heatmap.js").Look | null} */
  theme = null;
  scene = "";
  /** @type {Record<Side, number[]> | null} of each side the tokens that are drawn */
  parts = null;

  /** @param {HeadView} view */
  constructor(view) {
    this.view = view;
    this.root = make("section", "matrices");
    this.bar = make("div", "bar");
    this.row = make("div", "six");
    this.large = make("div", "large");
    this.reading = make("p", "reading");
    this.reading.setAttribute("aria-live", "polite");
    this.root.append(this.row, this.reading, this.large);
    for (const name of Object.keys(MATRICES)) this.pictures[name] = this.#picture(name);
    this.row.append(...Object.values(this.pictures).map(({ figure }) => figure));
    this.enlarged = new Heatmap();
    this.#follow(this.enlarged, () => this.state.large);
  }

  // A sentence whose numbers are here, and its layer as it was sent: pieces are not joined, nothing is left out.
  get nth() {
    return this.view.at?.nth ?? 0;
  }

  get panel() {
    return this.view.original[this.nth] ?? this.view.original[0];
  }

  // The layer as it was sent; null where a page does not draw matrices.
  /** @returns {Layer | null} */
  get layer() {
    const layer = this.panel?.layers.get(this.view.layer(this.view.data[0]).number) ?? null;
    return this.view.header.matrices ? layer : null;
  }

  // The matrices that can be computed: of some layers only the weights are known.
  namesOf = (layer) => Object.keys(MATRICES).filter((name) => name === "weights" || (layer.q && layer.v));

  // The theme or the numbers may be other ones.
  draw() {
    const { view } = this;
    const sequential = themeColours(view.root);
    const diverging = themeColours(view.root, "diverging");
    this.theme = { sequential, diverging, ink: view.ink, accent: view.accent, font: view.font };
    this.scene = "";
    this.update();
  }

  // The focus has moved. What it does not change is not computed anew.
  update() {
    const { layer, view } = this;
    const head = view.chosenHead;
    this.root.hidden = !layer?.heads.includes(head);
    this.bar.hidden = this.root.hidden;
    if (this.root.hidden || !this.theme || !this.root.clientWidth) return;
    const focus = this.focus;
    const parts = { query: this.#part("query", focus), key: this.#part("key", focus) };
    const row = focus.query ?? focus.key ?? 0;
    const ordered = this.state.order === "token" ? row : null;
    const scene = JSON.stringify([this.nth, layer.number, head, parts, this.state, ordered, this.root.clientWidth]);
    if (this.scene !== scene) {
      this.scene = scene;
      this.#compute(layer, head, parts, focus);
    }
    this.#paint(focus);
    this.#read();
  }

  // The tokens in focus, as pieces of the sentence; of several the last.
  get focus() {
    const panel = this.view.data[this.nth] ?? this.view.data[0];
    const { focus } = this.view.of(panel);
    const chosen = focus?.tokens.length ? { [focus.side]: panel.pieceOf(focus.side, focus.tokens.at(-1)) } : {};
    const { query, key } = this.cursor ?? {};
    return { ...chosen, ...(query === undefined ? {} : { query }), ...(key === undefined ? {} : { key }) };
  }

  #part(side, focus) {
    const same = this.panel.keys === this.panel.tokens;
    const around = focus[side] ?? (same ? (focus.query ?? focus.key) : 0) ?? 0;
    // While the pointer is on a cell the part stays where it is.
    if (this.cursor && this.parts) return this.parts[side];
    return windowAround(listOf(this.panel, side).length, around);
  }

  #compute(layer, head, parts, focus) {
    this.parts = parts;
    const numbers = {};
    const names = this.namesOf(layer);
    if (!names.includes(this.state.large ?? "weights")) this.state.large = null;
    for (const [name, { figure }] of Object.entries(this.pictures)) figure.hidden = !names.includes(name);
    for (const name of names) {
      const { rows, columns, symbol } = MATRICES[name];
      const range = columns ? parts[columns] : [0, layer[name === "q" ? "q" : name === "k" ? "k" : "v"].shape[2]];
      const values = valuesOf(layer, name, head, parts[rows], range);
      const width = range[1] - range[0];
      const row = (focus[rows] ?? focus.query ?? focus.key ?? 0) - parts[rows][0];
      const order = VECTORS.includes(name) ? orderOf(values, width, this.state.order, row) : null;
      numbers[name] = {
        values: order ? values.map((_, at) => values[at - (at % width) + order[at % width]]) : values,
        rows: listOf(this.panel, rows).slice(...parts[rows]),
        columns: columns
          ? listOf(this.panel, columns).slice(...range)
          : (order ?? Array.from({ length: width }, (_, at) => at)).map((at) => String(at + 1)),
        signed: name !== "weights",
        end: largestOf(values),
        untrained: rows === "query" ? this.#untrained(layer, parts.query) : [],
      };
      const own = name === "k" || name === "v" ? this.#keyHead(layer, head) : head;
      this.pictures[name].figure.querySelector("b").textContent = `${symbol}${subscript(own + 1)}`;
      this.pictures[name].figure.querySelector("span").textContent = this.view.texts[`matrix_${name}`];
    }
    if (this.state.end === "shared" && layer.q) {
      const shared = Math.max(...VECTORS.map((name) => numbers[name].end));
      for (const name of VECTORS) numbers[name].end = shared;
    }
    this.#top(layer, head);
    for (const name of names) {
      const picture = this.pictures[name];
      const width = picture.figure.clientWidth || SIDE;
      picture.map.show(numbers[name], this.theme, width, Math.min(width, SIDE), false);
      const end = numbers[name].end.toPrecision(3);
      const { texts } = this.view;
      picture.figure.querySelector("small").textContent = fill(
        numbers[name].signed ? texts.colours_signed : texts.colours_weights,
        { end },
      );
      picture.figure.firstElementChild.setAttribute("aria-label", this.#described(name, numbers[name]));
      picture.figure.firstElementChild.setAttribute("aria-expanded", String(this.state.large === name));
    }
    this.#enlarge(this.state.large ? numbers[this.state.large] : null);
  }

  // Rows of the last layer that were never used for an answer.
  #untrained(layer, [from, to]) {
    const { header } = this.view;
    if (layer.number !== header.layers - 1) return [];
    return (header.untrained?.[this.nth] ?? []).filter((at) => at >= from && at < to).map((at) => at - from);
  }

  // Query heads share keys and values: the number of the head of keys and values.
  #keyHead(layer, head) {
    return this.view.header.kv ? Math.floor((head * this.view.header.kv) / layer.nHeads) : head;
  }

  #described(name, { rows, columns, values }) {
    const [least, most] = rangeOf(values);
    const [low, high] = [least, most].map((value) => exact(Math.abs(value)));
    return fill(this.view.texts.matrix_alt, {
      symbol: this.pictures[name].figure.querySelector("b").textContent,
      what: this.view.texts[`matrix_${name}`],
      rows: rows.length,
      columns: columns.length,
      low: least < 0 ? `−${low}` : low,
      high: most < 0 ? `−${high}` : high,
    });
  }

  #top(layer, head) {
    const { view } = this;
    const { texts } = view;
    const which = view.data.length > 1 ? ` · ${isolated(view.titles[this.nth] ?? this.panel.title)}` : "";
    const title = make("h3", "", `${fill(texts.matrices, { head: head + 1, layer: layer.number + 1 })}${which}`);
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

  #picture(name) {
    const map = new Heatmap();
    const figure = make("figure");
    const button = makeButton("", "", () => {
      this.state.large = this.state.large === name ? null : name;
      this.update();
      if (this.state.large) this.large.scrollIntoView({ block: "nearest" });
    });
    const caption = make("figcaption");
    caption.append(make("b"), make("span"), make("small"));
    button.append(map.canvas);
    figure.append(button, caption);
    this.#follow(map, () => name);
    return { map, figure };
  }

  // Pointing at a cell lights its tokens in every picture; a press on one of the large picture chooses them.
  #follow(map, name) {
    map.canvas.addEventListener("pointermove", (event) => this.#point(name(), map.at(event)));
    map.canvas.addEventListener("pointerleave", () => this.#point(name(), null));
    if (map !== this.enlarged) return;
    map.canvas.addEventListener("click", (event) => {
      const cell = map.at(event);
      if (!cell) return;
      const { side, at } = this.#tokenAt(name(), cell);
      this.cursor = null;
      this.view.choose(this.nth, side, at, event.shiftKey || event.ctrlKey || event.metaKey);
    });
  }

  #tokenAt(name, { row }) {
    const side = MATRICES[name].rows;
    return { side, at: this.view.data[this.nth].wordOf(side, this.parts[side][0] + row) };
  }

  #point(name, cell) {
    const before = JSON.stringify(this.cursor);
    if (cell) {
      const { rows, columns } = MATRICES[name];
      const positions = { [rows]: this.parts[rows][0] + cell.row };
      if (columns) positions[columns] = this.parts[columns][0] + cell.column;
      this.cursor = { name, ...cell, ...positions };
    } else this.cursor = null;
    if (JSON.stringify(this.cursor) === before) return;
    const focus = cell && { side: this.#tokenAt(name, cell).side, tokens: [this.#tokenAt(name, cell).at] };
    this.view.hover = focus && this.view.everywhere(this.nth, focus);
    this.view.update();
  }

  #marks(name, focus) {
    const { rows, columns } = MATRICES[name];
    const inside = (side) => {
      const at = side ? focus[side] : undefined;
      const [from, to] = side ? this.parts[side] : [0, 0];
      return at !== undefined && at >= from && at < to ? [at - from] : [];
    };
    const cell = this.cursor?.name === name ? { row: this.cursor.row, column: this.cursor.column } : null;
    return { rows: inside(rows), columns: inside(columns), cell };
  }

  #paint(focus) {
    for (const name of this.namesOf(this.layer)) this.pictures[name].map.paint(this.theme, this.#marks(name, focus));
    if (this.state.large) this.enlarged.paint(this.theme, this.#marks(this.state.large, focus));
  }

  // The number under the pointer; without one what to do.
  #read() {
    const { texts } = this.view;
    const how = this.layer.q ? texts.matrices_how : `${texts.matrices_only_weights} ${texts.matrices_how}`;
    const text = this.cursor ? this.#cellText(this.cursor) : how;
    if (this.reading.textContent !== text) this.reading.textContent = text;
  }

  /** @param {{ name: string, row: number, column: number, query?: number, key?: number }} cursor */
  #cellText({ name, row, column, query, key }) {
    const { texts } = this.view;
    const { layer } = this;
    const head = this.view.chosenHead;
    const [from, to] = [query, key].map((at, nth) => isolated(listOf(this.panel, nth ? "key" : "query")[at] ?? ""));
    const symbol = this.pictures[name].figure.querySelector("b").textContent;
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

  // One picture large, with the names of its rows and columns and, where there is room, its numbers.
  #enlarge(numbers) {
    const name = this.state.large;
    this.large.hidden = !numbers;
    if (!numbers) return;
    const { texts } = this.view;
    const room = this.root.clientWidth - 90;
    const width = Math.min(room, numbers.columns.length * CELL.width);
    const height = Math.min(TALL, numbers.rows.length * CELL.height);
    this.enlarged.show(numbers, this.theme, width + 90, height + 90, true);
    const head = make("div", "bar");
    const symbol = this.pictures[name].figure.querySelector("b").textContent;
    head.append(make("h3", "", `${symbol} ${texts[`matrix_${name}`]}`));
    for (const format of ["png", "svg", "csv"])
      head.append(makeButton(format.toUpperCase(), "", () => save(this.#file(name), format)));
    const close = makeButton("✕", "", () => {
      this.state.large = null;
      this.update();
      /** @type {HTMLElement} */ (this.pictures[name].figure.firstElementChild).focus({ preventScroll: true });
    });
    close.setAttribute("aria-label", texts.matrices_close);
    head.append(close);
    this.large.replaceChildren(head, this.enlarged.canvas);
  }

  // The large picture as a file: the drawing as it stands here, or its numbers as a table.
  #file(name) {
    const { view, enlarged } = this;
    const { numbers, canvas } = enlarged;
    const symbol = this.pictures[name].figure.querySelector("b").textContent;
    const [width, height] = [canvas.clientWidth, canvas.clientHeight];
    const layer = fill(view.texts.layer, { layer: view.state.layer + 1 });
    return {
      meta: {
        title: `${symbol} ${view.texts[`matrix_${name}`]}`,
        caption: [`${this.panel.title}`, `${view.header.source} · ${layer} · Headscope`],
        file: `${view.header.file}-layer-${view.state.layer + 1}-head-${view.chosenHead + 1}-${name}`,
      },
      look: () => ({ paper: view.background, ink: view.ink, font: view.font }),
      drawn: () => {
        const figure = makeSvg("svg", { width, height, viewBox: `0 0 ${width} ${height}` });
        figure.append(makeSvg("image", { href: canvas.toDataURL("image/png"), x: 0, y: 0, width, height }));
        return { figure, width, height };
      },
      lines: () => [
        ["", ...numbers.columns],
        ...numbers.rows.map((row, at) => [
          row,
          ...numbers.values.slice(at * numbers.columns.length, (at + 1) * numbers.columns.length),
        ]),
      ],
    };
  }
}

function option(text, value, chosen) {
  return Object.assign(make("option", "", text), { value, selected: value === chosen });
}
