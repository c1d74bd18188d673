// The head view: all heads of a layer at once, every token under the pointer. What you hover over, pin, switch on or draw
// differently stays in the browser; the server is asked only to show something else on the page.

import { listOf, longestOf, questionsOf } from "../numbers/panel.js";
import { elementsIn, fadeWhereMore, make, named, targetOf, treeOf } from "../page/elements.js";
import { byPointer, fill, isolated, paragraph } from "../page/wording.js";
import { Arcs } from "../pictures/arcs.js";
import { broughtOut } from "../pictures/drawing.js";
import { Lines } from "../pictures/lines.js";
import { Matrix } from "../pictures/matrix.js";
import { ShadedText } from "../pictures/text.js";
import { themeOf } from "../pictures/theme.js";
import { spoken, strongest } from "../scene/focus.js";
import { followHighlight, highlight, litOf } from "../scene/highlight.js";
import { saveDrawings, saveModelPage, savePage } from "./files.js";
import { HeadGrid } from "./grid.js";
import { pressKey } from "./keyboard.js";
import { HeadMatrices } from "./matrices.js";
import { PanelRow } from "./panel_row.js";
import { followPointer } from "./pointer.js";
import { Selection } from "./selection.js";
import { swing } from "./swing.js";
import { showBar, showChips, showFoot } from "./toolbar.js";
import { typeOver } from "./typed_over.js";

/** @typedef {import("../scene/focus.js").Focus} Focus */
/** @typedef {import("../numbers/panel.js").Panel} Panel */
/** @typedef {import("../pictures/drawing.js").SentenceDrawing} SentenceDrawing */
/** @typedef {import("../pictures/theme.js").Theme} Theme */
/** @typedef {import("../scene/highlight.js").Highlight} Highlight */
/** @typedef {import("./selection.js").ViewState} ViewState */
/**
 * A question, its answer, a note on it, whether it is sure, and the heads that are asked (pages/_kit/answers.py).
 * @typedef {[asked: string, answer: string, note: string, sure: boolean, heads: number[]]} AnswerText
 */

/**
 * The data of the view besides its numbers (mha_core/export/head_view.py). Layers, heads and tokens count from 0.
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
 * @property {number[] | null} on heads that were asked for; null for those that answer at the chosen token
 * @property {number[][][]} special of each panel those of its queries and of its keys
 * @property {({ query: WordGroups, key: WordGroups } | null)[] | null} groups
 * @property {string} source
 * @property {string} file the name of what is saved, without its ending
 * @property {Record<string, string>} texts
 * @property {boolean} [brief] titles leave out the words that all of them begin with
 * @property {boolean} [follows] the view looks at the focus of the page, which can load other layers and heads
 * @property {boolean} [reports] other figures of the page look there, too
 * @property {{ nth: number, query: [string, number][], key: [string, number][] }} [asked] which tokens of a further
 *   sentence the focus means, by the words that a link says for them
 * @property {string[][]} [edits] of each panel the edits of its attention, in words
 * @property {boolean} [matrices] the six matrices of a head and all heads stand below the drawing
 * @property {number | null} [key] the token of another text that the page looks at
 * @property {boolean} [strips] each sentence stands above its drawing, shaded, word by word
 * @property {boolean} [swings] on a first visit the second sentence begins as the first one
 * @property {boolean} [compact] what stands below is to be seen, too: no options, no files, no button to unpin a word,
 *   nothing of heads that find nothing, and the answers beside the title
 * @property {AnswerText[][][]} [answers] of each panel at each token what is asked, and the model's answer
 * @property {string} [rewrite] what typing over a word is called, where that can be done
 * @property {string} [without] what a link is called that opens the first sentence without an edge
 * @property {string} [block] the same for the edge from the chosen word to the one it looks at most
 * @property {number[][][]} [unknown] as `special` those words that are outside the vocabulary
 * @property {{ asks: string[], nothing: number[] }[][]} [questions] of each panel for each head of the last layer what
 *   it is asked, and the queries at which it has nothing to find
 * @property {string[]} [notes] of each layer what it is made of and what its rows mean
 * @property {Record<number, [string, string][]>} [roles] of each layer what each head was measured to do, alone and with
 *   its score
 * @property {string} [held] which layers and heads are here, if these are not all
 * @property {boolean} [random] nobody trained the weights
 * @property {import("../pictures/ledger.js").LedgerFacts} [ledger] who wrote an answer, below the view of a saved page
 * @property {string} [drawing] what a page shows that was saved so
 * @property {boolean} [rescaled]
 * @property {boolean} [words]
 */
