// All heads of a layer as small heatmaps; choosing one is a button press.
// Data: 4 bytes header length (little endian), JSON header, then one byte a cell:
// 0 to 254 is the share of the limit that the colours end at, 255 a hidden cell.
import { arrival } from "./blobs.js";
import { saveable } from "./charts.js";
import { codeColours, themeColours } from "./colours.js";
import { make, makeButton, makeSvg, renew } from "./elements.js";
import { openPayload } from "./payload.js";

const SIDE = 144; // pixels of a saved picture
const GAP = 14; // between two
const LINE = 16; // of words below

export function decode(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const size = view.getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(bytes.subarray(4, 4 + size)));
  return { header, cells: bytes.subarray(4 + size) };
}

function paint(canvas, cells, colours) {
  const context = canvas.getContext("2d");
  const image = context.createImageData(canvas.width, canvas.height);
  cells.forEach((code, i) => {
    image.data.set(colours.subarray(4 * code, 4 * code + 4), 4 * i);
  });
  context.putImageData(image, 0, 0);
}

function headButton({ rows, columns, names, roles, hints, chosen }, head, choose) {
  const element = makeButton("", "", () => choose(head));
  const canvas = make("canvas");
  canvas.width = columns;
  canvas.height = rows;
  element.title = hints[head];
  element.setAttribute("aria-pressed", String(head === chosen));
  element.append(canvas, make("span", "", names[head]));
  if (roles[head]) element.append(make("small", "", roles[head]));
  return element;
}

// All heads as they stand on the screen, as a drawing for a file (saving.js).
function gridDrawn(grid, { names, roles }, ink) {
  const { length: across } = [...grid.children].filter(({ offsetTop }) => offsetTop === grid.firstChild.offsetTop);
  const down = SIDE + GAP + LINE * (roles.some(Boolean) ? 2 : 1);
  const [width, height] = [across * (SIDE + GAP) - GAP, Math.ceil(names.length / across) * down - GAP];
  const figure = makeSvg("svg", { width, height, viewBox: `0 0 ${width} ${height}` });
  const pixels = { width: SIDE, height: SIDE, preserveAspectRatio: "none", style: "image-rendering:pixelated" };
  [...grid.querySelectorAll("canvas")].forEach((canvas, head) => {
    const [x, y] = [(head % across) * (SIDE + GAP), Math.floor(head / across) * down];
    const letters = { x: x + SIDE / 2, "text-anchor": "middle", fill: ink };
    figure.append(makeSvg("image", { href: canvas.toDataURL(), x, y, ...pixels }));
    figure.append(makeSvg("text", { ...letters, y: y + SIDE + LINE - 3, "font-size": 12 }, names[head]));
    figure.append(makeSvg("text", { ...letters, y: y + SIDE + 2 * LINE - 3, "font-size": 10 }, roles[head]));
  });
  return { figure, width, height };
}

// Every weight, as the head view has it: a line for each, the columns those of the page's own tables.
function gridLines({ tokens, keys }, layer) {
  const lines = [["head", "query_position", "query", "key_position", "key", "weights"]];
  for (const head of layer.heads) {
    tokens.forEach((query, row) => {
      const weights = layer.row(head, row);
      keys.forEach((key, column) => {
        lines.push([head + 1, row + 1, query, column + 1, key, rightDigits(weights[column])]);
      });
    });
  }
  return lines;
}

// As many digits as are right, and one more, so that nothing is rounded twice.
const rightDigits = (weight) => Number(weight.toPrecision(5));

export default function ({ data, parentElement, setTriggerValue }) {
  const { header, cells } = decode(data);
  const grid = parentElement.querySelector(".grid");
  const colours = codeColours(themeColours(grid));
  const area = header.rows * header.columns;
  grid.setAttribute("aria-label", header.title);
  grid.style.setProperty("--min-width", `${header.width}px`);
  const elements = header.names.map((_, head) => {
    const element = headButton(header, head, () => setTriggerValue("picked", head));
    paint(element.firstChild, cells.subarray(head * area, (head + 1) * area), colours);
    return element;
  });
  renew(grid, elements);
  const style = getComputedStyle(grid);
  const [paper, ink] = ["background", "text"].map((name) => style.getPropertyValue(`--st-${name}-color`));
  /** @type {import("./saving.js").Figure} */
  const figure = {
    meta: header.meta,
    look: () => ({ paper, ink, font: style.fontFamily }),
    drawn: () => gridDrawn(grid, header, ink),
  };
  if (header.numbers) {
    const { name, digest, layer } = header.numbers;
    // Asked for now: by the time it is saved other numbers may stand under that name.
    const numbers = arrival(name, digest);
    figure.lines = async () => {
      const [panel] = openPayload(await numbers);
      return gridLines(panel, panel.layers.get(layer));
    };
  }
  saveable(grid, figure);
}
