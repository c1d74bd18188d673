// The state of a head view: layer, heads, tokens and kind of drawing. This file changes it; others draw it.

import { layerOf, longestOf, nothingIn, prepared, questionsOf } from "../numbers/panel.js";
import { apart } from "../page/wording.js";
import { afterPick, defaultThreshold, everywhere, isDrawable } from "../scene/focus.js";
import { CHOICES } from "../scene/schema.js";

/** @typedef {import("../scene/focus.js").Focus} Focus */
/** @typedef {import("../numbers/panel.js").Panel} Panel */
/** @typedef {import("../numbers/panel.js").Side} Side */
/** @typedef {import("../numbers/payload.js").PayloadPanel} PayloadPanel */
/** @typedef {import("../scene/focus_link.js").ViewPlace} ViewPlace */
/** @typedef {import("./head_view.js").Header} Header */

/** @typedef {Omit<ViewPlace, "head" | "on" | "nth" | "tokens">} ViewState how it is drawn */
/** @typedef {{ layer: number, head: number, token: number | null, key?: number | null }} Chosen `key`: of another text */

const SIDED = new Set(["text", "arcs"]); // drawings of one list of tokens, whose direction is chosen beside them
/** @type {import("../scene/focus.js").TokensOfSides} */
const NOTHING = { query: new Set(), key: new Set() };

export class Selection {
  header = /** @type {Header} */ ({}); // until something is shown
  /** @type {ViewState} */
  state = {
    drawing: CHOICES.drawing[0],
    side: "query",
    layer: 0,
    threshold: null,
    maxLines: 0,
    rescaled: false,
    words: false,
    fitted: false,
    matrix: CHOICES.matrix[0],
    number: "",
  };
  /** @type {PayloadPanel[]} as they were sent */
  original = [];
  /** @type {Panel[]} as they are drawn */
  panels = [];
  /** @type {Set<number> | null} heads that were switched on; null as long as nobody has switched any */
  on = null;
  /** @type {(Focus | null)[] | null} of each panel what a click holds */
  pinned = null;
  /** @type {(Focus | null)[] | null} of each panel what is under the pointer */
  hover = null;
  at = { nth: 0, token: 0 }; // where the keyboard is
  /** @type {number | undefined} the head that was clicked or switched on last */
  last;
  sentences = "";
  scene = "";

  /**
   * New numbers or a new scene. What was switched stays switched, as far as it still exists.
   * @param {Header} header
   * @param {PayloadPanel[]} panels
   */
  show(header, panels) {
    const { heads } = this.header; // before
    this.header = header;
    this.original = panels;
    if (!this.scene) {
      // A page that was saved so.
      const { drawing, rescaled, words } = this.state;
      this.state.drawing = header.drawing ?? drawing;
      this.state.rescaled = header.rescaled ?? rescaled;
      this.state.words = header.words ?? words;
    }
    this.prepare();
    // Another sentence is another scene: what was pinned may not even exist in it.
    const sentences = JSON.stringify(this.panels.map(({ tokens, keys, two }) => [tokens, two && keys]));
    const another = this.sentences !== sentences;
    const scene = JSON.stringify([header.layer, header.head, header.token, header.heads]);
    if (another || this.scene !== scene || !this.has(this.state.layer)) {
      this.state.layer = header.layer;
      // A page that has followed the view leaves it as it is: where the keyboard is, and who is pinned with it.
      const follows = !another && this.chosenToken === header.token;
      if (!follows) this.pinPieces(0, "query", header.token === null ? [] : [header.token]);
      if (heads !== header.heads || !this.on?.has(header.head)) this.on = null;
    }
    if (this.scene !== scene) this.last = header.head;
    this.sentences = sentences;
    this.scene = scene;
    this.hover = null;
  }

  prepare() {
    this.panels = this.original.map((panel, nth) => prepared(panel, this.header, nth, this.state.words));
    if (!isDrawable(this.state.drawing, this.two)) this.state.drawing = CHOICES.drawing[0];
  }

  // Everything that a link says about a view: where it looks, and how it draws that. Tokens are pieces, from 0.
  /** @returns {ViewPlace} */
  get looked() {
    const { layer, side: chosenSide, ...drawn } = this.state;
    const { nth } = this;
    const pinned = this.pinned?.[nth];
    const { token } = this.at;
    const held = pinned?.tokens ?? [];
    const ordered = held.includes(token) ? [...held.filter((other) => other !== token), token] : held;
    const side = pinned?.side ?? chosenSide;
    const tokens = ordered.map((at) => this.panels[nth].pieceOf(side, at));
    return { layer, head: this.chosenHead, on: this.on && this.heads, nth, side, tokens, ...drawn };
  }