/** @typedef {{ of: number[], labels: string[] }} WordGroups of each piece the number of its word, and the words */

/** @typedef {import("../numbers/explanation.js").Place} Place */
/** @typedef {Place & { name: string, panel: number, layer: number, id: string }} AskedNumber */

/**
 * The functions that the page around the view offers.
 * @typedef {object} PageActions
 * @property {(chosen: import("./selection.js").Chosen) => void} [open] load what is chosen and not here
 * @property {() => void} [moved] the view looks at something else
 * @property {((nth: number, token: number, word: string) => void) | null} [rewrite] put another word in the place of one
 * @property {((place: AskedNumber) => void) | null} [explain] say where a number comes from
 * @property {((place: AskedNumber) => import("../numbers/explanation.js").Step[] | null) | null} [steps] to a number of
 *   Q, K or V, where the page has what it is made of
 * @property {(header: Header) => Promise<string>} [page] the view as a page of its own, to be saved
 * @property {(() => Promise<string>) | null} [model] the same with the model inside, which computes what is typed
 */

/**
 * One panel as it stands in the view.
 * @typedef {{ panel: Panel, head: HTMLElement, box: HTMLElement, stage: HTMLElement, status: HTMLElement,
 *   answers: HTMLElement, drawing: SentenceDrawing, strip: ShadedText | null }} Drawing
 */

/** @type {Record<string, new (from: import("../pictures/drawing.js").DrawnFrom) => SentenceDrawing>} */
export const DRAWINGS = { lines: Lines, text: ShadedText, arcs: Arcs, matrix: Matrix };
const LONGEST_STRIP = 256; // tokens
const ANYWHERE = new Set(["Escape", "h", "H", "l", "L"]); // keys that work in all of the view

export class HeadView {
  selection = new Selection();
  /** @type {PageActions} */
  page = {};
  /** @type {Drawing[]} */
  drawings = [];
  place = ""; // what the view looks at, as the page has heard of it last
  width = 0; // pixels in which all was drawn
  /** @type {Selection["pinned"]} as the words above have followed it */
  followed = null;

