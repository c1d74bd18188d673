// A figure as a file: SVG and PNG with its title above and where it comes from below, CSV of its numbers.
// Everything is built from nodes, so that no token can be taken for markup.
import { make, makeSvg } from "./elements.js";

/** @typedef {{ figure: SVGElement, width: number, height: number }} Drawn */

/**
 * A figure that can be saved.
 * @typedef {object} Figure
 * @property {{ title?: string, caption?: string[], file?: string }} meta `file` is a name without its ending
 * @property {() => { paper: string, ink: string, font: string }} look
 * @property {() => Drawn | Promise<Drawn>} drawn
 * @property {() => any[][] | Promise<any[][]>} [lines] a table: its header and its rows
 */

const PAD = 14; // pixels around a figure
const TITLE = 14; // pixels of its letters
const SMALL = 10.5;
const MAX_EDGE = 32_000; // pixels that a canvas may have

export const FORMATS = { png: pngFile, svg: svgFile, csv: csvFile }; // the last one of figures that have `lines`

/**
 * Make the file and offer it as a download.
 * @param {Figure} figure
 * @param {string} format
 */
export async function save(figure, format) {
  download(await FORMATS[format](figure), `${figure.meta.file ?? "headscope"}.${format}`);
}

/** @param {Blob} content */
export function download(content, name) {
  const link = make("a");
  link.href = URL.createObjectURL(content);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}

async function svgFile(figure) {
  return new Blob([(await composed(figure)).text], { type: "image/svg+xml" });
}

// Twice as many pixels as on screen. The picture of an SVG cannot use the fonts of its page: they go in.
async function pngFile(figure) {
  const { text, width, height } = await composed(figure, await fontFaces(figure.look().font));
  const picture = new Image();
  picture.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;
  await picture.decode();
  const canvas = make("canvas");
  const scale = Math.min(2, MAX_EDGE / Math.max(width, height));
  canvas.width = Math.floor(scale * width);
  canvas.height = Math.floor(scale * height);
  canvas.getContext("2d").drawImage(picture, 0, 0, canvas.width, canvas.height);
  return new Promise((resolve) => canvas.toBlob(resolve, "image/png"));
}

// The figure as it is drawn, zoom and all, between its title and its caption.
async function composed({ meta, look, drawn }, style = "") {
  const { paper, ink, font } = look();
  const { figure, width: inner, height: high } = await drawn();
  const { title = "", caption = [] } = meta;
  const width = Math.ceil(inner) + 2 * PAD;
  const head = wrapped(title, inner, measured(`600 ${TITLE}px ${font}`));
  const foot = caption.flatMap((line) => wrapped(line, inner, measured(`${SMALL}px ${font}`)));
  const top = PAD + (head.length ? head.length * TITLE * 1.4 + 6 : 0);
  const height = Math.ceil(top + high + foot.length * SMALL * 1.5 + (foot.length ? 2 : 1) * PAD);
  const page = makeSvg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, "font-family": font });
  if (style) page.append(makeSvg("style", {}, style));
  page.append(makeSvg("rect", { width, height, fill: paper }));
  const write = (line, y, more) => page.append(makeSvg("text", { x: PAD, y, fill: ink, ...more }, line));
  head.forEach((line, i) => {
    write(line, PAD + (i + 0.8) * TITLE * 1.4, { "font-size": TITLE, "font-weight": 600 });
  });
  for (const [key, value] of Object.entries({ x: PAD, y: top, overflow: "visible" })) figure.setAttribute(key, value);
  page.append(figure);
  foot.forEach((line, i) => {
    write(line, top + high + PAD + (i + 0.8) * SMALL * 1.5, { "font-size": SMALL });
  });
  return { text: new XMLSerializer().serializeToString(page), width, height };
}

/**
 * How wide a text is in a font, in pixels.
 * @param {string} font as CSS has it
 * @returns {(text: string) => number}
 */
export function measured(font) {
  const pen = make("canvas").getContext("2d");
  pen.font = font;
  return (text) => pen.measureText(text).width;
}

/**
 * Lines no wider than `width`, broken at spaces, or anywhere in what has none.
 * @param {string} text
 * @param {number} width
 * @param {(text: string) => number} widthOf
 */
export function wrapped(text, width, widthOf) {
  const lines = [];
  let rest = [...text.replace(/\s+/g, " ").trim()];
  const fits = (count) => widthOf(rest.slice(0, count).join("")) <= width;
  while (rest.length) {
    let count = 1;
    while (count < rest.length && fits(count + 1)) count += 1;
    const space = rest.lastIndexOf(" ", count);
    if (count < rest.length && space > 0) count = space;
    lines.push(rest.slice(0, count).join("").trim());
    rest = rest.slice(count);
    if (rest[0] === " ") rest.shift();
  }
  return lines;
}

// The page's own font files of these families, inside the style itself.
async function fontFaces(families) {
  const names = families.split(",").map((name) => name.replace(/["']/g, "").trim());
  const rules = [...document.styleSheets].flatMap((sheet) => {
    try {
      return [...sheet.cssRules].map((rule) => ({ rule, base: sheet.href ?? document.baseURI }));
    } catch {
      return []; // a sheet from elsewhere cannot be read
    }
  });
  const faces = await Promise.all(rules.map(({ rule, base }) => fontFace(rule, base, names)));
  return faces.join("");
}

async function fontFace(rule, base, names) {
  if (!(rule instanceof CSSFontFaceRule)) return "";
  const named = rule.style.getPropertyValue("font-family").replace(/["']/g, "");
  if (!names.includes(named) || rule.style.getPropertyValue("font-style") === "italic") return "";
  const [, address] = rule.style.getPropertyValue("src").match(/url\(["']?([^"')]+)/) ?? [];
  const answer = address && (await fetch(new URL(address, base)).catch(() => null));
  if (!answer?.ok) return "";
  const data = await dataUrl(await answer.blob());
  const weight = rule.style.getPropertyValue("font-weight") || "normal";
  return `@font-face{font-family:"${names[0]}";font-weight:${weight};src:url(${data})}`;
}

function dataUrl(blob) {
  return new Promise((resolve) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result);
    reader.readAsDataURL(blob);
  });
}

async function csvFile(figure) {
  return new Blob([csvText(await figure.lines())], { type: "text/csv" });
}

// Lines of values as CSV for spreadsheets, with the byte order mark that they look for.
export function csvText(lines) {
  return `\ufeff${lines.map((line) => line.map(cellText).join(",")).join("\r\n")}\r\n`;
}

// What a spreadsheet takes for a formula: also behind white space and line breaks, and with full-width signs.
const FORMULA = /^([\t\r\n]|[\s\u200b\ufeff]*[=+\-@＝＋－＠])/;

// A word or a number. Words that a spreadsheet would run as a formula are made harmless, as in our other tables.
function cellText(value) {
  if (typeof value === "number") return Number.isFinite(value) ? String(shortest(value)) : "";
  const text = String(value ?? "");
  const safe = FORMULA.test(text) ? `'${text}` : text;
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

// The shortest digits that give a single-precision number back.
function shortest(value) {
  const digits = [6, 7, 8, 9].map((count) => Number(value.toPrecision(count)));
  return digits.find((number) => Math.fround(number) === value) ?? value;
}
