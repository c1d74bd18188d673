// Saves a figure: SVG and PNG with its title above and its source below, CSV with its numbers. Everything is built from
// nodes, so no token can be taken for markup.
import { make, makeSvg, penOf, required } from "./elements.js";

/** @typedef {{ figure: Element, width: number, height: number }} Drawn */
/**
 * An entry of a legend: what a colour means, or the numbers at both ends of a scale of colours.
 * @typedef {{ text: string, colour: string, dash?: number[] } | { ends: string[], colours: number[][] }} LegendEntry
 */
/**
 * `file` is a name without its ending; `pixels` says in an SVG that its cells are too many for vectors.
 * @typedef {{ title?: string, caption?: string[], file?: string, pixels?: string }} FigureMeta
 */
/** @typedef {{ paper: string, ink: string, font: string }} FigureLook */
/** @typedef {string | number | null | undefined} TableCell */
/** @typedef {typeof FORMATS[number]} FileFormat */

/**
 * A figure that can be saved.
 * @typedef {object} Figure
 * @property {FigureMeta} meta
 * @property {() => FigureLook} look
 * @property {() => Drawn | Promise<Drawn>} drawn
 * @property {() => TableCell[][] | Promise<TableCell[][]>} [lines] a table: its header and its rows
 * @property {LegendEntry[]} [legend]
 * @property {boolean} [printed] in the colours of print: its PNG is a slide, its SVG has no ground of its own
 */

const PAD = 14; // pixels around a figure
const TITLE = 14; // pixels of its letters
const SMALL = 10.5; // and of those of its caption and its legend
const LEGEND = { line: 22, scale: 120, step: 5, gap: 6, between: 18 }; // pixels of a legend
export const LEADING = 1.4; // of lines, for each pixel of their letters
const WRITTEN = 100; // pixels that title and caption take above and below, about
const WRITTEN_WIDTH = 360; // pixels: what is written above and below needs them
const MAX_EDGE = 32_000; // pixels that a canvas may have
export const SLIDE = { width: 1920, height: 1080 };
const MOST = 3.5; // times its own size on a slide: a figure of a few words would be shouted
export const SPARE = 1.3; // how much wider letters are where a file is opened without our fonts

export const FORMATS = /** @type {const} */ (["png", "svg", "csv"]); // the last one of figures that have `lines`

/**
 * Make the file and offer it as a download.
 * @param {Figure} figure
 * @param {FileFormat} format
 */
export async function save(figure, format) {
  const files = { png: pngFile, svg: svgFile, csv: csvFile };
  download(await files[format](figure), `${figure.meta.file ?? "headscope"}.${format}`);
}

/** @param {Blob} content @param {string} name */
export function download(content, name) {
  const link = make("a");
  link.href = URL.createObjectURL(content);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}

/** @param {Figure} figure */
async function svgFile(figure) {
  const { text } = await composed(figure, { ground: figure.printed ? "" : figure.look().paper, editable: true });
  return new Blob([text], { type: "image/svg+xml" });
}

// The picture of an SVG cannot use the fonts of its page: they go in.
/** @param {Figure} figure */
async function pngFile(figure) {
  const { paper, font } = figure.look();
  const { text, width, height } = await composed(figure, { style: await fontFaces(font) });
  const picture = new Image();
  picture.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;
  await picture.decode();
  const sheet = figure.printed ? slideOf(width, height) : asOnScreen(width, height);
  const canvas = Object.assign(make("canvas"), { width: sheet.width, height: sheet.height });
  const pen = penOf(canvas);
  pen.fillStyle = paper;
  pen.fillRect(0, 0, sheet.width, sheet.height);
  pen.drawImage(picture, sheet.x, sheet.y, sheet.scale * width, sheet.scale * height);
  /** @type {Blob | null} */
  const file = await new Promise((resolve) => canvas.toBlob(resolve, "image/png"));
  return required(file, "room for a picture of this size");
}

/** @param {number} width @param {number} height */
const scaleOnSlide = (width, height) => Math.min(SLIDE.width / width, SLIDE.height / height);

/**
 * Pictures of one size in as many columns as make them large on a slide and leave few places empty: how large all of it
 * is, and where each stands.
 * @param {number} count
 * @param {number} wide
 * @param {number} high
 * @param {number} gap between two
 */
