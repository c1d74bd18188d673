// The eye: all heads of a layer at once, every token under the finger. What is hovered, pinned, switched or
// drawn differently stays in the browser; the server hears only of "show this on the page".
const DRAWINGS = { lines: Lines, text: Shaded, arcs: Arcs, matrix: Matrix };

const NOTHING = { query: new Set(), key: new Set() };
const BOLD = 1.1; // how much wider a token in focus is

class HeadView {
  constructor(root) {
    this.root = root;
    this.state = { drawing: "lines", side: "query", least: null, most: 0, plain: false, words: false };
    this.hover = null;
    root.replaceChildren(...["bar", "chips", "panels", "foot"].map((part) => (this[part] = make("div", part))));
    this.chips.setAttribute("role", "group");
    this.panels.addEventListener("keydown", (event) => pressedKey(this, event));
    root.addEventListener("pointerdown", ({ target }) => {
      for (const menu of root.querySelectorAll("details[open]")) if (!menu.contains(target)) menu.open = false;
    });
    new ResizeObserver(() => this.redraw()).observe(this.panels);
  }

  // New numbers or a new scene. What was switched stays switched, as far as it still exists.
  show(header, panels, { open, page, bytes }) {
    const { texts } = header;
    Object.assign(this, { header, texts, open, page, bytes });
    if (!this.scene) for (const name of ["drawing", "plain", "words"]) this.state[name] = header[name] ?? this.state[name]; // a page that was saved so
    this.data = panels.map((panel, nth) => prepared(panel, header, nth, this.state.words));
    if (!this.offers(this.state.drawing)) this.state.drawing = "lines";
    // Another sentence is another scene: what was pinned may not even exist in it.
    const said = JSON.stringify(this.data.map(({ tokens, keys, two }) => [tokens, two && keys]));
    const another = this.said !== said;
    const scene = JSON.stringify([header.layer, header.head, header.token, header.heads]);
    const first = this.data[0].layers;
    if (another || this.scene !== scene || !first.has(this.state.layer)) {
      this.state.layer = header.layer;
      // A page that has followed the view leaves it as it is: where the keyboard is, and who is pinned with it.
      const follows = !another && chosenToken(this) === header.token;
      if (!follows) this.pin(0, header.token === null ? null : { side: "query", tokens: [this.data[0].wordOf("query", header.token)] });
      if (!this.on || this.nHeads !== header.heads || !this.on.has(header.head)) this.on = new Set(header.on);
    }
    Object.assign(this, { said, scene, nHeads: header.heads, hover: null, line: null });
    this.build();
  }

  get heads() {
    return [...this.on].filter((head) => this.every.includes(head)).sort((a, b) => a - b);
  }

  get every() {
    return this.layer(this.data[0]).heads;
  }

  get least() {
    return this.state.least ?? leastOf(Math.max(...this.data.map(longestOf)));
  }

  get most() {
    return this.state.most;
  }

  layer(panel) {
    return layerOf(panel, this.state.layer, this.state.plain);
  }

  look(head) {
    return lookOf(this.palette, head);
  }

  hidden(panel) {
    return this.state.plain ? panel.special : NOTHING;
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
  }

  // Theme and fonts are read anew: both can change while the page is open.
  readTheme() {
    const style = getComputedStyle(this.root);
    const read = (name) => style.getPropertyValue(name).trim();
    this.palette = read("--st-chart-categorical-colors").split(",").map((colour) => colour.trim());
    this.colours = themeColours(this.root);
    this.accent = read("--st-primary-color");
    this.ink = read("--st-text-color");
    this.background = read("--st-background-color");
    this.font = style.fontFamily;
    this.ruler ??= document.createElement("canvas").getContext("2d");
    this.ruler.font = `14.4px ${this.font}`;
  }

  textWidth = (text) => this.ruler.measureText(text).width;

  measure = (panel, side) => listOf(panel, side).reduce((widest, token) => Math.max(widest, this.textWidth(token)), 0) * BOLD;

  // Do the sentences look at another text?
  get two() {
    return this.data.some(({ two }) => two);
  }

  // Arcs need one list of tokens.
  offers = (drawing) => drawing !== "arcs" || !this.two;

  build() {
    this.readTheme();
    const focused = this.root.getRootNode().activeElement?.dataset?.panel;
    const full = this.data.map(({ title }) => title);
    const titles = this.header.brief ? apart(full) : full;
    this.drawings = this.data.map((panel) => panelOf(this, panel, titles[panel.nth]));
    this.panels.replaceChildren(...this.drawings.map(({ box }) => box));
    for (const one of this.drawings) {
      one.drawing = new DRAWINGS[this.state.drawing](this, one.panel, one.stage);
      listen(this, one);
    }
    this.controls();
    this.redraw();
    arrived(this.root);
    if (focused !== undefined) this.drawings[focused]?.stage.focus({ preventScroll: true });
    const pinned = this.pinned?.[0]?.tokens[0];
    if (pinned) for (const { drawing, panel } of this.drawings) drawing.centre?.(Math.min(pinned, longestOf(panel) - 1));
  }

  redraw() {
    if (!this.drawings || !this.panels.clientWidth) return;
    for (const { drawing } of this.drawings) drawing.draw();
    this.say();
  }

  update() {
    for (const { drawing } of this.drawings) drawing.update();
    this.say();
  }

  say() {
    for (const { panel, said, stage } of this.drawings) {
      const { focus, pinned } = this.of(panel);
      const sentence = spoken(panel, this.layer(panel), this.heads, focus, this.hidden(panel), this.texts);
      const text = `${sentence}${this.thickest(panel)}`;
      if (said.dataset.text !== text) {
        said.dataset.text = text;
        said.replaceChildren(make("span", "", text));
      }
      stage.dataset.pinned = Boolean(pinned);
      const active = this.active(panel);
      if (active) stage.setAttribute("aria-activedescendant", `${panel.id}-${this.sideOf(active.side)}-${active.token}`);
      else stage.removeAttribute("aria-activedescendant");
    }
    showFoot(this);
  }

  // How much weight the thickest line stands for, where that is not 1.
  thickest(panel) {
    const strongest = this.drawings[panel.nth].drawing.strongest ?? 0;
    return strongest > 0 && strongest < FULL ? ` ${fill(this.texts.thickest, { weight: exact(strongest) })}` : "";
  }

  // The token that the keyboard is at in a sentence: the last one that was chosen there.
  active(panel) {
    const pinned = this.pinned?.[panel.nth];
    return pinned && this.at.nth === panel.nth ? { side: pinned.side, token: this.at.token } : null;
  }

  sideOf = (side) => (this.state.drawing === "lines" || this.two ? side : "token");

  choose(nth, { side, tokens: [token] }, more) {
    this.pin(nth, afterPick(this.pinned?.[nth], side, token, more));
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
    if (!this.has(number)) return this.open?.({ ...chosen(this), layer: number });
    this.state.layer = number;
    this.controls();
    this.redraw();
  }

  toServer() {
    this.open?.(chosen(this));
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

  again() {
    const panels = this.data.map(({ nth }) => this.original[nth]);
    this.show(this.header, panels, this);
  }

  controls() {
    showBar(this);
    showChips(this);
  }
}

// Panels that were read from a blob, shown in a root that may have been shown something before.
export function showView(root, header, panels, actions) {
  root.view ??= new HeadView(root);
  root.view.original = panels;
  root.view.show(header, panels, actions);
  return root.view;
}
