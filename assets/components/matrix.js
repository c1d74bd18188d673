// The weights of one sentence as a matrix that can be zoomed from the whole down to single cells.
//
// The whole is computed in slices between frames, at most GRID × GRID numbers of it: in a longer text each
// stands for the largest of a block of cells. What is in sight of a deeper zoom is computed cell by cell.
import { HIDDEN_COLOUR, inkOn, shade } from "./colours.js";
import { fit, LONG, mark, tokenElement } from "./drawing.js";
import { make, makeButton } from "./elements.js";
import { meanAcross } from "./focus.js";
import { shortenedTo } from "./heatmap.js";
import { listOf, longestOf } from "./panel.js";
import { fill, short } from "./text.js";
import { Pooled, seenByAny, Viewport } from "./viewport.js";

const SLICE = 8; // milliseconds of work between two frames
const MIN_HEIGHT = 52; // pixels: few rows of very many cells can still be zoomed into
const TICK = 13; // pixels a cell needs for its token to be written beside it
const DIGITS = 34; // and for its number to be written inside
const LABELS = 96; // room for the tokens, above and on the left

export class Matrix {
  /** @type {Viewport | null} */
  viewport = null;
  /** @type {Pooled | null} the weights of the heads that are on; null for none */
  pooled = null;
  /** @type {{ query: number, key: number } | null} the cell under the pointer */
  cursor = null;
  /** @type {HTMLCanvasElement | null} the pooled weights in colours */
  picture = null;
  drawnFrom = null;
  name = "";
  painted = 0;

  constructor(view, panel, stage) {
    this.view = view;
    this.panel = panel;
    this.stage = stage;
    this.canvas = make("canvas", "matrix");
    this.canvas.setAttribute("aria-hidden", "true");
    const tools = make("div", "zoom");
    const button = (text, label, act) => {
      const element = makeButton(text, "", act);
      element.title = label;
      element.setAttribute("aria-label", label);
      return element;
    };
    const middle = (by) => () => this.zoom(by, this.viewport.width / 2, this.viewport.height / 2);
    tools.append(
      button("+", view.texts.zoom_in, middle(2)),
      button("−", view.texts.zoom_out, middle(0.5)),
      button("⤢", view.texts.zoom_whole, () => this.whole()),
    );
    this.scale = make("span", "scale");
    tools.append(this.scale);
    this.spoken = make("div", "unseen"); // the chosen row for those who do not see it
    stage.replaceChildren(this.canvas, tools, this.spoken);
    this.canvas.onwheel = (event) => this.wheel(event);
    this.canvas.ondblclick = (event) => this.zoom(event.shiftKey ? 0.5 : 2, ...this.inside(event));
  }

  // In a long text most weights are small: their square roots can still be told apart.
  get roots() {
    return longestOf(this.panel) > LONG;
  }

  draw() {
    const width = this.stage.clientWidth;
    const [rows, columns] = ["query", "key"].map((side) => listOf(this.panel, side).length);
    const wanted = Math.max(260 / Math.max(rows, columns), 26);
    const cell = Math.min(wanted, (width - LABELS) / columns, this.view.tallest / rows);
    const [wide, high] = [cell * columns, Math.max(cell * rows, MIN_HEIGHT)];
    const kept = this.viewport?.zoomed && this.viewport.width === wide && this.viewport.height === high;
    if (!kept) this.viewport = new Viewport(columns, wide, high, rows);
    fit(this.canvas, wide + LABELS, high + LABELS);
    this.update();
  }

  update() {
    const name = `${this.view.layer(this.panel).number} ${this.view.heads}`;
    if (this.name !== name || this.drawnFrom !== this.view.layer(this.panel)) {
      this.name = name;
      this.drawnFrom = this.view.layer(this.panel);
      this.picture = null;
      this.pooled = this.view.heads.length ? new Pooled(this.drawnFrom, this.view.heads) : null;
      this.work(this.pooled);
    }
    const active = this.view.active(this.panel);
    this.spoken.replaceChildren(
      ...(active ? [tokenElement(this.panel, this.view.sideOf(active.side), active.token)] : []),
    );
    for (const element of this.spoken.children) mark(this.view, this.panel, element);
    this.paint();
  }

  work(pooled) {
    if (!pooled || pooled !== this.pooled || !this.canvas.isConnected) return;
    pooled.advance(performance.now() + SLICE);
    this.picture = null;
    if (pooled.done || performance.now() - this.painted > 120) this.paint();
    if (!pooled.done) requestAnimationFrame(() => this.work(pooled));
  }

