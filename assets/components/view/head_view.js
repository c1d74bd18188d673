// The head view: all heads of a layer at once, every token under the pointer. What is hovered, pinned, switched or
// drawn differently stays in the browser; the server hears only of "show this on the page".

import { layerOf, listOf, longestOf, nothingIn, prepared } from "../numbers/panel.js";
import { fadeWhereMore, make } from "../page/elements.js";
import { apart, exact, fill, isolated } from "../page/wording.js";
import { Arcs } from "../pictures/arcs.js";
import { colourOf, lookOf, shade, textColour, themeColours } from "../pictures/colours.js";
import { FULL } from "../pictures/drawing.js";
import { Lines } from "../pictures/lines.js";
import { Matrix } from "../pictures/matrix.js";
import { ShadedText } from "../pictures/text.js";
import { afterPick, defaultThreshold, everywhere, isDrawable, spoken } from "../scene/focus.js";
import { followHighlight, highlight, litOf } from "../scene/highlight.js";
import { CHOICES } from "../scene/schema.js";
import { HeadGrid } from "./grid.js";
import { pressKey } from "./keyboard.js";
import { HeadMatrices } from "./matrices.js";
import { PanelRow } from "./panel_row.js";
import { followPointer } from "./pointer.js";
import { showBar, showChips, showFoot } from "./toolbar.js";

/** @typedef {import("../scene/focus.js").Focus} Focus */
/** @typedef {import("../numbers/panel.js").Panel} Panel */

/**
 * What the view is told besides its numbers (mha_core/export/head_view.py). Layers, heads and tokens count from 0.
 * @typedef {object} Header
 * @property {string} id
 * @property {string} name
 * @property {string} [digest] of the payload
 * @property {number} layers
 * @property {number} heads
 * @property {number | null} kv heads of keys and values that the heads share
 * @property {number} layer
 * @property {number} head
 * @property {number | null} token
 * @property {number[]} on heads that are drawn at first
 * @property {number[][][]} special of each panel those of its queries and of its keys
 * @property {({ query: Words, key: Words } | null)[] | null} groups
 * @property {string} source
 * @property {string} file the name of what is saved, without its ending
 * @property {Record<string, string>} texts
 * @property {boolean} [brief] titles leave out the words that all of them begin with
 * @property {boolean} [follows] the view looks at the focus of the page, which can load other layers and heads
 * @property {boolean} [tells] other figures of the page look there, too
 * @property {{ nth: number, query: [string, number][], key: [string, number][] }} [asked] which tokens of a further
 *   sentence the focus means, by the words that a link says for them
 * @property {string[][]} [edits] of each panel the edits of its attention, in words
 * @property {boolean} [matrices] the six matrices of a head and all heads stand below the drawing
 * @property {number | null} [key] the token of another text that the page looks at
 * @property {boolean} [strips] each sentence stands above its drawing, shaded, word by word
 * @property {(string | null)[][]} [answers] of each panel what the model answers at each token
 * @property {(string | null)[][]} [hides] of each panel what hiding the token is called, null where it cannot be
 * @property {string} [without] what a link is called that opens the first sentence without an edge
 * @property {number[][][]} [unknown] as `special` those words that are outside the vocabulary
 * @property {{ asks: string[], nothing: number[] }[][]} [questions] of each panel for each head of the last layer what
 *   it is asked, and the queries at which it has nothing to find
 * @property {string[]} [notes] of each layer what it is made of and what its rows mean
 * @property {Record<number, string[]>} [roles] of each layer the measured role of each head
 * @property {string} [drawing] what a page shows that was saved so
 * @property {boolean} [rescaled]
 * @property {boolean} [words]
 */
/** @typedef {{ of: number[], labels: string[] }} Words of each piece the number of its word, and the words */

