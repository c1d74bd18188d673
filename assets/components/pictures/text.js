// The words as a text, each shaded by its weight: the brightest is the largest weight in sight, of all sentences, since
// they are there to be compared. Where a text looks at another one, both stand there, the one that looks above: the
// other one is shaded.

import { listOf } from "../numbers/panel.js";
import { fadeWhereMore, make } from "../page/elements.js";
import { isRtl, short } from "../page/wording.js";
import { meanAcross } from "../scene/focus.js";
import { inkOn, shade } from "./colours.js";
import { mark, SCENE_TOKENS, tokenElement } from "./drawing.js";

export class ShadedText {
  maximum = 1;
  /** @type {HTMLElement[]} of the tokens */
  elements;

  constructor(view, panel, stage) {
    this.view = view;
    this.panel = panel;
    this.stage = stage;
    this.sides = panel.two ? ["query", "key"] : ["token"];
    this.prose = this.sides.map((side) => {
      const text = make("div", "prose");
      text.dir = isRtl(listOf(panel, side)) ? "rtl" : "ltr";
      text.append(...listOf(panel, side).map((_, at) => tokenElement(view, panel, side, at)));
      return text;
    });
    this.elements = /** @type {HTMLElement[]} */ (this.prose.flatMap((text) => [...text.children]));
    this.scroll = make("div", "scroll");
    fadeWhereMore(this.scroll);
    this.scroll.tabIndex = -1; // until it is a list of its own
    this.list = this.scroll;
    this.prose.forEach((text, nth) => {
      if (panel.two) {
        const whose = make("p", "whose", nth ? view.texts.text_key : view.texts.text_query);
        whose.setAttribute("role", "presentation"); // a list has options alone
        this.scroll.append(whose);
      }
      this.scroll.append(text);
    });
    stage.replaceChildren(this.scroll);
  }

  draw() {
    this.scroll.style.maxHeight = `${this.view.tallest}px`;
    this.update();
  }

  update() {
    const { view, panel } = this;
    const { focus } = view.of(panel);
    const weights = this.weights();
    const hidden = view.hidden(panel)[focus?.side === "key" ? "query" : "key"];
    this.maximum = Math.max(1e-9, ...view.data.map((one) => this.largest(one)));
    for (const element of this.elements) {
      mark(view, panel, element);
      const at = Number(element.dataset.at);
      const answers = focus && element.dataset.side !== focus.side;
      const share = answers && !hidden.has(at) ? Math.min(1, weights[at] / this.maximum) : 0;
      const colour = shade(view.colours, share);
      element.style.background = share >= 0.02 ? `rgb(${colour})` : "";
      element.style.color = share >= 0.02 ? inkOn(colour) : "";
      element.lastChild.textContent =
        answers && weights[at] >= Math.max(view.threshold, 0.005) ? short(weights[at]) : "";
    }
  }

  // The largest weight of those that answer in a sentence and are not hidden.
  largest(panel) {
    const { focus } = this.view.of(panel);
    const hidden = this.view.hidden(panel)[focus?.side === "key" ? "query" : "key"];
    return Math.max(0, ...this.weights(panel).filter((_, at) => !hidden.has(at)));
  }

  // Those of the tokens that answer.
  weights(panel = this.panel) {
    const { view } = this;
    const { focus } = view.of(panel);
    return focus ? meanAcross(view.layer(panel), view.heads, focus) : new Float32Array(panel.tokens.length);
  }

  paint() {}

  hit = () => null;

  // The element of a token on the side where the keyboard is.
  element(at) {
    const side = this.view.active(this.panel)?.side ?? "query";
    const nth = Math.max(0, this.sides.indexOf(side));
    const { children } = this.prose[nth];
    return /** @type {HTMLElement} */ (children[Math.min(at, children.length - 1)]);
  }

  centre(at) {
    this.scroll.scrollTop = this.element(at).offsetTop - this.scroll.clientHeight / 2;
  }

  // As `centre`, where the token is not in sight.
  show(at) {
    const { offsetTop, offsetHeight } = this.element(at);
    const { scrollTop, clientHeight } = this.scroll;
    if (offsetTop < scrollTop || offsetTop + offsetHeight > scrollTop + clientHeight) this.centre(at);
  }

  reveal(at) {
    this.element(at).scrollIntoView({ block: "nearest", inline: "nearest" });
  }

  scene() {
    const { view } = this;
    const box = this.scroll.getBoundingClientRect();
    const weights = this.weights();
    const rectangles = [];
    const labels = [];
    this.elements.slice(0, SCENE_TOKENS).forEach((element) => {
      const at = Number(element.dataset.at);
      const own = element.getBoundingClientRect();
      const [x, y] = [own.left - box.left, own.top - box.top + this.scroll.scrollTop];
      const share = Math.min(1, weights[at] / this.maximum);
      const colour = element.style.background ? shade(view.colours, share) : null;
      if (colour) rectangles.push({ x, y, width: own.width, height: own.height, fill: `rgb(${colour})` });
      const fill = colour ? inkOn(colour) : undefined;
      const text = listOf(this.panel, element.dataset.side)[at];
      labels.push({ text, x: x + own.width / 2, y: y + 13, anchor: "middle", fill });
      const note = element.lastChild.textContent;
      if (note) labels.push({ text: "", note, x: x + own.width / 2, y: y + own.height - 8, anchor: "middle", fill });
    });
    return { width: box.width, height: this.scroll.scrollHeight, curves: [], rectangles, labels };
  }
}