  paint() {
    this.painted = performance.now();
    const context = this.canvas.getContext("2d");
    context.clearRect(0, 0, this.canvas.width, this.canvas.height);
    if (!this.pooled || !this.viewport) return;
    context.save();
    context.translate(LABELS, LABELS);
    context.beginPath();
    context.rect(0, 0, this.viewport.width, this.viewport.height);
    context.clip();
    if (this.viewport.cell >= 2 && this.pooled.step > 1) this.cells(context);
    else this.blocks(context);
    writeNumbers(this, context);
    drawFrames(this, context);
    context.restore();
    writeTokens(this, context);
    const { texts } = this.view;
    const pooled = this.pooled.step > 1 && this.viewport.cell < 2;
    this.scale.textContent = [
      pooled && fill(texts.scale_pooled, { cells: `${this.pooled.step} × ${this.pooled.step}` }),
      fill(this.roots ? texts.scale_roots : texts.scale, { maximum: short(this.pooled.maximum) }),
      matchMedia("(pointer: coarse)").matches ? texts.zoom_touch : texts.zoom_how,
    ]
      .filter(Boolean)
      .join(" ");
  }

  colour(value) {
    if (Number.isNaN(value)) return HIDDEN_COLOUR;
    const share = this.pooled.maximum ? value / this.pooled.maximum : 0;
    return [...shade(this.view.colours, this.roots ? Math.sqrt(share) : share), 255];
  }

  blocks(context) {
    const {
      pooled,
      viewport: { x, y, cell },
    } = this;
    const { rows, columns } = pooled;
    this.picture ??= this.image(rows, columns, (row, column) => pooled.values[row * columns + column]);
    context.imageSmoothingEnabled = cell * pooled.step < 1;
    const size = pooled.step * cell;
    context.drawImage(this.picture, x, y, columns * size, rows * size);
  }

  // Exactly the cells in sight, of a matrix that is too large to be kept.
  cells(context) {
    const {
      viewport: { x, y, cell },
    } = this;
    const [[left, right], [top, bottom]] = [this.viewport.seen("x"), this.viewport.seen("y")];
    const layer = this.view.layer(this.panel);
    const { heads } = this.view;
    const picture = this.image(bottom - top, right - left, (row, column) => {
      const [query, key] = [top + row, left + column];
      if (!seenByAny(layer, heads, query, key)) return NaN;
      return heads.reduce((sum, head) => sum + layer.weight(head, query, key), 0) / heads.length;
    });
    context.imageSmoothingEnabled = false;
    context.drawImage(picture, x + left * cell, y + top * cell, (right - left) * cell, (bottom - top) * cell);
  }

  image(rows, columns, value) {
    const picture = make("canvas");
    Object.assign(picture, { width: columns, height: rows });
    const context = picture.getContext("2d");
    const image = context.createImageData(columns, rows);
    for (let row = 0; row < rows; row++)
      for (let column = 0; column < columns; column++)
        image.data.set(this.colour(value(row, column)), 4 * (row * columns + column));
    context.putImageData(image, 0, 0);
    return picture;
  }

  wheel(event) {
    if (!event.ctrlKey && !event.metaKey) return; // the page scrolls
    event.preventDefault();
    this.zoom(Math.exp(-event.deltaY / 200), ...this.inside(event));
  }

  zoom(by, x, y) {
    this.viewport.zoom(by, x, y);
    this.moved();
  }

  whole() {
    this.viewport.whole();
    this.moved();
  }

  moved() {
    this.canvas.style.touchAction = this.viewport.zoomed ? "none" : "pan-y";
    this.paint();
  }

  inside(event) {
    const box = this.canvas.getBoundingClientRect();
    return [event.clientX - box.left - LABELS, event.clientY - box.top - LABELS];
  }

  // The cell of an event: hovering marks it.
  hit(event) {
    if (event.target !== this.canvas) return null;
    const cell = this.viewport.at(...this.inside(event));
    this.mark(cell);
    const { heads } = this.view;
    if (!cell || !heads.length) return null;
    const layer = this.view.layer(this.panel);
    const weight = heads.reduce((sum, head) => sum + layer.weight(head, cell.query, cell.key), 0) / heads.length;
    return {
      ...cell,
      head: heads.length === 1 ? heads[0] : null,
      weight,
      hidden: !seenByAny(layer, heads, cell.query, cell.key),
    };
  }