export function inColumns(count, wide, high, gap) {
  const sizes = Array.from({ length: count }, (_, at) => ({
    across: at + 1,
    width: (at + 1) * (wide + gap) - gap,
    height: Math.ceil(count / (at + 1)) * (high + gap) - gap,
  }));
  /** @param {typeof sizes[0]} size */
  const worth = ({ across: columns, width: all, height: tall }) =>
    (scaleOnSlide(all, tall + WRITTEN) * count) / (columns * Math.ceil(count / columns));
  const { across, width, height } = sizes.reduce((best, size) => (worth(size) >= worth(best) ? size : best));
  const places = Array.from({ length: count }, (_, nth) => [
    (nth % across) * (wide + gap),
    Math.floor(nth / across) * (high + gap),
  ]);
  return { width, height, places };
}

/**
 * A figure in the middle of a slide. A long one would be smaller there than on screen: it has a picture of its own size.
 * @param {number} width
 * @param {number} height
 */
export function slideOf(width, height) {
  const scale = Math.min(scaleOnSlide(width, height), MOST);
  if (scale < 1) return asOnScreen(width, height);
  return { ...SLIDE, scale, x: (SLIDE.width - scale * width) / 2, y: (SLIDE.height - scale * height) / 2 };
}

// Twice as many pixels as on screen.
/** @param {number} width @param {number} height */
function asOnScreen(width, height) {
  const scale = Math.min(2, MAX_EDGE / Math.max(width, height));
  return { width: Math.floor(scale * width), height: Math.floor(scale * height), scale, x: 0, y: 0 };
}

// The figure as it is drawn, zoom and all, between its title and its caption, on its ground where it has one.
/** @param {Figure} figure @param {{ ground?: string, style?: string, editable?: boolean }} more */
async function composed({ meta, look, drawn, legend = [] }, { ground = "", style = "", editable = false }) {
  const { ink, font } = look();
  const { figure, width: wide, height: high } = await drawn();
  const { title = "", pixels = "" } = meta;
  const caption = [...(meta.caption ?? []), ...(editable && pixels && figure.querySelector("image") ? [pixels] : [])];
  const inner = Math.max(WRITTEN_WIDTH, Math.ceil(wide));
  const width = inner + 2 * PAD;
  const head = wrapped(title, inner, spacious(`600 ${TITLE}px ${font}`));
  const foot = caption.flatMap((line) => wrapped(line, inner, spacious(`${SMALL}px ${font}`)));
  const top = PAD + (head.length ? head.length * LEADING * TITLE + 6 : 0);
  const { keys, tall } = legendDrawn(legend, inner, ink, font);
  const below = top + high + (tall ? PAD + tall : 0);
  const height = Math.ceil(below + foot.length * SMALL * 1.5 + (foot.length ? 2 : 1) * PAD);
  const page = makeSvg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, "font-family": font });
  if (style) page.append(makeSvg("style", {}, style));
  if (ground) page.append(makeSvg("rect", { width, height, fill: ground }));
  /** @type {(line: string, y: number, more: Record<string, number>) => void} */
  const write = (line, y, more) => page.append(makeSvg("text", { x: PAD, y, fill: ink, ...more }, line));
  head.forEach((line, i) => {
    write(line, PAD + (i + 0.8) * LEADING * TITLE, { "font-size": TITLE, "font-weight": 600 });
  });
  for (const [key, value] of Object.entries({ x: PAD, y: top, overflow: "visible" }))
    figure.setAttribute(key, String(value));
  page.append(figure, keys);
  keys.setAttribute("transform", `translate(${PAD} ${top + high + PAD})`);
  foot.forEach((line, i) => {
    write(line, below + PAD + (i + 0.8) * SMALL * 1.5, { "font-size": SMALL });
  });
  return { text: new XMLSerializer().serializeToString(page), width, height };
}

/**
 * The entries of a legend beside each other, as many in a row as have room.
 * @param {LegendEntry[]} legend
 * @param {number} width
 * @param {string} ink
 * @param {string} font
 */
function legendDrawn(legend, width, ink, font) {
  const keys = makeSvg("g", { "font-size": SMALL });
  const widthOf = spacious(`${SMALL}px ${font}`);
  let [left, top] = [0, 0];
  for (const entry of legend) {
    const isScale = "ends" in entry;
    const [before, after] = isScale ? entry.ends : ["", entry.text];
    const from = isScale ? widthOf(before) + LEGEND.gap : 0;
    const to = from + (isScale ? LEGEND.scale : LEGEND.line);
    const wide = to + LEGEND.gap + widthOf(after);
    if (left && left + wide > width) [left, top] = [0, top + 1.6 * SMALL];
    const key = makeSvg("g", { transform: `translate(${left.toFixed(1)} ${top.toFixed(1)})` });
    left += wide + LEGEND.between;
    if (before) key.append(makeSvg("text", { x: 0, y: 0.85 * SMALL, fill: ink }, before));
    if (isScale) {
      const place = { y: 0, width: LEGEND.step, height: SMALL, "shape-rendering": "crispEdges" };
      for (let x = 0; x < LEGEND.scale; x += LEGEND.step) {
        const at = Math.round((x / (LEGEND.scale - LEGEND.step)) * (entry.colours.length - 1));
        key.append(makeSvg("rect", { ...place, x: from + x, fill: `rgb(${entry.colours[at]})` }));
      }
    } else {
      const look = { stroke: entry.colour, "stroke-width": 3, "stroke-dasharray": entry.dash?.join(" ") || "none" };
      key.append(makeSvg("path", { d: `M${from} ${SMALL / 2}H${to}`, ...look }));
    }
    key.append(makeSvg("text", { x: to + LEGEND.gap, y: 0.85 * SMALL, fill: ink }, after));
    keys.append(key);
  }
  return { keys, tall: legend.length ? top + SMALL : 0 };
}