  /** @param {HTMLElement} root */
  constructor(root) {
    this.root = root;
    this.theme = themeOf(root);
    this.bar = make("div", "bar");
    this.chips = make("div", "chips");
    this.row = new PanelRow(root, (nth) => this.lookAtPanel(nth));
    this.foot = make("div", "foot");
    this.caption = Object.assign(make("p", "caption"), { dir: "auto" });
    this.matrices = new HeadMatrices(this);
    this.grid = new HeadGrid(this);
    const controls = make("div", "controls", this.bar, this.chips);
    const under = make("div", "under", this.foot, this.matrices.bar);
    fadeWhereMore(this.chips);
    const { sentences, panels } = this.row;
    root.replaceChildren(controls, sentences, panels, under, this.matrices.root, this.grid.root, this.caption);
    for (const row of [this.bar, this.chips]) row.role = "toolbar";
    root.addEventListener("keydown", (event) => this.#press(event));
    root.addEventListener("click", () => this.#takeKeys());
    root.addEventListener("dblclick", (event) => {
      const word = targetOf(event)?.closest(".token");
      const nth = this.drawings.findIndex(({ head, box }) => head.contains(word ?? null) || box.contains(word ?? null));
      if (word instanceof HTMLElement && nth >= 0) this.#rewrite(nth, Number(word.dataset.at));
    });
    followHighlight(root, () => this.followHighlight());
    for (const heads of [this.chips, this.grid.grid]) {
      heads.addEventListener("pointerover", (event) => {
        const button = targetOf(event)?.closest("[data-head]");
        this.pointHead(button instanceof HTMLElement ? Number(button.dataset.head) : null);
      });
      heads.addEventListener("pointerleave", () => this.pointHead(null));
    }
    new ResizeObserver(() => {
      if (root.clientWidth !== this.width) this.redraw();
    }).observe(root);
  }

  /**
   * New numbers or a new scene.
   * @param {Header} header
   * @param {import("../numbers/payload.js").PayloadPanel[]} panels
   * @param {PageActions} page
   */
  show(header, panels, page) {
    this.page = page;
    this.selection.show({ ...header, texts: byPointer(header.texts) }, panels);
    this.place = JSON.stringify(this.selection.looked);
    this.build();
  }

  // Look there; the layer and the head are here.
  /** @param {import("../scene/focus_link.js").ViewPlace} place */
  goTo(place) {
    if (JSON.stringify(this.selection.looked) === JSON.stringify(place)) return;
    const rebuilt = this.selection.goTo(place);
    this.place = JSON.stringify(this.selection.looked);
    if (rebuilt) return this.build();
    this.controls();
    this.redraw();
  }

  // A token was clicked; with `more` it is added to those that are held.
  /**
   * @param {number} nth
   * @param {import("../numbers/panel.js").Side} side
   * @param {number} token
   * @param {boolean} more
   */
  choose(nth, side, token, more) {
    this.selection.choose(nth, side, token, more);
    this.update();
  }

  release() {
    this.selection.pinned = null;
    this.update();
  }

  /** @param {number} nth */
  lookAtPanel(nth) {
    if (nth === this.selection.nth) return;
    this.selection.lookAtPanel(nth);
    this.update();
  }

  /** @param {number} head */
  toHead(head) {
    this.selection.last = head;
    this.switchHeads(new Set([head]));
  }

  /** @param {Set<number> | null} on */
  switchHeads(on) {
    this.selection.on = on;
    this.update();
    if (this.selection.state.drawing === "lines") this.redraw();
  }

  /** @param {number} number */
  toLayer(number) {
    const { chosen, header, state } = this.selection;
    if (number < 0 || number >= header.layers) return;
    if (!this.selection.has(number)) return this.page.open?.({ ...chosen, layer: number });
    state.layer = number;
    this.controls();
    this.redraw();
  }

  /** @template {keyof ViewState} Name @param {Name} name @param {ViewState[Name]} value */
  set(name, value) {
    this.selection.set(name, value);
    if (name === "drawing" || name === "words") return this.again();
    this.controls();
    this.redraw();
  }

  // Draw all anew, in another way.
  again() {
    const { place, selection } = this;
    this.show(selection.header, selection.original, this.page);
    if (this.place !== place) this.page.moved?.();
  }

  /** @param {import("./toolbar.js").SavedKind} kind */
  save(kind) {
    if (kind === "html") return savePage(this);
    return kind === "model" ? saveModelPage(this) : saveDrawings(this, kind);
  }

  // After a click on something without keys of its own, keys are those of the sentence in focus.
  #takeKeys() {
    const { activeElement } = treeOf(this.root);
    if (this.root.contains(activeElement) && !activeElement?.matches(".strip .scroll")) return;
    this.#toKeys(this.selection.nth);
  }

  /** @param {number} nth */
  #toKeys(nth) {
    this.drawings[nth]?.drawing.list.focus({ preventScroll: true });
  }

