// The page Steps: a diagram of the way from X to Z, with the step in focus.

import { elementIn, make, makeButton, makeSvg } from "../page/elements.js";
import { fill } from "../page/wording.js";
import { followStep, goBySteps, goToStep, offerSteps, stepInFocus } from "../scene/step.js";
import { fitHeight, showOnly } from "../streamlit/adapter.js";

/** @typedef {{ name: string, title: string }} RiverStep */
/** @typedef {{ at: number, row: number, symbol: string }} RiverNode before step `at`, in rows 0 to 2 */
/** @typedef {{ steps: RiverStep[], nodes: RiverNode[], texts: Record<string, string> }} RiverPage */

const COLUMN = 108; // pixels from one node to the next
const BOX = { width: 44, height: 22 };
const ROWS = [14, 42, 70]; // the middles of nodes
const EDGE_WIDTH = 30; // beside the first and the last node
const HEIGHT = 102;
/** @type {Record<string, number>} */
const TURNING_KEYS = { ArrowLeft: -1, ArrowRight: 1, PageUp: -1, PageDown: 1 };
const MIN_SWIPE = 60; // pixels
const TYPED_IN = "input, textarea, select, [contenteditable], [role=slider], [role=radio], [role=tab], summary";

/** @param {EventTarget} one */
const isControl = (one) => one instanceof Element && one.matches(TYPED_IN);

class River {
  /** @type {{ x: number, y: number } | null} where a finger was put down */
  start = null;

  /** @param {HTMLElement} root @param {RiverPage} data */
  constructor(root, data) {
    this.root = root;
    this.data = data;
    this.before = makeButton("←", "", () => goBySteps(-1));
    this.after = makeButton("→", "", () => goBySteps(1));
    this.drawing = make("div", "drawing");
    root.replaceChildren(make("div", "line", this.before, this.drawing, this.after));
    document.addEventListener("keydown", (event) => this.#press(event));
    document.addEventListener("touchstart", (event) => this.#touch(event), { passive: true });
    document.addEventListener("touchend", (event) => this.#release(event), { passive: true });
  }

  /** @param {RiverPage} data */
  show(data) {
    this.data = data;
    this.before.ariaLabel = data.texts.before;
    this.after.ariaLabel = data.texts.after;
    offerSteps(data.steps.map(({ name }) => name));
    followStep(this.root, () => this.#draw());
  }

  get at() {
    return this.data.steps.findIndex(({ name }) => name === stepInFocus());
  }

  #draw() {
    const { data, at } = this;
    const { steps } = data;
    this.before.disabled = at === 0;
    this.after.disabled = at === steps.length - 1;
    showOnly("step-", stepInFocus());
    const width = 2 * EDGE_WIDTH + steps.length * COLUMN;
    const label = fill(data.texts.here, { number: at + 1, count: steps.length, title: steps[at].title });
    const look = { viewBox: `0 0 ${width} ${HEIGHT}`, width, height: HEIGHT, role: "img", "aria-label": label };
    const drawn = steps.map((step, nth) => this.#step(step, nth));
    this.drawing.replaceChildren(makeSvg("svg", look, ...this.#ways(), ...drawn, ...this.#nodes()));
    const { scrollWidth, clientWidth } = this.drawing;
    if (scrollWidth > clientWidth) this.drawing.tabIndex = 0;
    else this.drawing.removeAttribute("tabindex");
    this.drawing.scrollLeft = ((EDGE_WIDTH + (at + 0.5) * COLUMN) * scrollWidth) / width - clientWidth / 2;
  }

  /** @param {number} at */
  #x = (at) => EDGE_WIDTH + at * COLUMN;

  // A line for each step between its nodes; a node whose row ends goes on straight until it is needed.
  #ways() {
    const { nodes, steps } = this.data;
    /** @param {number} at */
    const before = (at) => nodes.filter((node) => node.at === at);
    return steps.flatMap((_, at) => {
      const [from, to] = [before(at), before(at + 1)];
      const pairs = from.flatMap((one) => {
        if (from.length === 1) return to.map((other) => [one, other]);
        return [[one, to.find(({ row }) => row === one.row) ?? to[0]]];
      });
      return pairs.map(([one, other]) => {
        /** @param {RiverNode} node */
        const half = ({ symbol }) => (symbol ? BOX.width / 2 : 0);
        const [x1, x2] = [this.#x(at) + half(one), this.#x(at + 1) - half(other)];
        const [y1, y2] = [ROWS[one.row], ROWS[other.row]];
        const middle = (x1 + x2) / 2;
        const now = at === this.at && one.symbol && other.symbol ? "way now" : "way";
        return makeSvg("path", { d: `M${x1} ${y1}C${middle} ${y1} ${middle} ${y2} ${x2} ${y2}`, class: now });
      });
    });
  }

  /** @param {RiverStep} step @param {number} nth */
  #step({ name, title }, nth) {
    const x = this.#x(nth) + BOX.width / 2;
    const ground = makeSvg("rect", { x, y: 0, width: COLUMN - BOX.width, height: HEIGHT, rx: 4 });
    const word = makeSvg("text", { x: x + (COLUMN - BOX.width) / 2, y: HEIGHT - 5 }, title);
    const group = makeSvg("g", { class: nth === this.at ? "step now" : "step" }, ground, word);
    group.addEventListener("click", () => goToStep(name));
    return group;
  }

  #nodes() {
    return this.data.nodes
      .filter(({ symbol }) => symbol)
      .map(({ at, row, symbol }) => {
        const involved = at === this.at || at === this.at + 1;
        const [x, y] = [this.#x(at) - BOX.width / 2, ROWS[row] - BOX.height / 2];
        const box = makeSvg("rect", { x, y, ...BOX, rx: 4 });
        const word = makeSvg("text", { x: this.#x(at), y: ROWS[row] + 4 }, symbol);
        return makeSvg("g", { class: involved ? "node now" : "node" }, box, word);
      });
  }

  // Arrows and the keys of a presenter, unless they are meant for a control.
  /** @param {KeyboardEvent} event */
  #press(event) {
    const elsewhere =
      !this.root.isConnected || event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey;
    if (!(event.key in TURNING_KEYS) || elsewhere || event.composedPath().some(isControl)) return;
    goBySteps(TURNING_KEYS[event.key]);
    event.preventDefault();
  }

  /** @param {TouchEvent} event */
  #touch({ touches }) {
    this.start = touches.length === 1 ? { x: touches[0].clientX, y: touches[0].clientY } : null;
  }

  // A swipe turns the page, but not where it moves a slider or a row that is wider than the screen.
  /** @param {TouchEvent} event */
  #release(event) {
    if (!this.start || !this.root.isConnected) return;
    const [{ clientX, clientY }] = event.changedTouches;
    const [right, down] = [clientX - this.start.x, clientY - this.start.y];
    /** @param {EventTarget} one */
    const scrolls = (one) =>
      one instanceof HTMLElement &&
      one.scrollWidth > one.clientWidth + 1 &&
      getComputedStyle(one).overflowX !== "visible";
    if (Math.abs(right) < MIN_SWIPE || Math.abs(down) > Math.abs(right) / 2) return;
    if (!event.composedPath().some((one) => isControl(one) || scrolls(one))) goBySteps(right < 0 ? 1 : -1);
  }
}

/** @param {import("../streamlit/adapter.js").Mounted<RiverPage>} mounted */
export default function ({ data, parentElement }) {
  /** @type {HTMLElement & { river?: River }} */
  const root = elementIn(parentElement, ".river");
  root.river ??= new River(root, data);
  root.river.show(data);
  fitHeight(root);
}