/**
 * What the page around the view can do.
 * @typedef {object} Page
 * @property {((chosen: object) => void) | null} open load what is chosen and not here
 * @property {(() => void) | null} moved the view looks at something else
 * @property {((nth: number, token: number) => void) | null} hide hide a token of a sentence, or give it back
 * @property {((place: object) => void) | null} [explain] say where a number comes from
 * @property {((asked: object) => void) | null} [plot] draw one of the six matrices by plotly
 * @property {((header: Header) => Promise<string>) | null} page the view as a page of its own, to be saved
 */

export const DRAWINGS = { lines: Lines, text: ShadedText, arcs: Arcs, matrix: Matrix };
const SIDED = new Set(["text", "arcs"]); // drawings of one list of tokens, whose direction is chosen beside them
const NOTHING = { query: new Set(), key: new Set() };
const LONGEST_STRIP = 256; // tokens
const TALLEST = { alone: 600, above: 320 }; // pixels of a drawing, then it scrolls: alone, or above matrices
const FOCUS_TINT = 0.16; // of the accent behind a token in focus (head_view.css)
const BOLD = 1.1; // how much wider a token in focus is

export class HeadView {
  /** @type {Header} */
  header;
  /** @type {Record<string, string>} */
  texts;
  /** @type {Page["open"]} */
  open = null;
  /** @type {Page["moved"]} */
  moved = null;
  /** @type {Page["hide"]} */
  hide = null;
  /** @type {Page["explain"]} */
  explain = null;
  /** @type {Page["page"]} */
  page = null;
  /** @type {Page["plot"]} */
  plot = null;
  state = {
    drawing: CHOICES.drawing[0],
    side: CHOICES.side[0],
    layer: 0,
    threshold: null,
    maxLines: 0,
    rescaled: false,
    words: false,
  };
  /** @type {import("../numbers/payload.js").PayloadPanel[]} */
  original = [];
  /** @type {Panel[]} */
  data = [];
  /** @type {{ panel: Panel, head: HTMLElement, box: HTMLElement, stage: HTMLElement, status: HTMLElement, drawing: any, strip: any }[]} */
  drawings = [];
  /** @type {Set<number>} heads that are drawn */
  on = new Set();
  /** @type {(Focus | null)[] | null} of each panel what a click holds */
  pinned = null;
  /** @type {(Focus | null)[] | null} of each panel what is under the pointer */
  hover = null;
  /** @type {{ nth: number, token: number } | null} where the keyboard is */
  at = null;
  /** @type {import("../pictures/curves.js").Line | null} what is under the pointer between tokens */
  line = null;
  /** @type {number | undefined} the head that was clicked or switched on last */
  last;
  sentences = "";
  scene = "";
  place = ""; // what it looks at, as the page has heard of it
  nHeads = 0;
  width = 0; // pixels in which all was drawn
  /** @type {string[]} colours of heads */
  palette = [];
  /** @type {string[]} the same as small text */
  textColours = [];
  /** @type {import("../pictures/colours.js").Colour[]} of weights */
  colours = [];
  /** @type {string[]} of the panels */
  titles = [];
  accent = "";
  ink = "";
  background = "";
  font = "";
  ruler = make("canvas").getContext("2d");

  /** @param {HTMLElement} root */
  constructor(root) {
    this.root = root;
    this.bar = make("div", "bar");
    this.chips = make("div", "chips");
    this.row = new PanelRow(this);
    this.foot = make("div", "foot");
    this.caption = make("p", "caption");
    this.caption.dir = "auto";
    this.matrices = new HeadMatrices(this);
    this.grid = new HeadGrid(this);
    const controls = make("div", "controls");
    controls.append(this.bar, this.chips);
    const under = make("div", "under");
    fadeWhereMore(this.chips);
    under.append(this.foot, this.matrices.bar);
    const { sentences, panels } = this.row;
    root.replaceChildren(controls, sentences, panels, under, this.matrices.root, this.grid.root, this.caption);
    for (const row of [this.bar, this.chips]) row.setAttribute("role", "toolbar");
    for (const place of [sentences, panels]) place.addEventListener("keydown", (event) => pressKey(this, event));
    root.addEventListener("pointerdown", ({ target }) => {
      for (const menu of root.querySelectorAll("details[open]")) {
        if (!menu.contains(/** @type {Node} */ (target))) menu.removeAttribute("open");
      }
    });
    followHighlight(root, () => this.followHighlight());
    for (const heads of [this.chips, this.grid.grid]) {
      heads.addEventListener("pointerover", ({ target }) => {
        const button = /** @type {HTMLElement} */ (target).closest("[data-head]");
        this.pointHead(button instanceof HTMLElement ? Number(button.dataset.head) : null);
      });
      heads.addEventListener("pointerleave", () => this.pointHead(null));
    }
    new ResizeObserver(() => {
      if (root.clientWidth !== this.width) this.redraw();
    }).observe(root);
  }