  // Arrows on a button belong to its row of buttons.
  /** @param {KeyboardEvent} event */
  #press(event) {
    const target = targetOf(event);
    if (!target || target.closest("input, select, .menu, .cell-path")) return;
    /** @type {HTMLElement | null} */
    const list = target.closest("[data-panel]");
    if (!list && !ANYWHERE.has(event.key)) return;
    const nth = Number(list?.dataset.panel ?? this.selection.nth);
    if (pressKey(this, event, nth)) this.update();
  }

  // Something is pointed at in the view: it is lit here, and in every other picture of the page.
  /** @param {number} nth @param {Focus | null} focus @param {Highlight} cell */
  point(nth, focus, cell = {}) {
    const { panels } = this.selection;
    const label = focus && listOf(panels[nth], focus.side)[focus.tokens[0]];
    highlight(this.root, focus && { [focus.side]: label, ...cell });
    this.selection.hover = focus && this.selection.everywhere(nth, focus);
    this.update();
  }

  // A head of this layer is pointed at, or none: its switch and its picture are lit, and it is in every overview.
  /** @param {number | null} head */
  pointHead(head) {
    highlight(this.root, head === null ? null : { head: head + 1, layer: this.selection.state.layer + 1 });
    this.lightHeads();
  }

  lightHeads() {
    const lit = litOf("layer") === this.selection.state.layer + 1 ? litOf("head") : undefined;
    for (const button of elementsIn(this.root, "[data-head]"))
      button.classList.toggle("lit", Number(button.dataset.head) + 1 === lit);
  }

  // A token or a head that is pointed at elsewhere is lit here.
  followHighlight() {
    if (!this.width) return;
    this.lightHeads();
    const { panels } = this.selection;
    const label = String(litOf("query"));
    const nth = panels.findIndex(({ tokens }) => tokens.includes(label));
    if (nth < 0 && !this.selection.hover) return;
    const lit = nth < 0 ? null : { side: /** @type {const} */ ("query"), tokens: [panels[nth].tokens.indexOf(label)] };
    this.selection.hover = lit && this.selection.everywhere(nth, lit);
    this.update();
  }

  // In a long sentence the words that are held stay in sight, whoever moved there.
  followWithWords() {
    const { pinned } = this.selection;
    if (this.followed === pinned) return;
    this.followed = pinned;
    for (const { drawing, panel, strip } of this.drawings) {
      const last = pinned?.[panel.nth]?.tokens.at(-1);
      if (last !== undefined) (strip ?? drawing).show?.(last);
    }
  }

  build() {
    const { header, panels, pinned, titles } = this.selection;
    this.theme = themeOf(this.root, header.random);
    const { activeElement } = treeOf(this.root);
    const focused = activeElement instanceof HTMLElement ? activeElement.dataset.panel : undefined;
    this.drawings = panels.map((panel) => panelOf(this.selection, this.theme, panel, titles[panel.nth]));
    this.row.show(
      this.drawings.map(({ head }) => head),
      this.drawings.map(({ box }) => box),
      titles,
      header.texts.sentences,
    );
    for (const one of this.drawings) {
      asList(one.drawing.list, one.panel, header.texts);
      followPointer(this, one);
      if (one.strip) followPointer(this, { ...one, stage: one.strip.stage, drawing: one.strip });
    }
    this.controls();
    this.followed = null;
    this.redraw(this.width || this.root.clientWidth, pinned?.[0]?.tokens[0]); // another width is observed
    if (focused !== undefined) this.#toKeys(Number(focused));
    if (header.swings && this.width && !this.row.swiped) swing(this.root, this.drawings);
  }

  // Draw all in this width, with this token in the middle of a long sentence. What is laid out is read in the next frame,
  // when it is laid out in any case: a key does not wait for that.
  /** @param {number} [middle] */
  redraw(width = this.root.clientWidth, middle = 0) {
    if (width !== this.width) this.matrices.gallery.rooms = null;
    this.width = width;
    if (!this.width) return;
    const room = this.row.arrange(width);
    for (const { drawing, panel } of this.drawings) drawing.draw(room, Math.min(middle, longestOf(panel) - 1));
    for (const { strip } of this.drawings) strip?.draw();
    this.matrices.draw();
    this.#updateRest();
    requestAnimationFrame(() => {
      for (const { drawing } of this.drawings) drawing.settle?.();
      this.followWithWords();
    });
  }

  update() {
    for (const { drawing } of this.drawings) drawing.update();
    for (const { strip } of this.drawings) strip?.update();
    this.matrices.update();
    this.#updateRest();
    this.followWithWords();
  }

  #updateRest() {
    showChips(this);
    this.grid.update();
    this.row.update(this.selection.nth);
    this.describe();
  }

  describe() {
    const { selection } = this;
    const { header, heads } = selection;
    // New sentences are no lower than those before them: nothing below may move up under the pointer.
    const places = this.drawings.flatMap(({ status, answers }) => [status, answers]).filter((one) => one.dataset.text);
    const heights = places.map((place) => place.getBoundingClientRect().height);
    places.forEach((place, nth) => {
      place.style.minHeight = `${heights[nth]}px`;
    });
    for (const { panel, answers, status, stage, drawing } of this.drawings) {
      const { focus, pinned } = selection.of(panel);
      const layer = selection.layer(panel);
      const sentence = spoken(panel, layer, heads, focus, selection.hidden(panel), header.texts);
      const isMean = selection.state.drawing === "matrix" && heads.length > 1 && header.texts.means;
      const said = [sentence, isMean, broughtOut(selection, drawing), nothing(selection, panel)];
      const text = paragraph(said, header.texts);
      if (status.dataset.text !== text) {
        status.dataset.text = text;
        status.replaceChildren(make("span", "", text));
      }
      showAnswers(answers, selection.answers(panel), header.texts, this.theme.textColours);
      stage.dataset.pinned = String(Boolean(pinned));
      const active = selection.active(panel);
      if (active) {
        const id = `${panel.id}-${selection.sideOf(active.side)}-${active.token}`;
        drawing.list.setAttribute("aria-activedescendant", id);
      } else drawing.list.removeAttribute("aria-activedescendant");
    }
    const place = JSON.stringify(selection.looked);
    if (place !== this.place) {
      this.place = place;
      this.page.moved?.(); // which the address says, and what is below links to
    }
    showFoot(this);
  }

  // The name of the button that types over a word; null where that cannot be done.
  /** @param {number} nth @param {number} token */
  rewriting(nth, token) {
    const { header, panels, state } = this.selection;
    const panel = panels[nth];
    const isFixed = !this.page.rewrite || panel.two || state.words || panel.special.query.has(token);
    return !isFixed && header.rewrite && this.#wordOf(nth, token)
      ? fill(header.rewrite, { word: isolated(panel.tokens[token]) })
      : null;
  }

  // The element of a word in its sentence, which stands above the drawing.
  /** @param {number} nth @param {number} token */
  #wordOf(nth, token) {
    return elementsIn(this.drawings[nth].head, `.prose [data-at="${token}"]`)[0];
  }

  rewriteChosen() {
    const { nth, single } = this.selection;
    if (single) this.#rewrite(nth, single.token);
  }

  /** @param {number} nth @param {number} token */
  #rewrite(nth, token) {
    const name = this.rewriting(nth, token);
    if (!name) return;
    const commit = (/** @type {string} */ word) => this.page.rewrite?.(nth, token, word);
    typeOver(this.#wordOf(nth, token), name, commit, () => this.#toKeys(nth));
  }

  // From the one word that is chosen in the first sentence to the one that the chosen head looks at most; null where
  // one of them is no word or both are the same, and where nobody can compute the sentence without that edge.
  get edge() {
    const { header, nth, panels, single, chosenHead, state } = this.selection;
    if (!header.block || nth > 0 || state.words || single?.side !== "query") return null;
    const panel = panels[nth];
    const [key] = strongest(this.selection.layer(panel).row(chosenHead, single.token), {
      threshold: Number.MIN_VALUE,
      count: 1,
    });
    const isItself = !panel.two && key === single.token;
    const isSpecial = panel.special.query.has(single.token) || panel.special.key.has(key);
    if (key === undefined || isItself || isSpecial) return null;
    const words = { query: isolated(panel.tokens[single.token]), key: isolated(panel.keys[key]) };
    return { query: single.token, key, words };
  }

  controls() {
    const { header, panels, state, two } = this.selection;
    const { texts } = header;
    showBar(this);
    // In the app sentence and model stand above the view, and of several texts each above its panel.
    const titled = panels.length > 1 || two;
    const layer = fill(texts.layer_of, { layer: state.layer + 1, layers: header.layers });
    const parts = [titled ? "" : panels[0].title, header.source, layer].filter(Boolean);
    const inApp = header.notes?.[state.layer] ?? "";
    const grey = questionsOf(header, 0, state.layer).length > 0 ? texts.grey : "";
    this.caption.textContent =
      header.follows === undefined
        ? [...parts, grey].filter(Boolean).join(" · ")
        : paragraph([inApp, inApp && grey], texts); // a lesson says neither
  }
}

