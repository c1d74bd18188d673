// What the drawings of one sentence share: tokens, the numbers beside them, and canvases that scroll.
//
// A drawing gets the panel and the view (what is on, what is looked at) and has three methods: `draw` from
// scratch, `update` when only the focus moved, and `scene`, the whole of it as shapes to be saved. Only what
// is in sight is made, so that a text may have thousands of tokens.
const ROW = 24;
const TALLEST = 600; // pixels, then it scrolls
const OVERSCAN = 8; // tokens beyond what is in sight
const LINES_OF_ALL = 5; // for each token and head, when a long text is drawn without a focus
const LONG = 48;
const FULL = 0.5; // where the strongest weight in sight is below this, lines are drawn relative to it
const MOST_NUMBERS = 3; // heads whose numbers stand beside a token; of more the mean
const FEW = 3; // letters of a token that is never shortened
const NUMBER = 34; // pixels that a number takes
const SCENE_TOKENS = 1000; // in a saved figure

function make(name, className = "", text = "") {
  const element = document.createElement(name);
  if (className) element.className = className;
  if (text) element.textContent = text;
  return element;
}

function tokenElement(view, panel, side, at) {
  const element = make("div", `token ${side}`);
  const text = listOf(panel, side)[at];
  element.append(make("bdi", [...text].length <= FEW ? "whole" : "", text), make("span", "numbers"));
  Object.assign(element.dataset, { side, at });
  element.id = `${panel.id}-${side}-${at}`;
  element.setAttribute("role", "option");
  element.setAttribute("aria-posinset", at + 1);
  element.setAttribute("aria-setsize", listOf(panel, side).length);
  return element;
}

// The weight's own figures beside a token: each head's, named where there are several, or the mean.
function putNumbers(view, panel, element, weights) {
  const at = Number(element.dataset.at);
  const seen = weights.filter(({ values }) => values[at] >= view.least);
  const { length } = weights;
  element.lastChild.replaceChildren(
    ...seen.map(({ head, values }) => {
      const number = make("i", "", short(values[at]));
      if (head !== null) number.style.color = view.look(head).colour;
      if (head !== null && length > 1) number.prepend(make("sub", "", String(head + 1)));
      return number;
    })
  );
  const most = Math.max(0, ...weights.map(({ values }) => values[at]));
  element.classList.toggle("seen", most >= 0.1);
  return most;
}

function numbersOf(view, panel, focus) {
  const layer = view.layer(panel);
  if (view.heads.length > MOST_NUMBERS) return [{ head: null, values: meanAcross(layer, view.heads, focus) }];
  return view.heads.map((head) => ({ head, values: across(layer, head, focus) }));
}

function mark(view, panel, element) {
  const at = Number(element.dataset.at);
  const { pinned, focus } = view.of(panel);
  const side = element.dataset.side; // where there is one element for both, "token"
  const isIn = (chosen) => Boolean(chosen?.tokens.includes(at) && (side === "token" || side === chosen.side));
  element.classList.toggle("focus", isIn(focus));
  element.setAttribute("aria-selected", isIn(pinned));
  element.classList.toggle("away", view.hidden(panel)[side === "key" ? "key" : "query"].has(at));
}

function fit(canvas, width, height) {
  const ratio = window.devicePixelRatio || 1;
  canvas.width = Math.max(1, Math.round(width * ratio));
  canvas.height = Math.max(1, Math.round(height * ratio));
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  canvas.getContext("2d").setTransform(ratio, 0, 0, ratio, 0, 0);
}

// What all drawings with curves share: a box that scrolls, a canvas that stays, tokens that come and go.
class Curved {
  constructor(view, panel, stage) {
    Object.assign(this, { view, panel, stage, shown: new Map(), curves: [] });
    this.scroll = make("div", "scroll");
    this.long = make("div", "long");
    this.canvas = make("canvas");
    this.canvas.setAttribute("aria-hidden", "true");
    this.long.append(this.canvas);
    this.scroll.append(this.long);
    this.scroll.onscroll = () => this.update();
    stage.replaceChildren(this.scroll);
    this.more = new More(stage, this.scroll, this.across, view.texts);
  }

  // Tokens that are in sight get an element, the others lose theirs.
  arrange() {
    const { view, panel } = this;
    const wanted = new Map();
    const want = (side, at) => wanted.set(`${side} ${at}`, [side, at]);
    const [from, to] = this.range();
    for (const side of this.sides)
      for (let at = Math.max(0, from - OVERSCAN); at < Math.min(listOf(panel, side).length, to + OVERSCAN); at++) want(side, at);
    const active = view.active(panel); // a screen reader looks for it wherever it is
    if (active) want(view.sideOf(active.side), active.token);
    for (const [name, element] of this.shown) {
      if (wanted.has(name)) continue;
      element.remove();
      this.shown.delete(name);
    }
    for (const [name, [side, at]] of wanted) {
      if (this.shown.has(name)) continue;
      const element = tokenElement(view, panel, side, at);
      this.put(element, side, at);
      this.shown.set(name, element);
      this.long.append(element);
    }
  }

  update() {
    const { view, panel } = this;
    this.arrange();
    const { focus } = view.of(panel);
    const numbers = focus ? this.numbersOf(focus) : [];
    for (const element of this.shown.values()) {
      mark(view, panel, element);
      if (focus && this.answers(element.dataset.side, focus)) putNumbers(view, panel, element, numbers);
      else {
        element.lastChild.replaceChildren();
        element.classList.remove("seen");
      }
    }
    const [from, to] = this.range();
    this.more.show(...this.beyond());
    this.curves = this.curvesOf(from, to, 0, 0);
    this.paint();
  }

  paint(marked = null) {
    const context = this.canvas.getContext("2d");
    context.clearRect(0, 0, this.canvas.width, this.canvas.height);
    drawCurves(context, this.curves, this.view.palette, marked);
  }

  numbersOf(focus) {
    return numbersOf(this.view, this.panel, focus);
  }

  linesIn(panel, from, to) {
    const { view } = this;
    const { focus } = view.of(panel);
    const most = view.most || (!focus && longestOf(panel) > LONG ? LINES_OF_ALL : 0);
    const options = { focus, from, to: Math.min(to, panel.tokens.length), least: view.least, most };
    return linesOf(view.layer(panel), view.heads, { ...options, hidden: view.hidden(panel) });
  }

  // In a long text all weights are small: the strongest in sight is then drawn as one of 1 would be, the
  // same in all sentences, since they are there to be compared.
  lines(from, to) {
    const lines = this.linesIn(this.panel, from, to);
    const others = this.view.data.filter((panel) => panel !== this.panel);
    const every = [lines, ...others.map((panel) => this.linesIn(panel, from, to))];
    this.strongest = every.flat().reduce((largest, { weight }) => Math.max(largest, weight), 0);
    const full = this.strongest < FULL ? this.strongest : 1;
    return lines.map((line) => ({ ...line, strength: Math.min(1, line.weight / full) }));
  }

  // The curve under a pointer, in the place where the event was.
  hit(event) {
    const box = this.canvas.getBoundingClientRect();
    return under(this.curves, event.clientX - box.left, event.clientY - box.top);
  }
}
