// A drawing as a file: SVG, PNG at twice its size, CSV, or a page that goes on working without a server.
const MARGIN = 16;
const CAPTION = 13; // pixels, for the lines that say what is drawn
const RISKY = /^[=+\-@\t\r]/; // spreadsheets would compute these
const SVG = "http://www.w3.org/2000/svg";

// Scenes of one or more panels side by side, under each other where they are wide, as one SVG document.
// Everything is built from nodes, so that no token can be taken for markup.
export function svgOf(scenes, { look, font, ink: colour, background, captions }) {
  const svg = document.createElementNS(SVG, "svg");
  const add = (name, attributes, text = "") => {
    const element = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    element.textContent = text;
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
    const { width, opacity } = strokeOf(curve.weight);
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
    small.textContent = note;
    written.append(small);
  }
}

// Lines of at most so many characters, cut between words where there are any.
export function wrapped(text, most) {
  const lines = [""];
  for (const word of text.split(" ")) {
    for (let rest = word; rest; ) {
      const line = lines.at(-1);
      const room = Math.floor(most) - line.length - (line ? 1 : 0);
      if (rest.length <= room) {
        lines[lines.length - 1] = line ? `${line} ${rest}` : rest;
        rest = "";
      } else if (line) lines.push("");
      else {
        lines[lines.length - 1] = rest.slice(0, Math.floor(most));
        rest = rest.slice(Math.floor(most));
        lines.push("");
      }
    }
  }
  return lines.filter(Boolean);
}

export async function pngOf({ text, width, height }) {
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;
  await image.decode();
  const canvas = document.createElement("canvas");
  Object.assign(canvas, { width: 2 * width, height: 2 * height });
  canvas.getContext("2d").drawImage(image, 0, 0, 2 * width, 2 * height);
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

// The page with these bytes and this view inside: what Python's `mha_core/page.py` makes, too.
export function pageOf(template, header, bytes) {
  let binary = "";
  for (let i = 0; i < bytes.length; i += 0x8000) binary += String.fromCharCode(...bytes.subarray(i, i + 0x8000));
  const json = JSON.stringify(header).replaceAll("<", "\\u003c");
  return template.replace("__VIEW__", () => json).replace("__BLOB__", () => btoa(binary));
}

export function download(content, name, type) {
  const url = URL.createObjectURL(content instanceof Blob ? content : new Blob([content], { type }));
  const link = Object.assign(document.createElement("a"), { href: url, download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
