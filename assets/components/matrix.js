// The weights of one sentence as a matrix that can be zoomed from the whole down to single cells.
//
// The whole is computed in slices between frames, at most GRID × GRID numbers of it: in a longer text each
// stands for the largest of a block of cells. What is in sight of a deeper zoom is computed cell by cell.
const SLICE = 8; // milliseconds of work between two frames
const LEAST_HIGH = 52; // pixels: few rows of very many cells can still be zoomed into

class Matrix {
  constructor(view, panel, stage) {
    Object.assign(this, { view, panel, stage });
    this.canvas = make("canvas", "matrix");
    this.canvas.setAttribute("aria-hidden", "true");
    const tools = make("div", "zoom");
    const button = (text, label, act) => {
      const element = make("button", "", text);
      element.type = "button";
      element.title = label;
      element.setAttribute("aria-label", label);
      element.onclick = act;
      return element;
    };
    const middle = (by) => () => this.zoom(by, this.window.width / 2, this.window.height / 2);
    tools.append(
      button("+", view.texts.zoom_in, middle(2)),
      button("−", view.texts.zoom_out, middle(0.5)),
      button("⤢", view.texts.zoom_whole, () => this.whole())
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
    const cell = Math.min(wanted, (width - LABELS) / columns, TALLEST / rows);
    const [wide, high] = [cell * columns, Math.max(cell * rows, LEAST_HIGH)];
    const kept = this.window?.zoomed && this.window.width === wide && this.window.height === high;
    if (!kept) this.window = new Window(columns, wide, high, rows);
    fit(this.canvas, wide + LABELS, high + LABELS);
    this.update(true);
  }

  update() {
    const name = `${this.view.layer(this.panel).number} ${this.view.heads}`;
    if (this.name !== name || this.drawnFrom !== this.view.layer(this.panel)) {
      Object.assign(this, { name, drawnFrom: this.view.layer(this.panel), picture: null });
      this.pooled = this.view.heads.length ? new Pooled(this.drawnFrom, this.view.heads) : null;
      this.work(this.pooled);
    }
    const active = this.view.active(this.panel);
    this.spoken.replaceChildren(...(active ? [tokenElement(this.view, this.panel, this.view.sideOf(active.side), active.token)] : []));
    for (const element of this.spoken.children) mark(this.view, this.panel, element);
    this.paint();
  }

  work(pooled) {
    if (!pooled || pooled !== this.pooled || !this.canvas.isConnected) return;
    pooled.advance(performance.now() + SLICE);
    this.picture = null;
    if (pooled.done || performance.now() - (this.painted ?? 0) > 120) this.paint();
    if (!pooled.done) requestAnimationFrame(() => this.work(pooled));
  }

  paint() {
    this.painted = performance.now();
    const context = this.canvas.getContext("2d");
    context.clearRect(0, 0, this.canvas.width, this.canvas.height);
    if (!this.pooled || !this.window) return;
    context.save();
    context.translate(LABELS, LABELS);
    context.beginPath();
    context.rect(0, 0, this.window.width, this.window.height);
    context.clip();
    if (this.window.cell >= 2 && this.pooled.step > 1) this.cells(context);
    else this.blocks(context);
    writeNumbers(this, context);
    drawFrames(this, context);
    context.restore();
    writeTokens(this, context);
    const { texts } = this.view;
    const pooled = this.pooled.step > 1 && this.window.cell < 2;
    this.scale.textContent = [
      pooled && fill(texts.scale_pooled, { cells: `${this.pooled.step} × ${this.pooled.step}` }),
      fill(this.roots ? texts.scale_roots : texts.scale, { most: short(this.pooled.most) }),
      matchMedia("(pointer: coarse)").matches ? texts.zoom_touch : texts.zoom_how,
    ].filter(Boolean).join(" ");
  }

  colour(value) {
    if (Number.isNaN(value)) return [128, 128, 128, 72];
    const share = this.pooled.most ? value / this.pooled.most : 0;
    return [...shade(this.view.colours, this.roots ? Math.sqrt(share) : share), 255];
  }

  blocks(context) {
    const { pooled, window: { x, y, cell } } = this;
    const { rows, columns } = pooled;
    this.picture ??= this.image(rows, columns, (row, column) => pooled.values[row * columns + column]);
    context.imageSmoothingEnabled = cell * pooled.step < 1;
    const size = pooled.step * cell;
    context.drawImage(this.picture, x, y, columns * size, rows * size);
  }

  // Exactly the cells in sight, of a matrix that is too large to be kept.
  cells(context) {
    const { window: { x, y, cell } } = this;
    const [[left, right], [top, bottom]] = [this.window.seen("x"), this.window.seen("y")];
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
    this.window.zoom(by, x, y);
    this.moved();
  }

  whole() {
    this.window.whole();
    this.moved();
  }

  moved() {
    this.canvas.style.touchAction = this.window.zoomed ? "none" : "pan-y";
    this.paint();
  }

  inside(event) {
    const box = this.canvas.getBoundingClientRect();
    return [event.clientX - box.left - LABELS, event.clientY - box.top - LABELS];
  }

  // The cell of an event: hovering marks it.
  hit(event) {
    if (event.target !== this.canvas) return null;
    const cell = this.window.at(...this.inside(event));
    this.mark(cell);
    const { heads } = this.view;
    if (!cell || !heads.length) return null;
    const layer = this.view.layer(this.panel);
    const weight = heads.reduce((sum, head) => sum + layer.weight(head, cell.query, cell.key), 0) / heads.length;
    return { ...cell, head: heads.length === 1 ? heads[0] : null, weight, hidden: !seenByAny(layer, heads, cell.query, cell.key) };
  }

  mark(cell) {
    if (this.cursor?.query === cell?.query && this.cursor?.key === cell?.key) return;
    this.cursor = cell;
    this.paint();
  }

  reveal(at) {
    const [row, column] = [this.window.seen("y")[0], this.window.seen("x")[0]];
    const isKey = this.view.active(this.panel)?.side === "key";
    this.window.reveal(isKey ? row : at, isKey ? at : (this.cursor?.key ?? column));
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
