// A drawing as a file: SVG, PNG at twice its size, CSV. (As a page: save_page.js.)
const MARGIN = 16;
const CAPTION = 13; // pixels, for the lines that say what is drawn
const RISKY = /^[=+\-@\t\r]/; // spreadsheets would compute these
const NOT_XML = /[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\u{10000}-\u{10ffff}]/gu; // no file may hold these
const LARGEST = 32_000; // pixels that a canvas may be high
const SVG = "http://www.w3.org/2000/svg";

// Scenes of one or more panels side by side, under each other where they are wide, as one SVG document.
// Everything is built from nodes, so that no token can be taken for markup.
export function svgOf(scenes, { look, font, ink: colour, background, captions }) {
  const svg = document.createElementNS(SVG, "svg");
  const add = (name, attributes, text = "") => {
    const element = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    element.textContent = text.replace(NOT_XML, "\ufffd");
    svg.append(element);
    return element;
  };
  const width = Math.max(...scenes.map((scene) => scene.width), 480) + 2 * MARGIN;
  const backdrop = add("rect", { x: 0, y: 0, width: "100%", height: "100%", fill: background });
  let top = MARGIN;
  scenes.forEach((scene, nth) => {
    for (const line of wrapped(captions[nth], (width - 2 * MARGIN) / (CAPTION * 0.52))) {
      top += CAPTION * 1.35;
      add("text", { x: MARGIN, y: top, "font-size": CAPTION, fill: colour, "font-family": font }, line);
    }
    top += CAPTION;
    drawScene(add, scene, MARGIN, top, { look, font, colour });
    top += scene.height + MARGIN;
  });
  const size = { width: Math.ceil(width), height: Math.ceil(top + MARGIN) };
  for (const [name, value] of Object.entries(size)) {
    svg.setAttribute(name, value);
    backdrop.setAttribute(name, value);
  }
  svg.setAttribute("viewBox", `0 0 ${size.width} ${size.height}`);
  return { ...size, text: new XMLSerializer().serializeToString(svg) };
}

function drawScene(add, scene, x, y, { look, font, colour }) {
  const at = (points) => points.map((value, i) => (value + (i % 2 ? y : x)).toFixed(1));
  if (scene.image) {
    const { image } = scene;
    add("image", { ...image, x: image.x + x, y: image.y + y });
  }
  for (const box of scene.rectangles ?? []) add("rect", { ...box, x: box.x + x, y: box.y + y, rx: 3 });
  for (const curve of [...scene.curves].sort((a, b) => a.weight - b.weight)) {
    const [x0, y0, ...rest] = at(curve.points);
    const { colour: stroke, dash } = look(curve.head);
    const { width, opacity } = strokeOf(curve.strength);
    const dashed = dash.length ? { "stroke-dasharray": dash.join(" ") } : {};
    add("path", { d: `M${x0} ${y0}C${rest.join(" ")}`, fill: "none", stroke, "stroke-width": width.toFixed(2), "stroke-opacity": opacity.toFixed(3), ...dashed });
  }
  for (const { text, note, x: left, y: down, anchor, fill } of scene.labels) {
    const place = { x: (left + x).toFixed(1), y: (down + y + 4).toFixed(1), "text-anchor": anchor };
    const written = add("text", { ...place, "font-family": font, "font-size": text ? 14 : 11, fill: fill ?? colour }, text);
    if (!note) continue;
    const small = document.createElementNS(SVG, "tspan");
    small.setAttribute("font-size", 11);
    if (text) small.setAttribute("dx", 8);
    small.textContent = note; // digits
    written.append(small);
  }
}

// Lines of at most so many characters, cut between words where there are any. A wide character counts twice.
export function wrapped(text, most) {
  const lines = [""];
  for (const word of text.split(" ")) {
    for (let rest = word; rest; ) {
      const line = lines.at(-1);
      const joined = line ? `${line} ${rest}` : rest;
      if (columns(joined) <= most) {
        lines[lines.length - 1] = joined;
        rest = "";
      } else if (line) lines.push("");
      else {
        const head = cut(rest, most);
        lines[lines.length - 1] = head;
        rest = rest.slice(head.length);
        lines.push("");
      }
    }
  }
  return lines.filter(Boolean);
}

const WIDE = /[\p{sc=Han}\p{sc=Hiragana}\p{sc=Katakana}\p{sc=Hangul}\p{Extended_Pictographic}\u3000-\u303f\uff01-\uff60]/u;
const columns = (text) => [...text].reduce((sum, character) => sum + (WIDE.test(character) ? 2 : 1), 0);

// The longest beginning that fits, one character at least.
function cut(text, most) {
  const characters = [...text];
  let count = characters.length;
  while (count > 1 && columns(characters.slice(0, count).join("")) > most) count -= 1;
  return characters.slice(0, count).join("");
}

export async function pngOf({ text, width, height }) {
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;
  await image.decode();
  const canvas = document.createElement("canvas");
  const scale = Math.min(2, LARGEST / Math.max(width, height));
  Object.assign(canvas, { width: Math.floor(scale * width), height: Math.floor(scale * height) });
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  return new Promise((resolve) => canvas.toBlob(resolve, "image/png"));
}

// Rows of values as CSV for spreadsheets: its byte order mark, quotes, and formulas made harmless.
export function csvOf(header, rows) {
  const cell = (value) => {
    if (typeof value === "number") return String(value);
    const text = RISKY.test(value) ? `'${value}` : value;
    return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  return `\ufeff${[header, ...rows].map((row) => row.map(cell).join(",")).join("\r\n")}\r\n`;
}

export function download(content, name, type) {
  const url = URL.createObjectURL(content instanceof Blob ? content : new Blob([content], { type }));
  const link = Object.assign(document.createElement("a"), { href: url, download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
