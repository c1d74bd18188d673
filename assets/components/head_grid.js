// All heads of a layer as small heatmaps; choosing one is a button press.
// Data: 4 bytes header length (little endian), JSON header, then one byte a cell:
// 0 to 254 is the share of the limit that the colours end at, 255 a hidden cell.
const HIDDEN = 255;
const HIDDEN_COLOUR = [128, 128, 128, 72];

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
}
