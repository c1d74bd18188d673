// Every head of the layer as a small picture of its weights; a click chooses that head.
import { make, makeButton, makeSvg, renew } from "../page/elements.js";
import { FORMATS, inColumns, LEADING, save, spacious, wrapped } from "../page/saving.js";
import { oneTabStop } from "../page/tab_stop.js";
import { exact, fill, isolated, paragraph } from "../page/wording.js";
import { Heatmap } from "../pictures/heatmap.js";
import { printTheme } from "../pictures/theme.js";
import { valuesOf } from "./matrices.js";

/** @typedef {import("../pictures/heatmap.js").Numbers} Numbers */
/** @typedef {import("../pictures/theme.js").Theme} Theme */

const LARGEST = 256; // tokens of a side: a longer text has the overview instead
const PICTURE = 108; // pixels
const SAVED = { least: 144, most: 450, cell: 15 }; // of a picture in a file, and of a cell beside its name
const GAP = 24; // between two
const LETTERS_BELOW = [12, 10]; // of a head's name there, and of what it does

export class HeadGrid {
  scene = "";
  /** @type {import("./matrices.js").HeadMatrices["drawnFrom"]} */
  drawnFrom = [];
  /** @type {{ map: Heatmap, button: HTMLButtonElement, numbers: Numbers }[]} */
  pictures = [];

  /** @param {import("./head_view.js").HeadView} view */
  constructor(view) {
    this.view = view;
    this.selection = view.selection;
    this.bar = make("div", "bar");
    this.grid = Object.assign(make("div", "grid"), { role: "toolbar" });
    this.root = make("section", "all-heads", this.bar, this.grid);
  }

  // The sentence and the layer that are looked at, as they were sent.
  update() {
    const { layer, drawnFrom } = this.view.matrices;
    if (drawnFrom !== this.drawnFrom) Object.assign(this, { drawnFrom, scene: "" });
    const isShort = Math.max(layer.nQuery, layer.nKey) <= LARGEST;
    this.root.hidden = !this.selection.header.matrices || !isShort || layer.heads.length === 1;
    if (this.root.hidden || !this.view.width) return;
    const scene = JSON.stringify([this.selection.nth, layer.number, layer.heads, this.selection.state.fitted]);
    if (scene !== this.scene) {
      this.scene = scene;
      this.#compute();
    }
    this.pictures.forEach(({ button }, at) => {
      button.ariaPressed = String(layer.heads[at] === this.selection.chosenHead);
    });
    oneTabStop(this.grid);
  }