  /**
   * New numbers or a new scene. What was switched stays switched, as far as it still exists.
   * @param {Header} header
   * @param {import("../numbers/payload.js").PayloadPanel[]} panels
   * @param {Page} page
   */
  show(header, panels, { open, moved, hide, page, plot = null, explain = null }) {
    this.header = header;
    this.texts = header.texts;
    this.open = open;
    this.moved = moved;
    this.hide = hide;
    this.page = page;
    this.plot = plot;
    this.explain = explain;
    this.original = panels;
    if (!this.scene) {
      // A page that was saved so.
      for (const name of ["drawing", "rescaled", "words"]) this.state[name] = header[name] ?? this.state[name];
    }
    this.prepare();
    // Another sentence is another scene: what was pinned may not even exist in it.
    const sentences = JSON.stringify(this.data.map(({ tokens, keys, two }) => [tokens, two && keys]));
    const another = this.sentences !== sentences;
    const scene = JSON.stringify([header.layer, header.head, header.token, header.heads]);
    const first = this.data[0].layers;
    if (another || this.scene !== scene || !first.has(this.state.layer)) {
      this.state.layer = header.layer;
      // A page that has followed the view leaves it as it is: where the keyboard is, and who is pinned with it.
      const follows = !another && this.chosenToken === header.token;
      if (!follows) this.pinPieces(0, "query", header.token === null ? [] : [header.token]);
      if (!this.sentences || this.nHeads !== header.heads || !this.on.has(header.head)) this.on = new Set(header.on);
    }
    if (this.scene !== scene) this.last = header.head;
    this.sentences = sentences;
    this.scene = scene;
    this.nHeads = header.heads;
    this.hover = null;
    this.line = null;
    this.place = JSON.stringify(this.looked);
    this.build();
  }

  // What it looks at and how it draws it: all that a link says of a view. Tokens are pieces, from 0.
  get looked() {
    const { rescaled, words, drawing, threshold, maxLines } = this.state;
    const { nth } = this;
    const pinned = this.pinned?.[nth];
    const last = pinned?.tokens.includes(this.at.token) ? this.at.token : pinned?.tokens.at(-1);
    const others = pinned?.tokens.filter((token) => token !== last) ?? [];
    const tokens = pinned?.tokens.length ? [...others, last].map((at) => this.data[nth].pieceOf(pinned.side, at)) : [];
    const side = pinned?.side ?? this.state.side;
    const head = this.chosenHead;
    return {
      layer: this.state.layer,
      head,
      on: this.heads,
      nth,
      side,
      tokens,
      drawing,
      threshold,
      maxLines,
      rescaled,
      words,
    };
  }

  // The panel that is looked at.
  get nth() {
    return Math.min(this.at?.nth ?? 0, this.data.length - 1);
  }

  // Look at another panel: at the same token there, or else at the one that stands in its place.
  lookAtPanel(nth) {
    const before = this.nth;
    if (nth === before) return;
    const pinned = this.pinned?.[before];
    const at = this.at?.token ?? 0;
    this.at = { nth, token: at };
    if (pinned) {
      const { side } = pinned;
      const [found] = this.everywhere(before, { side, tokens: [at] })[nth].tokens;
      if (found === undefined) this.pin(nth, { side, tokens: [Math.min(at, listOf(this.data[nth], side).length - 1)] });
      else this.at.token = found;
    }
    this.hover = null;
    this.update();
  }

