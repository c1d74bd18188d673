// The head view's drawings of one sentence: lines between two columns, shaded text, arcs above the text.
//
// Each gets the panel and the view (what is on, what is looked at) and has three methods: `draw` from
// scratch, `update` when only the focus moved, and `scene`, the whole of it as shapes to be saved. Only what
// is in sight is made, so that a text may have thousands of tokens.
const ROW = 24;
const TALLEST = 600; // pixels, then it scrolls
const OVERSCAN = 8; // tokens beyond what is in sight
const LINES_OF_ALL = 5; // for each token and head, when a long text is drawn without a focus
const LONG = 48;
const FULL = 0.5; // where the strongest weight in sight is below this, lines are drawn relative to it
const MOST_NUMBERS = 3; // heads whose numbers stand beside a token; of more the mean
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
  element.append(make("bdi", "", panel.tokens[at]), make("span", "numbers"));
  Object.assign(element.dataset, { side, at });
  element.id = `${panel.id}-${side}-${at}`;
  element.setAttribute("role", "option");
  element.setAttribute("aria-posinset", at + 1);
  element.setAttribute("aria-setsize", panel.tokens.length);
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
  element.classList.toggle("away", view.hidden(panel).has(at));
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
  }

  // Tokens that are in sight get an element, the others lose theirs.
  arrange() {
    const { view, panel } = this;
    const wanted = new Map();
    const want = (side, at) => wanted.set(`${side} ${at}`, [side, at]);
    const [from, to] = this.range();
    for (const side of this.sides)
      for (let at = Math.max(0, from - OVERSCAN); at < Math.min(panel.tokens.length, to + OVERSCAN); at++) want(side, at);
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
    const most = view.most || (!focus && panel.tokens.length > LONG ? LINES_OF_ALL : 0);
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

class Lines extends Curved {
  sides = ["query", "key"];

  draw() {
    const { view, panel, stage } = this;
    const width = stage.clientWidth;
    const widest = view.measure(panel);
    this.numbers = Math.min(MOST_NUMBERS, Math.max(1, view.heads.length)) * (view.heads.length > 1 ? 52 : 44);
    this.left = Math.min(widest + 18, 0.32 * width);
    this.right = Math.min(widest + 18 + this.numbers, 0.48 * width);
    this.middle = Math.max(40, Math.min(width - this.left - this.right, 340));
    this.height = Math.min(panel.tokens.length * ROW, TALLEST);
    this.scroll.style.height = `${this.height}px`;
    this.long.style.height = `${panel.tokens.length * ROW}px`;
    this.canvas.style.marginLeft = `${this.left}px`;
    fit(this.canvas, this.middle, this.height);
    for (const element of this.shown.values()) element.remove();
    this.shown.clear();
    this.update();
  }

  range() {
    const from = Math.floor(this.scroll.scrollTop / ROW);
    return [from, from + Math.ceil(this.height / ROW) + 1];
  }

  put(element, side, at) {
    const own = side === "query" ? { left: 0, width: this.left } : { left: this.left + this.middle, width: this.right };
    for (const [name, value] of Object.entries({ ...own, top: at * ROW, height: ROW })) element.style[name] = `${value}px`;
  }

  answers = (side, focus) => side !== focus.side;

  curvesOf(from, to, x, y) {
    const { heads } = this.view;
    const gap = Math.min(3, 12 / heads.length);
    const level = (at, head) =>
      (at + 0.5) * ROW - this.scroll.scrollTop + y + (heads.indexOf(head) - (heads.length - 1) / 2) * gap;
    return this.lines(from, to).map((line) => ({
      ...line,
      points: between(x, level(line.query, line.head), x + this.middle, level(line.key, line.head)),
    }));
  }

  centre(at) {
    this.scroll.scrollTop = (at + 0.5) * ROW - this.height / 2;
  }

  reveal(at) {
    const [top, { scrollTop }] = [at * ROW, this.scroll];
    if (top < scrollTop) this.scroll.scrollTop = top;
    if (top + ROW > scrollTop + this.height) this.scroll.scrollTop = top + ROW - this.height;
  }

  scene() {
    const { view, panel } = this;
    const length = Math.min(panel.tokens.length, SCENE_TOKENS);
    const { focus } = view.of(panel);
    const numbers = focus ? numbersOf(view, panel, focus) : [];
    const [left, right] = [0, 1].map((nth) => view.measure(panel) + 18 + (nth ? this.numbers : 0)); // nothing is cut off
    const label = (side, at) => {
      const isKey = side === "key";
      const seen = focus && side !== focus.side ? numbers.filter(({ values }) => values[at] >= view.least) : [];
      const named = (head) => (head === null || numbers.length === 1 ? "" : `${head + 1}: `); // colour is not enough
      const own = seen.map(({ head, values }) => named(head) + short(values[at])).join("  ");
      const x = isKey ? left + this.middle + 8 : left - 8;
      return { text: panel.tokens[at], note: own, x, y: (at + 0.5) * ROW, anchor: isKey ? "start" : "end" };
    };
    const every = Array.from({ length }, (_, at) => at);
    return {
      width: left + this.middle + right,
      height: length * ROW,
      curves: this.curvesOf(0, length, left, this.scroll.scrollTop).filter((c) => c.query < length && c.key < length),
      labels: this.sides.flatMap((side) => every.map((at) => label(side, at))),
    };
  }
}

class Arcs extends Curved {
  sides = ["token"];

  draw() {
    const { view, panel, stage } = this;
    this.width = stage.clientWidth;
    let x = 12;
    this.places = panel.tokens.map((token) => {
      const size = Math.max(view.textWidth(token) + 16, NUMBER);
      x += size;
      return { x: x - size, size };
    });
    this.total = x + 12;
    this.rtl = isRtl(panel.tokens);
    if (this.rtl) for (const place of this.places) place.x = this.total - place.x - place.size;
    this.tall = Math.min(220, 40 + 0.45 * this.total);
    this.scroll.style.height = `${this.tall + ROW * 2 + 16}px`;
    this.long.style.width = `${Math.max(this.total, this.width)}px`;
    this.long.style.height = `${this.tall + ROW * 2}px`;
    fit(this.canvas, this.width, this.tall);
    for (const element of this.shown.values()) element.remove();
    this.shown.clear();
    this.update();
  }

  range() {
    const inside = ({ x, size }) => x + size > this.scroll.scrollLeft && x < this.scroll.scrollLeft + this.width;
    const from = this.places.findIndex(inside);
    const to = this.places.findLastIndex(inside);
    return from < 0 ? [0, 0] : [from, to + 1];
  }

  put(element, side, at) {
    const { x, size } = this.places[at];
    for (const [name, value] of Object.entries({ left: x, width: size, top: this.tall })) element.style[name] = `${value}px`;
  }

  answers = () => true;

  // One number has room below a word, the mean where several heads are on.
  numbersOf(focus) {
    const { view, panel } = this;
    const head = view.heads.length === 1 ? view.heads[0] : null;
    return [{ head, values: meanAcross(view.layer(panel), view.heads, focus) }];
  }

  curvesOf(from, to, x, y) {
    const { heads } = this.view;
    const gap = Math.min(3, 12 / heads.length);
    const middle = (at) => this.places[at].x + this.places[at].size / 2 - this.scroll.scrollLeft + x;
    return this.lines(from, to).map((line) => {
      const aside = (heads.indexOf(line.head) - (heads.length - 1) / 2) * gap * Math.sign(line.key - line.query || 1);
      const [start, end] = [middle(line.query) - aside, middle(line.key) + aside]; // one inside the other
      return { ...line, points: arc(start, end, this.tall - 2 + y, this.tall - 12 + aside) };
    });
  }

  centre(at) {
    this.scroll.scrollLeft = this.places[at].x + this.places[at].size / 2 - this.width / 2;
  }

  reveal(at) {
    const { x, size } = this.places[at];
    if (x < this.scroll.scrollLeft) this.scroll.scrollLeft = x - 12;
    if (x + size > this.scroll.scrollLeft + this.width) this.scroll.scrollLeft = x + size - this.width + 12;
  }

  scene() {
    const { view, panel } = this;
    const length = Math.min(panel.tokens.length, SCENE_TOKENS);
    const { focus } = view.of(panel);
    const numbers = focus ? this.numbersOf(focus) : [];
    return {
      width: this.total,
      height: this.tall + ROW * 2,
      curves: this.curvesOf(0, length, this.scroll.scrollLeft, 0),
      labels: panel.tokens.slice(0, length).flatMap((text, at) => {
        const x = this.places[at].x + this.places[at].size / 2;
        const value = Math.max(0, ...numbers.map(({ values }) => values[at]));
        const under = value >= view.least ? short(value) : "";
        return [
          { text, x, y: this.tall + 12, anchor: "middle" },
          ...(under ? [{ note: under, text: "", x, y: this.tall + 30, anchor: "middle" }] : []),
        ];
      }),
    };
  }
}

// The words as a text, each shaded by its weight: the brightest is the largest weight in sight.
class Shaded {
  constructor(view, panel, stage) {
    Object.assign(this, { view, panel, stage });
    this.scroll = make("div", "scroll prose");
    this.scroll.dir = isRtl(panel.tokens) ? "rtl" : "ltr";
    this.elements = panel.tokens.map((_, at) => tokenElement(view, panel, "token", at));
    this.scroll.append(...this.elements);
    stage.replaceChildren(this.scroll);
  }

  draw() {
    this.scroll.style.maxHeight = `${TALLEST}px`;
    this.update();
  }

  update() {
    const { view, panel } = this;
    const { focus } = view.of(panel);
    const weights = this.weights();
    this.most = Math.max(1e-9, ...weights.filter((_, at) => !view.hidden(panel).has(at)));
    this.elements.forEach((element, at) => {
      mark(view, panel, element);
      const share = view.hidden(panel).has(at) ? 0 : Math.min(1, weights[at] / this.most);
      const colour = shade(view.colours, share);
      element.style.background = focus && share >= 0.02 ? `rgb(${colour})` : "";
      element.style.color = focus && share >= 0.02 ? ink(colour) : "";
      element.lastChild.textContent = focus && weights[at] >= Math.max(view.least, 0.005) ? short(weights[at]) : "";
    });
  }

  weights() {
    const { view, panel } = this;
    const { focus } = view.of(panel);
    return focus ? meanAcross(view.layer(panel), view.heads, focus) : new Float32Array(panel.tokens.length);
  }

  paint() {}

  hit = () => null;

  centre(at) {
    const { offsetTop } = this.elements[at];
    this.scroll.scrollTop = offsetTop - this.scroll.clientHeight / 2;
  }

  reveal(at) {
    this.elements[at].scrollIntoView({ block: "nearest", inline: "nearest" });
  }

  scene() {
    const { view } = this;
    const box = this.scroll.getBoundingClientRect();
    const weights = this.weights();
    const rectangles = [];
    const labels = [];
    this.elements.slice(0, SCENE_TOKENS).forEach((element, at) => {
      const own = element.getBoundingClientRect();
      const [x, y] = [own.left - box.left, own.top - box.top + this.scroll.scrollTop];
      const share = Math.min(1, weights[at] / this.most);
      const colour = element.style.background ? shade(view.colours, share) : null;
      if (colour) rectangles.push({ x, y, width: own.width, height: own.height, fill: `rgb(${colour})` });
      const fill = colour ? ink(colour) : undefined;
      labels.push({ text: this.panel.tokens[at], x: x + own.width / 2, y: y + 13, anchor: "middle", fill });
      const note = element.lastChild.textContent;
      if (note) labels.push({ text: "", note, x: x + own.width / 2, y: y + own.height - 8, anchor: "middle", fill });
    });
    return { width: box.width, height: this.scroll.scrollHeight, curves: [], rectangles, labels };
  }
}

// Does the text run from right to left? The first letter that has a direction decides (Unicode, UAX 9).
export function isRtl(tokens) {
  const letter = tokens.join(" ").match(/[\p{L}]/u)?.[0] ?? "";
  return /[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc\u{10800}-\u{10fff}\u{1e800}-\u{1efff}]/u.test(letter);
}