  // Look there; the layer and the head are here. Returns whether all is drawn in another way.
  /** @param {ViewPlace} place */
  goTo({ layer, head, on, nth, side, tokens, ...drawn }) {
    const rebuilt = this.state.drawing !== drawn.drawing || this.state.words !== drawn.words;
    Object.assign(this.state, drawn, { layer, side: SIDED.has(drawn.drawing) ? side : "query" });
    if (rebuilt) this.prepare();
    this.on = on && new Set(on);
    this.last = head;
    this.hover = null;
    this.pinPieces(nth, side, tokens);
    return rebuilt;
  }

  // The titles of the panels; brief ones leave out the words that all of them begin with.
  get titles() {
    const titles = this.panels.map(({ title }) => title);
    return this.header.brief ? apart(titles) : titles;
  }

  // The panel that is looked at.
  get nth() {
    return Math.min(this.at.nth, this.panels.length - 1);
  }

  // The one token that is pinned there; null for none and for several.
  get single() {
    const held = this.pinned?.[this.nth];
    return held?.tokens.length === 1 ? { side: held.side, token: held.tokens[0] } : null;
  }

  // Look at another panel: at the same token there, or else at the one that stands in its place.
  /** @param {number} nth */
  lookAtPanel(nth) {
    const before = this.nth;
    const pinned = this.pinned?.[before];
    const at = this.at.token;
    this.at = { nth, token: at };
    if (pinned) {
      const [token = at] = this.everywhere(before, { side: pinned.side, tokens: [at] })[nth]?.tokens ?? [];
      this.at.token = token;
    }
    this.hover = null;
  }

  // Hold these pieces of a sentence, the last of them where the keyboard is.
  /** @param {number} nth @param {Side} side @param {number[]} pieces */
  pinPieces(nth, side, pieces) {
    const tokens = pieces.map((piece) => this.panels[nth].wordOf(side, piece));
    const last = tokens.at(-1);
    this.pin(nth, tokens.length ? { side, tokens: [...new Set(tokens)].sort((a, b) => a - b) } : null);
    if (last !== undefined) this.at = { nth, token: last };
  }

  /** @param {number} nth @param {Focus | null} focus */
  pin(nth, focus) {
    this.pinned = this.everywhere(nth, focus);
    this.at = { nth, token: focus?.tokens.at(-1) ?? this.at.token };
  }

  // A token was clicked; with `more` it is added to those that are held.
  /** @param {number} nth @param {Side} side @param {number} token @param {boolean} more */
  choose(nth, side, token, more) {
    // The same word in the other sentence is looked at there: only a second click in its own lets go of it.
    const held = more || this.at.nth === nth ? this.pinned?.[nth] : null;
    this.pin(nth, afterPick(held, side, token, more));
    this.at = { nth, token };
    this.hover = null;
  }

  // Another drawing, direction or joining of words; what is held changes as it must.
  /** @template {keyof ViewState} Name @param {Name} name @param {ViewState[Name]} value */
  set(name, value) {
    this.state[name] = value;
    const { side } = this.state;
    if (name === "words") this.pinned = null;
    if (name === "side" && this.pinned) this.pinned = this.pinned.map((pinned) => pinned && { ...pinned, side });
  }

  /** @param {number} nth @param {Focus | null} focus */
  everywhere = (nth, focus) => everywhere(this.panels, nth, focus);

  // The pinned focus of a panel, and its focus now.
  /** @param {Panel} panel */
  of(panel) {
    const pinned = this.pinned?.[panel.nth] ?? null;
    const hover = this.hover?.[panel.nth] ?? null;
    return { pinned, focus: hover ?? pinned };
  }

  // The questions at the one token in focus of a panel, with the model's answers.
  /** @param {Panel} panel */
  answers(panel) {
    const { focus } = this.of(panel);
    if (focus?.side !== "query" || focus.tokens.length !== 1) return [];
    return this.header.answers?.[panel.nth]?.[panel.pieceOf("query", focus.tokens[0])] ?? [];
  }