  // Look there; the layer and the head are here.
  goTo(place) {
    const { layer, head, on, nth, side, tokens, ...drawn } = place;
    if (JSON.stringify(this.looked) === JSON.stringify(place)) return;
    const rebuilt = ["drawing", "words"].some((name) => this.state[name] !== drawn[name]);
    Object.assign(this.state, drawn, { layer, side: SIDED.has(drawn.drawing) ? side : "query" });
    if (rebuilt) this.prepare();
    this.on = new Set(on);
    this.last = head;
    this.hover = null;
    this.line = null;
    this.pinPieces(nth, side, tokens);
    this.place = JSON.stringify(this.looked);
    if (rebuilt) return this.build();
    this.controls();
    this.redraw();
  }

  prepare() {
    this.data = this.original.map((panel, nth) => prepared(panel, this.header, nth, this.state.words));
    if (!isDrawable(this.state.drawing, this.two)) this.state.drawing = CHOICES.drawing[0];
  }

  // Hold these pieces of a sentence, the last of them where the keyboard is.
  pinPieces(nth, side, pieces) {
    const tokens = pieces.map((piece) => this.data[nth].wordOf(side, piece));
    const last = tokens.at(-1);
    this.pin(nth, tokens.length ? { side, tokens: [...new Set(tokens)].sort((a, b) => a - b) } : null);
    if (tokens.length) this.at = { nth, token: last };
  }

  lookAtHead(head) {
    this.last = head;
    this.switchHeads(new Set([head]));
  }

  // The layer, head and tokens that are chosen in the view: what "show it on the page" asks for.
  get chosen() {
    const chosen = { layer: this.state.layer, token: this.chosenToken, head: this.chosenHead };
    return this.two ? { ...chosen, key: this.#chosenOn(["key"]) } : chosen;
  }

  get chosenToken() {
    return this.#chosenOn(this.two ? ["query"] : ["query", "key"]);
  }

  // The head that was switched on last, as long as it is on, else the page's own, else the first that is.
  get chosenHead() {
    const { heads, header } = this;
    return [this.last, header.head].find((head) => heads.includes(head)) ?? heads[0] ?? header.head;
  }

  // The token that is chosen on one of these sides; null for none.
  #chosenOn(sides) {
    const pinned = this.pinned?.find((focus) => focus?.tokens.length && sides.includes(focus.side));
    if (!pinned) return null;
    const at = pinned.tokens.includes(this.at.token) ? this.at.token : pinned.tokens.at(-1);
    return this.data[0].pieceOf(pinned.side, at);
  }

  get heads() {
    return [...this.on].filter((head) => this.every.includes(head)).sort((a, b) => a - b);
  }

  get every() {
    return this.layer(this.data[0]).heads;
  }

  get threshold() {
    return this.state.threshold ?? defaultThreshold(Math.max(...this.data.map(longestOf)));
  }

  get tallest() {
    return this.header.matrices ? TALLEST.above : TALLEST.alone;
  }

  get maxLines() {
    return this.state.maxLines;
  }

  layer(panel) {
    return layerOf(panel, this.state.layer, this.state.rescaled);
  }

  look(head) {
    return lookOf(this.palette, head);
  }

  textColourOf = (head) => this.textColours[head % this.textColours.length];

  hidden(panel) {
    return this.state.rescaled ? panel.special : NOTHING;
  }

  of(panel) {
    const pinned = this.pinned?.[panel.nth] ?? null;
    const hover = this.hover?.[panel.nth] ?? null;
    return { pinned, focus: hover ?? pinned };
  }

  everywhere = (nth, focus) => everywhere(this.data, nth, focus);

