// Saves from the head view: its drawings as a figure, its weights as a table, the view itself as a page.

import { makeSvg, required } from "../page/elements.js";
import { download, inColumns, LEADING, save, spacious, wrapped } from "../page/saving.js";
import { fill, short } from "../page/wording.js";
import { lookOf } from "../pictures/colours.js";
import { strokeOf } from "../pictures/curves.js";
import { broughtOut, LABEL } from "../pictures/drawing.js";
import { printTheme } from "../pictures/theme.js";
import { MAX_NUMBERS, table } from "../scene/focus.js";

const HEADING = 14; // pixels of the letters of a sentence's title
const ANSWER = 12; // and of the answers below it
const BETWEEN = 36; // pixels between two sentences
const MAX_LEGEND = 16; // heads: more of them share their colours
const NARROWEST = 300; // pixels: a title needs them
const LONGEST_TABLE = 1 << 21; // cells of a head that one table can hold
const COLUMNS = ["sentence", "layer", "head", "query_position", "query", "key_position", "key"];

/** @typedef {import("./head_view.js").HeadView} HeadView */
/** @typedef {import("./selection.js").Selection} Selection */
/** @typedef {import("../pictures/drawing.js").SentenceDrawing} SentenceDrawing */
/** @typedef {import("../pictures/theme.js").Theme} Theme */
/** @typedef {import("../pictures/drawing.js").Shapes} Shapes */

/** @param {Selection} selection */
const nameOf = ({ header, state }) => `${header.file}-layer-${state.layer + 1}-${state.drawing}`;

// Save the drawings as a figure ("png", "svg"), or their weights as a table ("csv").
/** @param {HeadView} view @param {import("../page/saving.js").FileFormat} format */
export function saveDrawings({ drawings: drawn, root, selection }, format) {
  const drawings = drawn.map(({ drawing }) => drawing);
  const theme = printTheme(root, selection.header.random);
  /** @type {import("../page/saving.js").Figure} */
  const figure = {
    printed: true,
    meta: {
      file: nameOf(selection),
      caption: captionOf(selection, drawings),
      pixels: selection.header.texts.pixels,
    },
    look: () => theme,
    drawn: () => {
      const { panels } = selection;
      const scenes = drawings.map((drawing) => drawing.scene(theme));
      const written = panels.map((panel) => [panel.title, ...selection.answers(panel).map(answerLine)]);
      return drawnScenes(scenes, written, theme);
    },
    legend: legendOf(selection, drawings, theme),
    lines: () => weightLines(selection),
  };
  return save(figure, format);
}

// Save the view as it is, as a page of its own.
/** @param {HeadView} view */
export async function savePage({ page, selection }) {
  const { header, heads } = selection;
  const { drawing, rescaled, words } = selection.state;
  const inView = {
    ...selection.chosen,
    on: selection.on ? heads : header.on,
    drawing,
    rescaled,
    words,
    brief: false,
    follows: undefined,
    block: undefined, // a page with frozen numbers computes nothing
    without: undefined,
  };
  const saved = await required(page.page, "page to save")({ ...header, ...inView });
  return download(new Blob([saved], { type: "text/html;charset=utf-8" }), `${nameOf(selection)}.html`);
}

/** @param {import("./head_view.js").AnswerText} answer */
export const answerLine = ([asked, words, note]) => [asked, [words, note].filter(Boolean).join(" · ")].join(" ");

// The colours of the heads, or, where their mean is drawn, the scale of weights.
/** @param {Selection} selection @param {SentenceDrawing[]} drawings @param {Theme} theme */
function legendOf({ header, heads, state }, drawings, { palette, sequential }) {
  const { drawing, fitted, layer } = state;
  if (drawing === "matrix" || (drawing === "text" && heads.length > MAX_NUMBERS)) {
    const ends = new Set(drawings.map(({ strongest }) => (fitted && strongest) || 1));
    return ends.size > 1 ? [] : [{ ends: ["0", short([...ends][0])], colours: sequential }];
  }
  if (palette.length === 1 || heads.length > MAX_LEGEND) return [];
  return heads.map((head) => {
    const [role = ""] = header.roles?.[layer]?.[head] ?? [];
    const name = [fill(header.texts.head, { head: head + 1 }), role].filter(Boolean).join(" · ");
    return { ...lookOf(palette, head), text: name };
  });
}

// Save a page with the model inside, which opens where the view looks.
/** @param {HeadView} view */
export async function saveModelPage({ page, selection }) {
  const saved = await required(page.model, "model to save")();
  return download(new Blob([saved], { type: "text/html;charset=utf-8" }), `${selection.header.file}-model.html`);
}

// The caption for everything that all sentences of a figure have in common.
/** @param {Selection} selection @param {SentenceDrawing[]} drawings */
function captionOf(selection, drawings) {
  const { state, header, heads } = selection;
  const { texts } = header;
  const layer = fill(texts.layer, { layer: state.layer + 1 });
  return [
    [header.source, layer, ...headsNamed(heads, texts), "Headscope"].join(" · "),
    ...(heads.length > (state.drawing === "matrix" ? 1 : MAX_NUMBERS) ? [texts.means] : []),
    ...(state.rescaled ? [texts.rescaled] : []),
    ...(state.drawing === "matrix" ? [texts.rows_look] : []),
    ...(drawings.some(({ map }) => map?.hidden) ? [fill(texts.sentence, { words: texts.colours_masked })] : []),
    ...scales(selection, drawings),
  ].filter(Boolean);
}

