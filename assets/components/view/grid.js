// Every head of the layer as a small picture of its weights; a press looks at that head.
import { make, makeButton, makeSvg, renew } from "../page/elements.js";
import { save } from "../page/saving.js";
import { oneTabStop } from "../page/tab_stop.js";
import { exact, fill, isolated } from "../page/wording.js";
import { Heatmap } from "../pictures/heatmap.js";
import { valuesOf } from "./matrices.js";

const LARGEST = 256; // tokens of a side: a longer text has the overview instead
const PICTURE = 108; // pixels
const SAVED = 144; // of a picture in a file
const GAP = 14; // between two
const LINE = 16; // of words below

export class HeadGrid {
  scene = "";
  /** @type {any[]} as of the matrices */
  drawnFrom = [];
  /** @type {{ map: Heatmap, button: HTMLButtonElement, numbers: import("../pictures/heatmap.js").Numbers }[]} */
  pictures = [];
  /** @type {import("./matrices.js").HeadMatrices["shown"]} */
  shown;

  /**
   * @param {import("./selection.js").Selection} selection
   * @param {(head: number) => void} toHead
   */
  constructor(selection, toHead) {
    this.selection = selection;
    this.toHead = toHead;
    this.root = make("section", "all-heads");
    this.bar = make("div", "bar");
    this.grid = make("div", "grid");
    this.grid.setAttribute("role", "toolbar");
    this.root.append(this.bar, this.grid);
  }

  /**
   * The sentence and the layer that are looked at, as they were sent.
   * @param {import("./matrices.js").HeadMatrices["shown"]} shown
   */
  update(shown) {
    const { layer, nth, theme, drawnFrom } = shown;
    this.shown = shown;
    if (drawnFrom !== this.drawnFrom) Object.assign(this, { drawnFrom, scene: "" });
    const fits = layer && Math.max(layer.nQuery, layer.nKey) <= LARGEST && layer.heads.length > 1;
    this.root.hidden = !fits;
    if (!fits || !theme) return;
    const scene = JSON.stringify([nth, layer.number, layer.heads, this.selection.state.fitted]);
    if (scene !== this.scene) {
      this.scene = scene;
      this.#compute();
    }
    this.pictures.forEach(({ button }, at) => {
      button.setAttribute("aria-pressed", String(layer.heads[at] === this.selection.chosenHead));
    });
    oneTabStop(this.grid);
  }

  #compute() {
    const { header } = this.selection;
    const { layer, panel, theme } = this.shown;
    const whole = [
      [0, layer.nQuery],
      [0, layer.nKey],
    ];
    const values = layer.heads.map((head) => valuesOf(layer, "weights", head, whole[0], whole[1]));
    const largest = values.map((one) => one.reduce((most, weight) => Math.max(most, weight || 0), 0));
    const most = Math.max(...largest);
    const end = (this.selection.state.fitted && most) || 1;
    this.pictures = layer.heads.map((head, at) => {
      const map = new Heatmap();
      const numbers = { rows: panel.tokens, columns: panel.keys, values: values[at], signed: false, end };
      map.show(numbers, theme, PICTURE, PICTURE, false);
      map.paint();
      const button = makeButton("", "", () => this.toHead(head));
      button.title = this.#hint(head, numbers, largest[at]);
      button.dataset.head = String(head);
      button.append(map.canvas, make("span", "", this.#name(head)));
      const [, role] = header.roles?.[layer.number]?.[head] ?? [];
      if (role) button.append(make("small", "", role));
      return { map, button, numbers };
    });
    this.#top(end);
    renew(
      this.grid,
      this.pictures.map(({ button }) => button),
    );
  }

  // Does a mask hide cells of a picture?
  get #hatched() {
    return this.pictures.some(({ map }) => map.hidden);
  }

  #name = (head) => fill(this.selection.header.texts.head, { head: head + 1 });

  #hint(head, { rows, columns, values }, largest) {
    const at = values.indexOf(largest);
    const [query, key] = [rows[Math.floor(at / columns.length)], columns[at % columns.length]].map((token) =>
      isolated(token ?? ""),
    );
    return fill(this.selection.header.texts.grid_hint, { head: head + 1, weight: exact(largest), query, key });
  }

  #top(scaleEnd) {
    const { texts } = this.selection.header;
    const { layer } = this.shown;
    const title = fill(texts.grid, { layer: layer.number + 1 });
    this.grid.setAttribute("aria-label", title);
    const end = fill(texts.scale, { maximum: exact(scaleEnd) });
    const files = ["png", "svg", "csv"].map((format) =>
      makeButton(format.toUpperCase(), "file", () => save(this.#file(), format)),
    );
    const note = this.#hatched ? `${end} ${texts.colours_masked}.` : end;
    renew(this.bar, [make("h2", "", title), make("span", "note", note), ...files]);
    oneTabStop(this.bar);
  }

  // All heads as they stand on the screen, as a drawing and as a table.
  #file() {
    const { grid, pictures } = this;
    const { file, source, texts } = this.selection.header;
    const { layer, panel, theme } = this.shown;
    const { paper, ink, font } = theme;
    return {
      meta: {
        title: fill(texts.grid, { layer: layer.number + 1 }),
        caption: [...(this.#hatched ? [`${texts.colours_masked}.`] : []), panel.title, `${source} · Headscope`],
        file: `${file}-layer-${layer.number + 1}-heads`,
      },
      look: () => ({ paper, ink, font }),
      drawn: () => {
        const first = pictures[0].button.offsetTop;
        const across = pictures.filter(({ button }) => button.offsetTop === first).length;
        const down = SAVED + GAP + LINE * (grid.querySelector("small") ? 2 : 1);
        const [width, height] = [across * (SAVED + GAP) - GAP, Math.ceil(pictures.length / across) * down - GAP];
        const figure = makeSvg("svg", { width, height, viewBox: `0 0 ${width} ${height}` });
        pictures.forEach(({ map, numbers, button }, at) => {
          const [x, y] = [(at % across) * (SAVED + GAP), Math.floor(at / across) * down];
          const large = new Heatmap();
          large.show(numbers, map.look, SAVED, SAVED, false);
          large.paint();
          const href = large.canvas.toDataURL();
          figure.append(makeSvg("image", { href, x, y, width: SAVED, height: SAVED }));
          [...button.querySelectorAll("span, small")].forEach(({ textContent }, line) => {
            const place = { x: x + SAVED / 2, y: y + SAVED + (line + 1) * LINE - 3, "text-anchor": "middle" };
            figure.append(makeSvg("text", { ...place, fill: ink, "font-size": line ? 10 : 12 }, textContent));
          });
        });
        return { figure, width, height };
      },
      lines: () => [
        ["head", "query_position", "query", "key_position", "key", "weights"],
        ...pictures.flatMap(({ numbers: { rows, columns, values } }, at) =>
          [...values].map((weight, cell) => {
            const [row, column] = [Math.floor(cell / columns.length), cell % columns.length];
            const digits = Number((weight || 0).toPrecision(5)); // as many as are right, and one more
            return [layer.heads[at] + 1, row + 1, rows[row], column + 1, columns[column], digits];
          }),
        ),
      ],
    };
  }
}