// Each question with its answer, which stands out where it is sure, and with the heads that are asked, in their colour.
/**
 * @param {HTMLElement} place
 * @param {AnswerText[]} answers
 * @param {Record<string, string>} texts
 * @param {string[]} colours of heads
 */
function showAnswers(place, answers, texts, colours) {
  const text = JSON.stringify(answers);
  if (place.dataset.text === text) return;
  place.dataset.text = text;
  place.replaceChildren(
    ...answers.map(([asked, words, note, sure, heads]) => {
      const pair = make("span", "answer", `${asked} `, make("b", sure ? "" : "unsure", words));
      if (heads.length) {
        const numbers = heads.map((head) => head + 1).join(texts.comma);
        const style = `color: ${colours[heads[0] % colours.length]}`;
        const label = Object.assign(make("small", "", `●${numbers}`), { style, role: "img" });
        pair.append(" ", named(label, fill(texts.one_head, { heads: numbers })));
      }
      if (note) pair.append(" ", make("small", "", note));
      return pair;
    }),
  );
}

// Which of the heads that are on have nothing to find at the one token in focus.
/** @param {Selection} selection @param {Panel} panel */
function nothing(selection, panel) {
  const { focus } = selection.of(panel);
  const { compact, questions, texts } = selection.header;
  if (compact || focus?.side !== "query" || focus.tokens.length !== 1) return "";
  const [token] = focus.tokens;
  const heads = selection.heads.filter((head) => selection.nothing(panel, [head]).includes(token));
  if (!heads.length) return "";
  const place = { token: isolated(panel.tokens[token]) };
  if (heads.length > 1)
    return fill(texts.nothing_heads, { ...place, heads: heads.map((head) => head + 1).join(texts.comma) });
  const asks = questions?.[panel.nth][heads[0]].asks ?? [];
  const asked = asks.map((question) => texts[`question_${question}`] ?? question).join(texts.comma);
  return fill(texts.nothing, { ...place, head: heads[0] + 1, questions: asked });
}

