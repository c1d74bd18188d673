// All heads of a layer as small heatmaps; choosing one is a button press.
// Data: 4 bytes header length (little endian), JSON header, then one byte a cell:
// 0 to 254 is the share of the limit that the colours end at, 255 a hidden cell.
const HIDDEN = 255;
const HIDDEN_COLOUR = [128, 128, 128, 72];
const [SIDE, GAP, LINE] = [144, 14, 16]; // pixels of a saved picture, between two, and of a line below

export function decode(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const size = view.getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(bytes.subarray(4, 4 + size)));
  return { header, cells: bytes.subarray(4 + size) };
}

function paint(canvas, cells, palette) {
  const context = canvas.getContext("2d");
  const image = context.createImageData(canvas.width, canvas.height);
  cells.forEach((cell, i) => image.data.set(palette[cell], 4 * i));
  context.putImageData(image, 0, 0);
}

function button({ rows, columns, names, roles, hints, chosen }, head) {
  const element = document.createElement("button");
  const canvas = document.createElement("canvas");
  const label = document.createElement("span");
  canvas.width = columns;
  canvas.height = rows;
  label.textContent = names[head];
  element.type = "button";
  element.title = hints[head];
  element.setAttribute("aria-pressed", head === chosen);
  element.append(canvas, label);
  if (roles[head]) {
    const role = document.createElement("small");
    role.textContent = roles[head];
    element.append(role);
  }
  return element;
}

// All heads as they stand on the screen, as a drawing for a file (charts_save.js).
function gridDrawn(grid, { names, roles }, ink) {
  const { length: across } = [...grid.children].filter(({ offsetTop }) => offsetTop === grid.firstChild.offsetTop);
  const down = SIDE + GAP + LINE * (roles.some(Boolean) ? 2 : 1);
  const [width, height] = [across * (SIDE + GAP) - GAP, Math.ceil(names.length / across) * down - GAP];
  const figure = drawn("svg", { width, height, viewBox: `0 0 ${width} ${height}` });
  const pixels = { width: SIDE, height: SIDE, preserveAspectRatio: "none", style: "image-rendering:pixelated" };
  [...grid.querySelectorAll("canvas")].forEach((canvas, head) => {
    const [x, y] = [(head % across) * (SIDE + GAP), Math.floor(head / across) * down];
    const letters = { x: x + SIDE / 2, "text-anchor": "middle", fill: ink };
    figure.append(drawn("image", { href: canvas.toDataURL(), x, y, ...pixels }));
    figure.append(drawn("text", { ...letters, y: y + SIDE + LINE - 3, "font-size": 12 }, names[head]));
    figure.append(drawn("text", { ...letters, y: y + SIDE + 2 * LINE - 3, "font-size": 10 }, roles[head]));
  });
  return { figure, width, height };
}

// Every weight, as the head view has it: a line for each, the columns those of the page's own tables.
function gridLines({ tokens, keys }, layer) {
  const lines = [["head", "query_position", "query", "key_position", "key", "weights"]];
  for (const head of layer.heads) {
    tokens.forEach((query, row) => {
      const weights = layer.row(head, row);
      keys.forEach((key, column) => lines.push([head + 1, row + 1, query, column + 1, key, told(weights[column])]));
    });
  }
  return lines;
}

// As many digits as are right, and one more, so that nothing is rounded twice.
const told = (weight) => Number(weight.toPrecision(5));

export default function ({ data, parentElement, setTriggerValue }) {
  const { header, cells } = decode(data);
  const grid = parentElement.querySelector(".grid");
  const colours = themeColours(grid);
  const palette = Array.from({ length: HIDDEN }, (_, level) => [...shade(colours, level / (HIDDEN - 1)), 255]);
  palette.push(HIDDEN_COLOUR);
  const area = header.rows * header.columns;
  grid.setAttribute("aria-label", header.title);
  grid.style.setProperty("--least", `${header.width}px`);
  const elements = header.names.map((_, head) => {
    const element = button(header, head);
    paint(element.firstChild, cells.subarray(head * area, (head + 1) * area), palette);
    element.onclick = () => setTriggerValue("picked", head);
    return element;
  });
  redraw(grid, elements);
  const style = getComputedStyle(grid);
  const [paper, ink] = ["background", "text"].map((name) => style.getPropertyValue(`--st-${name}-color`));
  const figure = {
    meta: header.meta,
    look: () => ({ paper, ink, font: style.fontFamily }),
    drawn: async () => gridDrawn(grid, header, ink),
  };
  if (header.numbers) {
    const { name, digest, layer } = header.numbers;
    // Asked for now: by the time it is saved other numbers may stand under that name.
    const found = find(name, digest);
    figure.lines = async () => {
      const [panel] = (await found).panels;
      return gridLines(panel, panel.layers.get(layer));
    };
  }
  saveable(grid, figure);
}
