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