  pin(nth, focus) {
    this.pinned = this.everywhere(nth, focus);
    this.at = { nth, token: focus?.tokens.at(-1) ?? this.at?.token ?? 0 };
    this.followWithStrips();
  }

  // Something is pointed at in the view: it is lit here, and in every other picture of the page.
  /** @param {Focus | null} focus */
  point(nth, focus, cell = {}) {
    const label = focus && listOf(this.data[nth], focus.side)[focus.tokens[0]];
    highlight(this.root, focus && { [focus.side]: label, ...cell });
    this.hover = focus && this.everywhere(nth, focus);
    this.update();
  }

  // A head of this layer is pointed at, or none: its switch and its picture are lit, and it is in every overview.
  /** @param {number | null} head */
  pointHead(head) {
    highlight(this.root, head === null ? null : { head: head + 1, layer: this.state.layer + 1 });
    this.lightHeads();
  }

  lightHeads() {
    const lit = litOf("layer") === this.state.layer + 1 ? litOf("head") : undefined;
    for (const button of this.root.querySelectorAll("[data-head]"))
      button.classList.toggle("lit", Number(/** @type {HTMLElement} */ (button).dataset.head) + 1 === lit);
  }

  // A token or a head that is pointed at elsewhere is lit here.
  followHighlight() {
    if (!this.width) return;
    this.lightHeads();
    const places = this.data.map(({ tokens }) => tokens.indexOf(String(litOf("query"))));
    const focused = places.map((at) => ({ side: /** @type {const} */ ("query"), tokens: at < 0 ? [] : [at] }));
    const hover = places.some((at) => at >= 0) ? focused : null;
    if (!hover && !this.hover) return;
    this.hover = hover;
    this.update();
  }

  // In a long sentence the words that are held stay in sight, whoever moved there.
  followWithStrips() {
    for (const { panel, strip } of this.drawings) {
      const tokens = this.pinned?.[panel.nth]?.tokens ?? [];
      if (strip && tokens.length) strip.show(tokens.at(-1));
    }
  }

  // Theme and fonts are read anew: both can change while the page is open.
  readTheme() {
    const style = getComputedStyle(this.root);
    const read = (name) => style.getPropertyValue(name).trim();
    this.palette = read("--st-chart-categorical-colors")
      .split(",")
      .map((colour) => colour.trim());
    this.colours = themeColours(this.root);
    this.accent = read("--st-primary-color");
    this.ink = read("--st-text-color");
    this.background = read("--st-background-color");
    const ground = shade([colourOf(this.background), colourOf(this.accent)], FOCUS_TINT);
    this.textColours = this.palette.map((colour) => textColour(colour, this.ink, ground));
    this.font = style.fontFamily;
    this.ruler.font = `14.4px ${this.font}`;
  }

  textWidth = (text) => this.ruler.measureText(text).width;

  measure = (panel, side) =>
    listOf(panel, side).reduce((widest, token) => Math.max(widest, this.textWidth(token)), 0) * BOLD;

  // Do the sentences look at another text?
  get two() {
    return this.data.some(({ two }) => two);
  }

  build() {
    this.readTheme();
    const place = /** @type {Document | ShadowRoot} */ (this.root.getRootNode());
    const focused = /** @type {HTMLElement} */ (place.activeElement)?.dataset?.panel;
    const full = this.data.map(({ title }) => title);
    this.titles = this.header.brief ? apart(full) : full;
    this.drawings = this.data.map((panel) => panelOf(this, panel, this.titles[panel.nth]));
    this.row.show(
      this.drawings.map(({ head }) => head),
      this.drawings.map(({ box }) => box),
    );
    for (const one of this.drawings) {
      one.drawing = new DRAWINGS[this.state.drawing](this, one.panel, one.stage);
      asList(this, one);
      followPointer(this, one);
      if (one.strip) followPointer(this, { ...one, stage: one.strip.stage, drawing: one.strip });
    }
    this.controls();
    this.redraw();
    if (focused !== undefined) this.drawings[focused]?.drawing.list.focus({ preventScroll: true });
    const pinned = this.pinned?.[0]?.tokens[0];
    if (pinned)
      for (const { drawing, panel } of this.drawings) drawing.centre?.(Math.min(pinned, longestOf(panel) - 1));
    this.followWithStrips();
  }