  mark(cell) {
    if (this.cursor?.query === cell?.query && this.cursor?.key === cell?.key) return;
    this.cursor = cell;
    this.paint();
  }

  reveal(at) {
    const [row, column] = [this.viewport.seen("y")[0], this.viewport.seen("x")[0]];
    const isKey = this.view.active(this.panel)?.side === "key";
    this.viewport.reveal(isKey ? row : at, isKey ? at : (this.cursor?.key ?? column));
    this.paint();
  }

  scene() {
    const { width, height } = this.canvas;
    const ratio = width / this.canvas.clientWidth;
    return {
      width: width / ratio,
      height: height / ratio,
      curves: [],
      labels: [],
      image: { href: this.canvas.toDataURL("image/png"), x: 0, y: 0, width: width / ratio, height: height / ratio },
    };
  }
}

// What is written over the cells and beside them: numbers, frames, tokens.

// The number of each cell in sight, where there is room for it.
function writeNumbers(matrix, context) {
  if (matrix.viewport.cell < DIGITS) return;
  const {
    viewport: { x, y, cell },
  } = matrix;
  const layer = matrix.view.layer(matrix.panel);
  context.font = `${Math.min(13, cell / 3)}px ${matrix.view.font}`;
  context.textAlign = "center";
  context.textBaseline = "middle";
  for (let query = matrix.viewport.seen("y")[0]; query < matrix.viewport.seen("y")[1]; query++) {
    const row = meanAcross(layer, matrix.view.heads, { side: "query", tokens: [query] });
    for (let key = matrix.viewport.seen("x")[0]; key < matrix.viewport.seen("x")[1]; key++) {
      if (!seenByAny(layer, matrix.view.heads, query, key)) continue;
      context.fillStyle = inkOn(matrix.colour(row[key]).slice(0, 3));
      context.fillText(short(row[key]), x + (key + 0.5) * cell, y + (query + 0.5) * cell);
    }
  }
}

// The rows or columns of the focus, and the cell under the pointer or the keyboard.
function drawFrames(matrix, context) {
  const {
    viewport: { x, y, cell, width, height },
    cursor,
  } = matrix;
  const { focus } = matrix.view.of(matrix.panel);
  context.strokeStyle = matrix.view.accent;
  context.lineWidth = 2;
  for (const token of focus?.tokens ?? []) {
    if (focus.side === "query")
      context.strokeRect(x, y + token * cell, matrix.viewport.columns * cell, Math.max(cell, 1));
    else context.strokeRect(x + token * cell, y, Math.max(cell, 1), matrix.viewport.rows * cell);
  }
  if (!cursor) return;
  context.lineWidth = 1;
  context.globalAlpha = 0.7;
  context.strokeRect(0, y + cursor.query * cell, width, Math.max(cell, 1));
  context.strokeRect(x + cursor.key * cell, 0, Math.max(cell, 1), height);
  context.globalAlpha = 1;
}

// Who looks, on the left, and who is looked at, above: as many as there is room for.
function writeTokens(matrix, context) {
  const { cell, x, y } = matrix.viewport;
  const every = Math.max(1, Math.ceil(TICK / cell));
  const { focus } = matrix.view.of(matrix.panel);
  context.fillStyle = matrix.view.ink;
  context.textBaseline = "middle";
  const tick = (at, side) => {
    const own = focus?.side === side && focus.tokens.includes(at);
    context.font = `${own ? 600 : 400} 12px ${matrix.view.font}`;
    context.fillText(shortenedTo(context, listOf(matrix.panel, side)[at], LABELS - 10), 0, 0);
  };
  const shown = ([from, to]) => {
    const found = [];
    for (let at = Math.ceil(from / every) * every; at < to; at += every) found.push(at);
    return found;
  };
  for (const at of shown(matrix.viewport.seen("y"))) {
    context.save();
    context.textAlign = "right";
    context.translate(LABELS - 6, LABELS + y + (at + 0.5) * cell);
    tick(at, "query");
    context.restore();
  }
  for (const at of shown(matrix.viewport.seen("x"))) {
    context.save();
    context.textAlign = "left";
    context.translate(LABELS + x + (at + 0.5) * cell, LABELS - 6);
    context.rotate(-Math.PI / 2.6);
    tick(at, "key");
    context.restore();
  }
}
