// Who looks at whom, as lines from the tokens on the left (queries) to those on the right (keys), one
// colour for each head. Chips switch heads on and off; the finger on a token leaves its lines alone.
// Data: 4 bytes header length (little endian), JSON header, then float32 weights, for each panel
// heads × queries × keys. All of that happens here: only the choice of a token reaches the server.
const ROW = 24;
const FAINTEST = 0.02; // lines below this weight are not drawn
const DASHES = ["", "7 4", "2 3"]; // heads beyond the colours there are
const SVG = "http://www.w3.org/2000/svg";

export function unpack(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const size = view.getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(bytes.subarray(4, 4 + size)));
  return { header, weights: new Float32Array(bytes.slice(4 + size).buffer) };
}

function make(name, className, text = "") {
  const element = document.createElement(name);
  element.className = className;
  element.textContent = text;
  return element;
}

function line(from, to, weight, colour, dash, shift) {
  const path = document.createElementNS(SVG, "path");
  const [y0, y1] = [from, to].map((row) => (row + 0.5) * ROW + shift);
  path.setAttribute("d", `M0 ${y0} C 45 ${y0}, 55 ${y1}, 100 ${y1}`);
  path.setAttribute("stroke", colour);
  path.setAttribute("stroke-opacity", 0.12 + 0.88 * weight);
  path.setAttribute("stroke-width", 0.6 + 3.4 * weight);
  path.setAttribute("stroke-dasharray", dash);
  path.setAttribute("vector-effect", "non-scaling-stroke");
  return path;
}

export default function ({ data, parentElement, setTriggerValue }) {
  const { header, weights } = unpack(data);
  const root = parentElement.querySelector(".view");
  const palette = getComputedStyle(root).getPropertyValue("--st-chart-categorical-colors").split(",");
  const look = (head) => [palette[head % palette.length].trim(), DASHES[Math.floor(head / palette.length) % 3]];
  const on = new Set(root.dataset.heads === header.key && root.heads ? root.heads : header.on);
  root.dataset.heads = header.key;
  root.heads = on; // what was switched stays switched when new numbers arrive

  let start = 0;
  const panels = header.panels.map((panel) => {
    const cells = panel.tokens.length ** 2;
    const own = { ...panel, cells, offset: start, focus: null };
    start += cells * header.heads;
    return own;
  });
  const weight = (panel, head, query, key) =>
    weights[panel.offset + head * panel.cells + query * panel.tokens.length + key];

  function drawPanel(panel) {
    const query = panel.focus ?? panel.chosen;
    const heads = [...on].sort((a, b) => a - b);
    panel.lines.replaceChildren(
      ...heads.flatMap((head, nth) => {
        const [colour, dash] = look(head);
        const shift = (nth - (heads.length - 1) / 2) * Math.min(3, 12 / heads.length);
        return panel.tokens.flatMap((_, key) => {
          const value = weight(panel, head, query, key);
          return value < FAINTEST ? [] : [line(query, key, value, colour, dash, shift)];
        });
      })
    );
    panel.queries.forEach((element, index) => {
      element.setAttribute("aria-pressed", index === panel.chosen);
      element.classList.toggle("focus", index === query);
    });
    panel.keys.forEach((element, key) => {
      const seen = heads.filter((head) => weight(panel, head, query, key) >= FAINTEST);
      const numbers = seen.slice(0, 4).map((head) => {
        const number = make("i", "", weight(panel, head, query, key).toFixed(2));
        number.style.color = look(head)[0];
        return number;
      });
      if (seen.length > 4) numbers.push(make("i", "", "…"));
      element.lastChild.replaceChildren(...numbers);
      element.classList.toggle("seen", seen.some((head) => weight(panel, head, query, key) >= 0.1));
    });
  }

  function build(panel, number) {
    const box = make("div", "panel");
    const [left, right] = [make("div", "tokens from"), make("div", "tokens to")];
    const svg = document.createElementNS(SVG, "svg");
    const height = panel.tokens.length * ROW;
    svg.setAttribute("viewBox", `0 0 100 ${height}`);
    svg.setAttribute("preserveAspectRatio", "none");
    svg.style.height = `${height}px`;
    panel.lines = svg;
    panel.queries = panel.tokens.map((token, index) => {
      const element = make("button", "");
      element.type = "button";
      element.dataset.at = `${number}:${index}`;
      element.append(make("bdi", "", token));
      element.onclick = () => setTriggerValue("picked", index);
      element.onpointerenter = element.onfocus = () => drawPanel(Object.assign(panel, { focus: index }));
      element.onpointerleave = element.onblur = () => drawPanel(Object.assign(panel, { focus: null }));
      return element;
    });
    panel.keys = panel.tokens.map((token) => {
      const element = make("div", "key");
      element.append(make("bdi", "", token), make("span", "numbers"));
      return element;
    });
    left.append(...panel.queries);
    right.append(...panel.keys);
    box.append(left, svg, right);
    box.setAttribute("role", "group");
    box.setAttribute("aria-label", panel.title);
    return box;
  }

  function chips() {
    const buttons = header.names.map((name, head) => {
      const chip = make("button", "chip", name);
      const [colour] = look(head);
      chip.style.setProperty("--head", colour);
      chip.type = "button";
      chip.setAttribute("aria-pressed", on.has(head));
      chip.onclick = () => change(() => (on.has(head) ? on.delete(head) : on.add(head)));
      return chip;
    });
    const all = make("button", "chip every", header.all);
    all.type = "button";
    const complete = on.size === header.heads;
    all.setAttribute("aria-pressed", complete);
    all.onclick = () =>
      change(() => {
        on.clear();
        (complete ? header.on : header.names.keys()).forEach((head) => on.add(head));
      });
    return [...buttons, all];
  }

  function change(edit) {
    edit();
    redraw(row, chips());
    panels.forEach(drawPanel);
  }

  const row = root.querySelector(".chips");
  row.setAttribute("aria-label", header.chips);
  redraw(row, chips());
  const focused = root.getRootNode().activeElement?.dataset?.at;
  root.querySelector(".panels").replaceChildren(...panels.map(build));
  panels.forEach(drawPanel);
  if (focused) root.querySelector(`[data-at="${focused}"]`)?.focus({ preventScroll: true });
}