// The place of one sentence in the view: its title and its words, the stage of its drawing, and what is said about
// it. A drawing that is the words stands where they do.
/** @param {Selection} selection @param {Theme} theme @param {Panel} panel @param {string} words @returns {Drawing} */
function panelOf(selection, theme, panel, words) {
  const { header, panels, state } = selection;
  const stage = make("div", `stage ${state.drawing}`);
  const hidden = !header.answers?.some((one) => one.length);
  const answers = Object.assign(make("p", "answers"), { ariaLive: "polite", hidden });
  const status = Object.assign(make("p", "status"), { ariaLive: "polite" });
  const standsAbove = header.strips && header.brief !== false;
  const title = Object.assign(make("p", "title", words), { title: panel.title, dir: "auto" });
  const isTitled = (panels.length > 1 && !standsAbove) || panel.two;
  const strip = stripOf(selection, theme, panel);
  const isWords = header.strips && !panel.two && state.drawing === "text";
  const className = header.compact ? "head compact" : "head";
  const head = make("div", className, isTitled && title, strip?.stage, isWords && stage, answers);
  const box = make("div", "panel", !isWords && stage, status);
  const drawing = new DRAWINGS[state.drawing]({ selection, theme, panel, stage });
  return { panel, head, box, stage, answers, status, strip, drawing };
}

// Makes the part of a drawing that has the keyboard a list of tokens to a screen reader.
/** @param {HTMLElement} list @param {Panel} panel @param {Record<string, string>} texts */
function asList(list, panel, texts) {
  list.dataset.panel = String(panel.nth);
  const ariaLabel = fill(texts.panel, { text: panel.title });
  Object.assign(list, { tabIndex: 0, role: "listbox", ariaMultiSelectable: "true", ariaLabel });
}

// The sentence above its drawing. The drawing has the keyboard: to a screen reader they are one and the same.
/** @param {Selection} selection @param {Theme} theme @param {Panel} panel */
function stripOf(selection, theme, panel) {
  const { header, state } = selection;
  const fits = !panel.two && panel.tokens.length <= LONGEST_STRIP;
  if (!header.strips || !fits || state.drawing === "text") return null;
  const stage = Object.assign(make("div", "strip text"), { ariaHidden: "true" });
  const strip = new ShadedText({ selection, theme, panel, stage });
  strip.isStrip = true;
  for (const element of strip.elements) element.removeAttribute("id");
  return strip;
}

/**
 * Panels that were read from a payload, shown in a root that may have been shown something before.
 * @param {HTMLElement & { view?: HeadView }} root
 * @param {Header} header
 * @param {import("../numbers/payload.js").PayloadPanel[]} panels
 * @param {PageActions} page
 */
export function showView(root, header, panels, page) {
  root.view ??= new HeadView(root);
  root.view.show(header, panels, page);
  return root.view;
}