/** @type {CanvasRenderingContext2D | null} of a canvas that nobody sees */
let ruler = null;

/**
 * How wide a text is in a font, in pixels.
 * @param {string} font as CSS has it
 * @returns {(text: string) => number}
 */
export function measured(font) {
  ruler ??= penOf(make("canvas"));
  const pen = ruler;
  return (text) => {
    pen.font = font;
    return pen.measureText(text).width;
  };
}

/**
 * How wide a text may become in a file: where it is opened its font may be missing.
 * @param {string} font as CSS has it
 * @returns {(text: string) => number}
 */
export function spacious(font) {
  const widthOf = measured(font);
  return (text) => SPARE * widthOf(text);
}

/**
 * Lines no wider than `width`, broken at spaces, or anywhere in what has none.
 * @param {string} text
 * @param {number} width
 * @param {(text: string) => number} widthOf
 */
export function wrapped(text, width, widthOf) {
  /** @type {string[]} */
  const lines = [];
  let rest = [...text.replace(/\s+/g, " ").trim()];
  /** @param {number} count */
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

// The text, cut at its end where it is wider than so many pixels.
/** @param {string} text @param {number} width @param {(text: string) => number} widthOf */
export function shortenedTo(text, width, widthOf) {
  if (widthOf(text) <= width) return text;
  const characters = [...text];
  while (characters.length && widthOf(`${characters.join("")}…`) > width) characters.pop();
  return `${characters.join("")}…`;
}

// The page's own font files of these families, inside the style itself.
/** @param {string} families */
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

/** @param {CSSRule} rule @param {string} base @param {string[]} names */
async function fontFace(rule, base, names) {
  if (!(rule instanceof CSSFontFaceRule)) return "";
  const named = rule.style.getPropertyValue("font-family").replace(/["']/g, "");
  if (!names.includes(named) || rule.style.getPropertyValue("font-style") === "italic") return "";
  const [, address] = rule.style.getPropertyValue("src").match(/url\(["']?([^"')]+)/) ?? [];
  if (!address) return "";
  const answer = await fetch(new URL(address, base)).catch(() => null);
  if (!answer?.ok) return "";
  const data = await dataUrl(await answer.blob());
  const weight = rule.style.getPropertyValue("font-weight") || "normal";
  return `@font-face{font-family:"${names[0]}";font-weight:${weight};src:url(${data})}`;
}

/** @param {Blob} blob @returns {Promise<string>} */
function dataUrl(blob) {
  return new Promise((resolve) => {
    const reader = new FileReader();
    reader.onload = () => resolve(String(reader.result));
    reader.readAsDataURL(blob);
  });
}

/** @param {Figure} figure */
async function csvFile(figure) {
  return new Blob([csvText(await required(figure.lines, "table of this figure")())], { type: "text/csv" });
}

// Lines of values as CSV for spreadsheets, with the byte order mark that they look for.
/** @param {TableCell[][]} lines */
export function csvText(lines) {
  return `\ufeff${lines.map((line) => line.map(cellText).join(",")).join("\r\n")}\r\n`;
}

// Matches text that a spreadsheet takes for a formula, also after white space and with full-width signs.
const FORMULA = /^([\t\r\n]|[\s\u200b\ufeff]*[=+\-@＝＋－＠])/;

// A word or a number. Words that a spreadsheet would run as a formula are made harmless, as in our other tables.
/** @param {TableCell} value */
function cellText(value) {
  if (typeof value === "number") return Number.isFinite(value) ? String(shortest(value)) : "";
  const text = String(value ?? "");
  const safe = FORMULA.test(text) ? `'${text}` : text;
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

// The shortest digits that give a single-precision number back.
/** @param {number} value */
function shortest(value) {
  const digits = [6, 7, 8, 9].map((count) => Number(value.toPrecision(count)));
  return digits.find((number) => Math.fround(number) === value) ?? value;
}