// The value of the strongest colour, for each sentence unless it is the same in all.
/** @param {Selection} selection @param {SentenceDrawing[]} drawings */
function scales(selection, drawings) {
  const said = drawings.map((drawing) => broughtOut(selection, drawing));
  if (new Set(said).size === 1) return said.slice(0, 1);
  return said.map((words, nth) => `${selection.panels[nth].title} ${words}`);
}

// "head 4", "heads 2 and 4".
/** @param {number[]} heads @param {Record<string, string>} texts */
function headsNamed(heads, texts) {
  const numbers = heads.map((head) => head + 1);
  const last = numbers.pop();
  if (last === undefined) return [];
  if (!numbers.length) return [fill(texts.head, { head: last })];
  return [fill(texts.heads_named, { heads: fill(texts.and, { first: numbers.join(texts.comma), last }) })];
}

/**
 * The scenes, each below its title and its answers: beside each other or one below the other, whichever is larger on a
 * slide.
 * @param {Shapes[]} scenes
 * @param {string[][]} written of each scene
 * @param {Theme} theme
 */
function drawnScenes(scenes, written, { font, ink, palette }) {
  const wide = Math.max(NARROWEST, ...scenes.map(({ width }) => width));
  const lines = written.map((every) => {
    let y = 0;
    return every.flatMap((text, nth) => {
      const [size, weight] = nth ? [ANSWER, 400] : [HEADING, 600];
      return wrapped(text, wide, spacious(`${weight} ${size}px ${font}`)).map((line) => {
        y += LEADING * size;
        return { line, y, size, weight };
      });
    });
  });
  const above = Math.max(...lines.map((one) => one.at(-1)?.y ?? 0)) + HEADING;
  const high = above + Math.max(...scenes.map(({ height }) => height));
  const { width, height, places } = inColumns(scenes.length, wide, high, BETWEEN);
  const figure = makeSvg("svg", { "font-family": font, width, height });
  scenes.forEach((scene, nth) => {
    const [x, y] = places[nth];
    for (const { line, y: below, size, weight } of lines[nth]) {
      const letters = { "font-size": size, "font-weight": weight, fill: ink };
      figure.append(makeSvg("text", { x, y: y + below - 0.3 * size, ...letters }, line));
    }
    const transform = `translate(${x.toFixed(1)} ${(y + above).toFixed(1)})`;
    figure.append(makeSvg("g", { transform }, ...shapes(scene, ink, palette)));
  });
  return { figure, width, height };
}

/** @param {Shapes} scene @param {string} ink @param {string[]} palette */
function shapes({ map, rectangles = [], curves, labels }, ink, palette) {
  return [
    ...(map ? [map] : []),
    ...rectangles.map((box) => makeSvg("rect", { ...box, rx: 3 })),
    ...[...curves].sort((a, b) => a.weight - b.weight).map((curve) => curvePath(curve, lookOf(palette, curve.head))),
    ...labels.map((label) => labelText(label, ink)),
  ];
}

/** @param {import("../pictures/curves.js").Curve} curve @param {import("../pictures/colours.js").LineLook} look */
function curvePath({ points, strength }, { colour, dash, thin }) {
  const [x, y, ...rest] = points.map((value) => value.toFixed(1));
  const { width, opacity } = strokeOf(strength, thin);
  return makeSvg("path", {
    d: `M${x} ${y}C${rest.join(" ")}`,
    fill: "none",
    stroke: colour,
    "stroke-width": width.toFixed(2),
    "stroke-opacity": opacity.toFixed(3),
    ...(dash.length ? { "stroke-dasharray": dash.join(" ") } : {}),
  });
}

/** @param {import("../pictures/drawing.js").Label} label @param {string} ink */
function labelText({ text, unknown, bold, notes = [], x, y, anchor, fill: colour }, ink) {
  const place = { x: x.toFixed(1), y: (y + 4).toFixed(1), "text-anchor": anchor, "font-weight": bold ? 600 : 400 };
  const letters = { "font-size": text ? LABEL.word : LABEL.number, fill: colour ?? ink };
  const word = makeSvg("tspan", unknown ? { style: "text-decoration: underline dotted" } : {}, text);
  const numbers = notes.map(({ text: note, colour: own }, nth) => {
    const look = { "font-size": LABEL.number, dx: text || nth ? LABEL.gap : 0, fill: own ?? colour ?? ink };
    return makeSvg("tspan", look, note);
  });
  return makeSvg("text", { ...place, ...letters }, word, ...numbers);
}

// Has a sentence more cells than one table can hold?
/** @param {Selection} selection */
export const isTooLong = ({ panels }) => panels.some(({ tokens, keys }) => tokens.length * keys.length > LONGEST_TABLE);

// All weights, or those of the chosen words; in a very long text those of a word, the last one that was chosen.
/** @param {Selection} selection */
function weightLines(selection) {
  const long = isTooLong(selection);
  const whole = selection.state.drawing === "matrix" && !long; // whatever is chosen in it
  const rows = selection.panels.flatMap((panel) => {
    const last = Math.min(selection.at.token, panel.tokens.length - 1);
    const chosen =
      selection.of(panel).pinned ?? (long ? { side: /** @type {const} */ ("query"), tokens: [last] } : null);
    const focus = whole ? null : chosen;
    return table(panel, selection.layer(panel), selection.heads, focus).map((row) => [panel.title, ...row]);
  });
  return [[...COLUMNS, selection.state.rescaled ? "weights_rescaled" : "weights"], ...rows];
}