  redraw() {
    this.width = this.root.clientWidth;
    if (!this.width) return;
    this.row.arrange();
    for (const { drawing } of this.drawings) drawing.draw();
    for (const { strip } of this.drawings) strip?.draw();
    this.matrices.draw();
    this.grid.draw();
    this.row.update();
    this.say();
  }

  update() {
    for (const { drawing } of this.drawings) drawing.update();
    for (const { strip } of this.drawings) strip?.update();
    this.matrices.update();
    this.grid.update();
    this.row.update();
    this.say();
  }

  say() {
    for (const { panel, status, stage, drawing } of this.drawings) {
      const { focus, pinned } = this.of(panel);
      const sentence = spoken(panel, this.layer(panel), this.heads, focus, this.hidden(panel), this.texts);
      const said = [sentence, this.thickest(panel), this.nothing(panel, focus), this.answer(panel, focus)];
      const text = said.filter(Boolean).join(" ");
      if (status.dataset.text !== text) {
        status.dataset.text = text;
        status.replaceChildren(make("span", "", text));
        // What is below never moves up under the pointer.
        status.style.minHeight = `${status.getBoundingClientRect().height}px`;
      }
      stage.dataset.pinned = String(Boolean(pinned));
      const active = this.active(panel);
      if (active)
        drawing.list.setAttribute("aria-activedescendant", `${panel.id}-${this.sideOf(active.side)}-${active.token}`);
      else drawing.list.removeAttribute("aria-activedescendant");
    }
    showFoot(this);
    const place = JSON.stringify(this.looked);
    if (place === this.place) return;
    this.place = place;
    this.moved?.();
  }

  // What the model answers at the one token in focus.
  answer(panel, focus) {
    if (focus?.side !== "query" || focus.tokens.length !== 1) return "";
    return this.header.answers?.[panel.nth]?.[panel.pieceOf("query", focus.tokens[0])] ?? "";
  }

  // Which of the heads that are on have nothing to find at the one token in focus.
  nothing(panel, focus) {
    if (focus?.side !== "query" || focus.tokens.length !== 1) return "";
    const { header, texts } = this;
    const { number } = this.layer(panel);
    const [token] = focus.tokens;
    const finds = (head) => !nothingIn(header, panel.nth, number, [head], panel.wordOf).includes(token);
    const heads = this.heads.filter((head) => !finds(head));
    if (!heads.length) return "";
    const place = { token: isolated(panel.tokens[token]) };
    if (heads.length > 1)
      return fill(texts.nothing_heads, { ...place, heads: heads.map((head) => head + 1).join(", ") });
    const { asks } = header.questions[panel.nth][heads[0]];
    const questions = asks.map((question) => texts[`question_${question}`] ?? question).join(", ");
    return fill(texts.nothing, { ...place, head: heads[0] + 1, questions });
  }

  // How much weight the thickest line stands for, where that is not 1.
  thickest(panel) {
    const strongest = this.drawings[panel.nth].drawing.strongest ?? 0;
    return strongest > 0 && strongest < FULL ? fill(this.texts.thickest, { weight: exact(strongest) }) : "";
  }

  // The token that the keyboard is at in a sentence: the last one that was chosen there.
  active(panel) {
    const pinned = this.pinned?.[panel.nth];
    return pinned && this.at.nth === panel.nth ? { side: pinned.side, token: this.at.token } : null;
  }

  sideOf = (side) => (this.state.drawing === "lines" || this.two ? side : "token");

  // A token was clicked; with `more` it is added to those that are held.
  choose(nth, side, token, more) {
    // The same word in the other sentence is looked at there: only a second click in its own lets go of it.
    const held = more || this.at?.nth === nth ? this.pinned?.[nth] : null;
    this.pin(nth, afterPick(held, side, token, more));
    this.at = { nth, token };
    this.hover = null;
    this.update();
  }

