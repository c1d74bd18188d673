// The eye: all heads of a layer at once, every token under the finger. What is hovered, pinned, switched or
// drawn differently stays in the browser; the server hears only of "show this on the page".
const STILL = 4; // pixels that a click may tremble
const DRAWINGS = { lines: Lines, text: Shaded, arcs: Arcs, matrix: Matrix };

const BOLD = 1.1; // how much wider a token in focus is

class HeadView {
  constructor(root) {
    this.root = root;
    this.state = { drawing: "lines", side: "query", least: null, most: 0, plain: false, words: false };
    this.hover = null;
    root.replaceChildren(...["bar", "chips", "panels", "foot"].map((part) => (this[part] = make("div", part))));
    this.chips.setAttribute("role", "group");
    this.panels.addEventListener("keydown", (event) => this.key(event));
    root.addEventListener("pointerdown", ({ target }) => {
      for (const menu of root.querySelectorAll("details[open]")) if (!menu.contains(target)) menu.open = false;
    });
    new ResizeObserver(() => this.redraw()).observe(this.panels);
  }

  // New numbers or a new scene. What was switched stays switched, as far as it still exists.
  show(header, panels, { open, page, bytes }) {
    const { texts } = header;
    Object.assign(this, { header, texts, open, page, bytes });
    if (!this.scene && header.drawing) this.state.drawing = header.drawing; // a page that was saved so
    this.data = panels.map((panel, nth) => {
      const groups = header.groups?.[nth] ?? null;
      const joined = this.state.words && groups;
      const tokens = joined ? joinedTokens(panel.tokens, groups) : panel.tokens;
      const layers = joined ? new Map([...panel.layers].map(([n, l]) => [n, new Grouped(l, groups)])) : panel.layers;
      return { ...panel, tokens, layers, groups, nth, id: `${header.id}-${nth}`, special: new Set(joined ? [] : header.special[nth]) };
    });
    // Another sentence is another scene: what was pinned may not even exist in it.
    const said = JSON.stringify(this.data.map(({ tokens }) => tokens));
    const another = this.said !== said;
    const scene = JSON.stringify([header.layer, header.head, header.token, header.heads]);
    const first = this.data[0].layers;
    if (another || this.scene !== scene || !first.has(this.state.layer)) {
      this.state.layer = header.layer;
      // A page that has followed the view leaves it as it is: where the keyboard is, and who is pinned with it.
      const follows = !another && this.chosenToken() === header.token;
      if (!follows) this.pin(0, header.token === null ? null : { side: "query", tokens: [header.token] });
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
    return this.state.least ?? leastOf(Math.max(...this.data.map(({ tokens }) => tokens.length)));
  }

  get most() {
    return this.state.most;
  }

  layer(panel) {
    return panel.layers.get(this.state.layer) ?? panel.layers.values().next().value;
  }

  look(head) {
    return lookOf(this.palette, head);
  }

  hidden(panel) {
    return this.state.plain ? panel.special : new Set();
  }

  of(panel) {
    const pinned = this.pinned?.[panel.nth] ?? null;
    const hover = this.hover?.[panel.nth] ?? null;
    return { pinned, focus: hover ?? pinned };
  }

  // What is chosen in one sentence is chosen in the other, where the same token stands in the same place.
  everywhere(nth, focus) {
    return this.data.map((panel) => {
      if (!focus || panel.nth === nth) return focus;
      const tokens = focus.tokens.filter((token) => panel.tokens[token] === this.data[nth].tokens[token]);
      return tokens.length ? { ...focus, tokens } : null;
    });
  }

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

  measure = (panel) => panel.tokens.reduce((widest, token) => Math.max(widest, this.textWidth(token)), 0) * BOLD;

  build() {
    this.readTheme();
    const focused = this.root.getRootNode().activeElement?.dataset?.panel;
    const full = this.data.map(({ title }) => title);
    const titles = this.header.brief ? apart(full) : full;
    this.drawings = this.data.map((panel) => {
      const box = make("div", "panel");
      const stage = make("div", `stage ${this.state.drawing}`);
      const said = make("p", "said");
      said.setAttribute("aria-live", "polite");
      Object.assign(stage, { tabIndex: 0 });
      stage.dataset.panel = panel.nth;
      stage.setAttribute("role", "listbox");
      stage.setAttribute("aria-multiselectable", "true");
      stage.setAttribute("aria-label", fill(this.texts.panel, { text: panel.title }));
      const title = make("p", "title", titles[panel.nth]);
      Object.assign(title, { title: panel.title, dir: "auto" });
      if (this.data.length > 1) box.append(title);
      box.append(stage, said);
      return { panel, box, stage, said };
    });
    this.panels.replaceChildren(...this.drawings.map(({ box }) => box));
    for (const one of this.drawings) {
      one.drawing = new DRAWINGS[this.state.drawing](this, one.panel, one.stage);
      this.listen(one);
    }
    this.controls();
    this.redraw();
    arrived(this.root);
    if (focused !== undefined) this.drawings[focused]?.stage.focus({ preventScroll: true });
    const pinned = this.pinned?.[0]?.tokens[0];
    if (pinned) for (const { drawing, panel } of this.drawings) drawing.centre?.(Math.min(pinned, panel.tokens.length - 1));
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
      const sentence = spoken(panel.tokens, this.layer(panel), this.heads, focus, this.hidden(panel), this.texts);
      const text = `${sentence}${this.thickest(panel)}`;
      if (said.dataset.text !== text) {
        said.dataset.text = text;
        said.replaceChildren(make("bdi", "", text));
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

  sideOf = (side) => (this.state.drawing === "lines" ? side : "token");

  // Pointer

  listen({ panel, stage, drawing, said }) {
    const tokenOf = (event) => event.target.closest?.(".token");
    const focusOf = (element, at = Number(element.dataset.at)) => ({
      side: element.dataset.side === "token" ? this.state.side : element.dataset.side,
      tokens: [at],
    });
    const hover = (focus) => {
      const before = JSON.stringify(this.hover);
      this.hover = focus && this.everywhere(panel.nth, focus);
      if (JSON.stringify(this.hover) !== before) this.update();
    };
    const drag = (event) => {
      this.dragged += Math.abs(event.movementX) + Math.abs(event.movementY);
      if (this.dragged < STILL) return;
      drawing.window.pan(event.movementX, event.movementY);
      drawing.paint();
    };
    // The line or cell under the pointer says its own number.
    const point = (event) => {
      const line = drawing.hit(event);
      if (drawing.curves && line !== this.line) drawing.paint(line);
      this.line = line;
      const text = line ? this.exactly(panel, line) : null;
      if (!text) return this.say();
      if (said.dataset.text !== text) said.replaceChildren(make("bdi", "", text));
      said.dataset.text = text;
    };
    stage.addEventListener("pointerdown", () => (this.dragged = 0));
    stage.addEventListener("pointermove", (event) => {
      if (drawing.window?.zoomed && event.buttons === 1) return drag(event);
      const element = tokenOf(event);
      if (element) return event.pointerType === "touch" ? undefined : hover(focusOf(element));
      hover(null);
      point(event);
    });
    stage.addEventListener("pointerleave", () => {
      hover(null);
      if (this.line) drawing.paint((this.line = null));
      drawing.mark?.(null);
      this.say();
    });
    stage.addEventListener("click", (event) => {
      if (this.dragged >= STILL) return;
      const element = tokenOf(event);
      const cell = element ? null : drawing.hit(event);
      if (!element && !(drawing.window && cell)) return point(event); // a finger does not hover
      const focus = element ? focusOf(element) : { side: "query", tokens: [cell.query] };
      this.choose(panel.nth, focus, event.shiftKey || event.ctrlKey || event.metaKey);
    });
  }

  exactly(panel, { query, key, head, weight, hidden }) {
    const texts = this.texts;
    const layer = this.layer(panel);
    const who = head === null ? fill(texts.mean_of, { heads: this.heads.map((h) => h + 1).join(", ") }) : fill(texts.one_head, { heads: head + 1 });
    const [from, to] = [panel.tokens[query], panel.tokens[key]];
    if (hidden) return fill(texts.cell_hidden, { from, to });
    const score = head === null || !layer.score ? NaN : layer.score(head, query, key);
    const value = exact(weight);
    return fill(Number.isNaN(score) ? texts.cell : texts.cell_score, { who, from, to, value, score: score.toFixed(3) });
  }

  choose(nth, { side, tokens: [token] }, more) {
    this.pin(nth, afterPick(this.pinned?.[nth], side, token, more));
    this.at = { nth, token };
    this.hover = null;
    this.update();
  }

  // Keyboard: arrows walk, Enter pins, Esc releases, H and L walk heads and layers.

  key(event) {
    const nth = Number(event.target.dataset?.panel ?? NaN);
    if (Number.isNaN(nth) || event.ctrlKey || event.metaKey || event.altKey) return;
    const done = this.act(event.key, nth, event.shiftKey);
    if (!done) return;
    event.preventDefault();
    event.stopPropagation(); // Streamlit has keys of its own
  }

  act(key, nth, more) {
    const panel = this.data[nth];
    const flat = this.state.drawing === "arcs" || this.state.drawing === "text";
    const against = flat && isRtl(panel.tokens) ? -1 : 1;
    const steps = { ArrowDown: 1, ArrowUp: -1, ArrowRight: against, ArrowLeft: -against };
    const side = this.pinned?.[nth]?.side ?? this.state.side;
    if (this.state.drawing === "lines" && (key === "ArrowRight" || key === "ArrowLeft")) {
      this.pin(nth, { side: key === "ArrowRight" ? "key" : "query", tokens: [this.at?.token ?? 0] });
    } else if (key in steps) {
      const start = this.pinned?.[nth] ? (this.at?.token ?? 0) + steps[key] : (this.at?.token ?? 0);
      const token = Math.min(Math.max(start, 0), panel.tokens.length - 1);
      const held = more && this.pinned?.[nth]?.side === side ? this.pinned[nth].tokens : [];
      this.pin(nth, { side, tokens: [...new Set([...held, token])].sort((a, b) => a - b) });
      this.at = { nth, token };
      this.drawings[nth].drawing.reveal(token);
    } else if (key === "Home" || key === "End") {
      const token = key === "Home" ? 0 : panel.tokens.length - 1;
      this.pin(nth, { side, tokens: [token] });
      this.drawings[nth].drawing.reveal(token);
    } else if (key === "Escape") this.pin(nth, null);
    else if (key === "Enter" || key === " ") this.toServer();
    else if (key === "h" || key === "H") this.switchHeads(nextHead(this.on, this.every, key === "h" ? 1 : -1));
    else if (key === "l" || key === "L") this.toLayer(this.state.layer + (key === "l" ? 1 : -1));
    else if ((key === "+" || key === "-" || key === "0") && this.drawings[nth].drawing.window) {
      const { drawing } = this.drawings[nth];
      if (key === "0") drawing.whole();
      else drawing.zoom(key === "+" ? 2 : 0.5, drawing.window.width / 2, drawing.window.height / 2);
    } else return false;
    this.hover = null;
    this.update();
    return true;
  }

  switchHeads(on) {
    this.on = on;
    showChips(this);
    this.update();
    if (this.state.drawing === "lines") this.redraw();
  }

  toLayer(number) {
    if (number < 0 || number >= this.header.layers) return;
    if (!this.has(number)) return this.open?.({ ...this.chosen(), layer: number });
    this.state.layer = number;
    this.controls();
    this.redraw();
  }

  chosenToken() {
    const pinned = this.pinned?.find(Boolean);
    if (!pinned) return null;
    return pinned.tokens.includes(this.at.token) ? this.at.token : pinned.tokens.at(-1);
  }

  // The page's own head as long as it is on, else the first that is.
  chosenHead() {
    const { heads, header } = this;
    return heads.includes(header.head) ? header.head : (heads[0] ?? header.head);
  }

  chosen() {
    return { layer: this.state.layer, token: this.chosenToken(), head: this.chosenHead() };
  }

  toServer() {
    this.open?.(this.chosen());
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