  #compute() {
    const { header } = this.selection;
    const { layer, panel } = this.view.matrices;
    const values = layer.heads.map((head) => valuesOf(layer, "weights", head, [0, layer.nQuery], [0, layer.nKey]));
    const largest = values.map((one) => one.reduce((most, weight) => Math.max(most, weight || 0), 0));
    const most = Math.max(...largest);
    const end = (this.selection.state.fitted && most) || 1;
    this.pictures = layer.heads.map((head, at) => {
      const map = this.pictures[at]?.map ?? new Heatmap();
      const numbers = { rows: panel.tokens, columns: panel.keys, values: values[at], signed: false, end };
      map.show(numbers, this.view.theme, PICTURE, PICTURE, false);
      map.paint();
      const button = makeButton("", "", () => this.view.toHead(head));
      const [role, scored] = header.roles?.[layer.number]?.[head] ?? [];
      button.title = [this.#hint(head, numbers, largest[at]), scored].filter(Boolean).join("\n");
      button.dataset.head = String(head);
      button.append(map.canvas, make("span", "", fill(header.texts.head, { head: head + 1 })));
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

  /** @param {number} head @param {Numbers} numbers @param {number} largest */
  #hint(head, { rows, columns, values }, largest) {
    const at = values.indexOf(largest);
    const [query, key] = [rows[Math.floor(at / columns.length)], columns[at % columns.length]].map((token) =>
      isolated(token ?? ""),
    );
    return fill(this.selection.header.texts.grid_hint, { head: head + 1, weight: exact(largest), query, key });
  }

  /** @param {number} scaleEnd */
  #top(scaleEnd) {
    const { texts } = this.selection.header;
    const { layer } = this.view.matrices;
    const title = fill(texts.grid, { layer: layer.number + 1 });
    this.grid.ariaLabel = title;
    const end = fill(texts.scale, { maximum: scaleEnd.toPrecision(3) });
    const files = FORMATS.map((format) => makeButton(format.toUpperCase(), "file", () => save(this.#file(), format)));
    const note = paragraph([end, this.#hatched && fill(texts.sentence, { words: texts.colours_masked })], texts);
    renew(this.bar, [make("h2", "", title), make("span", "note", note), ...files]);
    oneTabStop(this.bar);
  }

  // All heads with their words, as a drawing and as a table.
  /** @returns {import("../page/saving.js").Figure} */
  #file() {
    const { pictures } = this;
    const { file, source, texts } = this.selection.header;
    const { layer, panel } = this.view.matrices;
    const theme = printTheme(this.root);
    return {
      printed: true,
      meta: {
        title: fill(texts.grid, { layer: layer.number + 1 }),
        caption: [
          paragraph([texts.rows_look, fill(texts.scale, { maximum: pictures[0].numbers.end.toPrecision(3) })], texts),
          ...(this.#hatched ? [fill(texts.sentence, { words: texts.colours_masked })] : []),
          panel.title,
          `${source} · Headscope`,
        ],
        file: `${file}-layer-${layer.number + 1}-heads`,
        pixels: texts.pixels,
      },
      look: () => theme,
      drawn: () => this.#drawn(theme),
      legend: [pictures[0].map.legend(theme)],
      lines: () => [
        ["layer", "head", "query_position", "query", "key_position", "key", "weights"],
        ...pictures.flatMap(({ numbers: { rows, columns, values } }, at) =>
          [...values].map((weight, cell) => {
            const [row, column] = [Math.floor(cell / columns.length), cell % columns.length];
            const digits = Number((weight || 0).toPrecision(5)); // as many as are right, and one more
            return [layer.number + 1, layer.heads[at] + 1, row + 1, rows[row], column + 1, columns[column], digits];
          }),
        ),
      ],
    };
  }
  /** @param {Theme} theme */
  #drawn(theme) {
    const { layer } = this.view.matrices;
    const longest = Math.max(layer.nQuery, layer.nKey);
    const { chosenToken } = this.selection;
    const rows = chosenToken === null ? [] : [chosenToken];
    const side = Math.min(Math.max(SAVED.cell, SAVED.least / longest), SAVED.most / longest);
    const maps = this.pictures.map(({ numbers }) => {
      const map = new Heatmap();
      map.fit(numbers, theme, Number.POSITIVE_INFINITY, Number.POSITIVE_INFINITY, { width: side, height: side });
      map.marks = { rows, columns: [], cell: null };
      return map;
    });
    const [{ width: wide, height: tall }] = maps;
    const below = this.pictures.map(({ button }) =>
      [...button.querySelectorAll("span, small")].flatMap(({ textContent }, nth) => {
        const size = LETTERS_BELOW[nth];
        return wrapped(textContent ?? "", wide, spacious(`${size}px ${theme.font}`)).map((text) => ({ text, size }));
      }),
    );
    const high = tall + LEADING * Math.max(...below.map((lines) => lines.reduce((sum, { size }) => sum + size, 0)));
    const { width, height, places } = inColumns(maps.length, wide, high, GAP);
    const figure = makeSvg("svg", { width, height, viewBox: `0 0 ${width} ${height}` });
    maps.forEach((map, at) => {
      const [x, y] = places[at];
      figure.append(makeSvg("g", { transform: `translate(${x} ${y})` }, map.printed(theme)));
      let foot = y + tall;
      for (const { text, size } of below[at]) {
        foot += LEADING * size;
        const place = { x: x + map.left + map.viewport.width / 2, y: foot - 0.3 * size, "text-anchor": "middle" };
        figure.append(makeSvg("text", { ...place, fill: theme.ink, "font-size": size }, text));
      }
    });
    return { figure, width, height };
  }
}