  switchHeads(on) {
    this.on = on;
    showChips(this);
    this.update();
    if (this.state.drawing === "lines") this.redraw();
  }

  toLayer(number) {
    if (number < 0 || number >= this.header.layers) return;
    if (!this.has(number)) return this.open?.({ ...this.chosen, layer: number });
    this.state.layer = number;
    this.controls();
    this.redraw();
  }

  has = (layer) => this.data[0].layers.has(layer);

  set(name, value) {
    this.state[name] = value;
    if (name === "words") this.pinned = null;
    if (name === "drawing" || name === "words") this.again();
    else {
      if (name === "side" && this.pinned) this.pinned = this.pinned.map((p) => p && { ...p, side: value });
      this.controls();
      this.redraw();
    }
  }

  // Draw all anew, in another way.
  again() {
    const { place } = this;
    this.show(this.header, this.original, this);
    if (this.place !== place) this.moved?.();
  }

  controls() {
    showBar(this);
    showChips(this);
    // In the app sentence and model stand above the view, and of several texts each above its panel.
    const titled = this.data.length > 1 || this.two;
    const layer = `${fill(this.texts.layer, { layer: this.state.layer + 1 })} / ${this.header.layers}`;
    const parts = [titled ? "" : this.data[0].title, this.header.source, layer].filter(Boolean);
    const inApp = this.header.notes?.[this.state.layer] ?? "";
    const said = this.header.follows === undefined ? parts.join(" · ") : inApp;
    this.caption.textContent = said;
  }
}

// The place of one sentence in the view: its title and its words, the stage of its drawing, and what is said about
// it. A drawing that is the words stands where they do.
function panelOf(view, panel, words) {
  const head = make("div", "head");
  const box = make("div", "panel");
  const stage = make("div", `stage ${view.state.drawing}`);
  const status = make("p", view.header.answers ? "status answered" : "status");
  status.setAttribute("aria-live", "polite");
  const standsAbove = view.header.strips && view.header.brief !== false;
  if ((view.data.length > 1 && !standsAbove) || panel.two)
    head.append(Object.assign(make("p", "title", words), { title: panel.title, dir: "auto" }));
  const strip = stripOf(view, panel);
  const isWords = view.header.strips && !panel.two && view.state.drawing === "text";
  if (strip) head.append(strip.stage);
  (isWords ? head : box).append(stage);
  box.append(status);
  return { panel, head, box, stage, status, strip, drawing: null };
}

// What of a drawing has the keyboard, and is a list of tokens to a screen reader.
function asList(view, { drawing: { list }, panel }) {
  list.tabIndex = 0;
  list.dataset.panel = String(panel.nth);
  list.setAttribute("role", "listbox");
  list.setAttribute("aria-multiselectable", "true");
  list.setAttribute("aria-label", fill(view.texts.panel, { text: panel.title }));
}

// The sentence above its drawing. The drawing has the keyboard: to a screen reader they are one and the same.
function stripOf(view, panel) {
  const fits = !panel.two && panel.tokens.length <= LONGEST_STRIP;
  if (!view.header.strips || !fits || view.state.drawing === "text") return null;
  const stage = make("div", "strip text");
  stage.setAttribute("aria-hidden", "true");
  const strip = new ShadedText(view, panel, stage);
  for (const element of strip.elements) element.removeAttribute("id");
  return strip;
}

/**
 * Panels that were read from a payload, shown in a root that may have been shown something before.
 * @param {HTMLElement & { view?: HeadView }} root
 * @param {Header} header
 * @param {import("../numbers/payload.js").PayloadPanel[]} panels
 * @param {Page} page
 */
export function showView(root, header, panels, page) {
  root.view ??= new HeadView(root);
  root.view.show(header, panels, page);
  return root.view;
}