  // The token that the keyboard is at in a sentence: the last one that was chosen there.
  /** @param {Panel} panel */
  active(panel) {
    const pinned = this.pinned?.[panel.nth];
    return pinned && this.at.nth === panel.nth ? { side: pinned.side, token: this.at.token } : null;
  }

  // The side of an element of a token: where there is one element for both sides it is "token".
  /** @param {Side} side @returns {import("../numbers/panel.js").TokenSide} */
  sideOf = (side) => (this.state.drawing === "lines" || this.two ? side : "token");

  // The layer, head and tokens that are chosen in the view: what "show it on the page" asks for.
  /** @returns {Chosen} */
  get chosen() {
    const chosen = { layer: this.state.layer, token: this.chosenToken, head: this.chosenHead };
    return this.two ? { ...chosen, key: this.#chosenOn(["key"]) } : chosen;
  }

  get chosenToken() {
    return this.#chosenOn(this.two ? ["query"] : ["query", "key"]);
  }

  // The token that is chosen on one of these sides; null for none.
  /** @param {Side[]} sides */
  #chosenOn(sides) {
    const pinned = this.pinned?.find((focus) => focus?.tokens.length && sides.includes(focus.side));
    if (!pinned) return null;
    const at = pinned.tokens.includes(this.at.token) ? this.at.token : pinned.tokens[pinned.tokens.length - 1];
    return this.panels[0].pieceOf(pinned.side, at);
  }

  // The head that was switched on last, as long as it is on, else the page's own, else the first that is.
  get chosenHead() {
    const heads = this.#headsAt(this.pinned);
    const { head } = this.header;
    return [this.last ?? head, head].find((one) => heads.includes(one)) ?? heads[0] ?? head;
  }

  // The heads that are drawn.
  get heads() {
    return this.#headsAt(this.hover ?? this.pinned).toSorted((a, b) => a - b);
  }

  // The heads that were switched on, else those that the page asked for, else those that answer at the focus.
  /** @param {(Focus | null)[] | null} focuses */
  #headsAt(focuses) {
    const { every, header, on } = this;
    /** @param {number} head */
    const isHere = (head) => every.includes(head);
    if (on) return [...on].filter(isHere);
    if (header.on) return header.on.length === header.heads ? every : header.on.filter(isHere);
    const head = this.last ?? header.head;
    const answering = this.#answering(focuses?.[this.nth], [head, ...every.filter((other) => other !== head)]);
    return answering.length ? answering : [head].filter(isHere);
  }

  // One head for each question with an answer at the token in focus; empty if the heads are not asked anything.
  /** @param {Focus | null | undefined} focus @param {number[]} heads the preferred ones first */
  #answering(focus, heads) {
    const { header } = this;
    const panel = this.panels[this.nth];
    const layer = this.layer(panel);
    if (focus?.side !== "query" || focus.tokens.length !== 1) return [];
    const asked = questionsOf(header, this.nth, layer.number);
    const at = panel.pieceOf("query", focus.tokens[0]);
    const named = header.answers?.[this.nth]?.[at]?.flatMap((answer) => answer[4]) ?? []; // “perhaps no word here” is by one
    /** @type {Set<string>} */
    const answered = new Set();
    const chosen = heads.filter((head) => {
      const { asks = [], nothing = [at] } = asked[head] ?? {};
      const answers = named.includes(head) || !nothing.includes(at);
      const isNew = answers && asks.some((question) => !answered.has(question));
      if (isNew) for (const question of asks) answered.add(question);
      return isNew;
    });
    return chosen;
  }

  get every() {
    return this.layer(this.panels[0]).heads;
  }

  get threshold() {
    return this.state.threshold ?? defaultThreshold(Math.max(...this.panels.map(longestOf)));
  }

  /** @param {Panel} panel */
  layer(panel) {
    return layerOf(panel, this.state.layer, this.state.rescaled);
  }

  /** @param {number} layer */
  has = (layer) => this.panels[0].layers.has(layer);

  // Do the sentences look at another text?
  get two() {
    return this.panels.some(({ two }) => two);
  }

  // The tokens of a panel that are left out.
  /** @param {Panel} panel */
  hidden(panel) {
    return this.state.rescaled ? panel.special : NOTHING;
  }

  // The rows of a panel in which none of these heads has anything to find.
  /** @param {Panel} panel @param {number[]} heads */
  nothing(panel, heads = this.heads) {
    return nothingIn(this.header, panel.nth, this.layer(panel).number, heads, panel.wordOf);
  }
}
