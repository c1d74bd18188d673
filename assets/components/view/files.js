// What the head view saves: its drawings as a figure, its weights as a table, itself as a page.

import { makeSvg } from "../page/elements.js";
import { download, measured, save, wrapped } from "../page/saving.js";
import { fill } from "../page/wording.js";
import { lookOf } from "../pictures/colours.js";
import { strokeOf } from "../pictures/curves.js";
import { table } from "../scene/focus.js";

const CAPTION = 13; // pixels, for the lines that say what is drawn
const MIN_WIDTH = 480; // pixels: the captions need them
const COLUMNS = ["sentence", "layer", "head", "query", "query_token", "key", "key_token"];

/** @typedef {import("./selection.js").Selection} Selection */
/** @typedef {import("../pictures/theme.js").Theme} Theme */

const nameOf = ({ header, state }) => `${header.file}-layer-${state.layer + 1}-${state.drawing}`;

/**
 * Save the drawings as a figure ("png", "svg"), or their weights as a table ("csv").
 * @param {string} format
 * @param {Selection} selection
 * @param {any[]} drawings one for each panel
 * @param {Theme} theme
 */
export function saveDrawings(format, selection, drawings, theme) {
  const { paper, ink, font } = theme;
  /** @type {import("../page/saving.js").Figure} */
  const figure = {
    meta: { file: nameOf(selection) },
    look: () => ({ paper, ink, font }),
    drawn: () => drawnScenes(selection, drawings, theme),
    lines: () => weightLines(selection),
  };
  return save(figure, format);
}

/**
 * Save the view as it is, as a page of its own.
 * @param {Selection} selection
 * @param {import("./head_view.js").Page["page"]} pageOf
 */
export async function savePage(selection, pageOf) {
  const { drawing, rescaled, words } = selection.state;
  const inView = {
    ...selection.chosen,
    on: selection.heads,
    drawing,
    rescaled,
    words,
    brief: false,
    follows: undefined,
  };
  const page = await pageOf({ ...selection.header, ...inView });
  return download(new Blob([page], { type: "text/html;charset=utf-8" }), `${nameOf(selection)}.html`);
}

// The scenes of all panels under each other, each below the words that say what it is.
/**
 * @param {Selection} selection
 * @param {any[]} drawings
 * @param {Theme} theme
 */
function drawnScenes(selection, drawings, theme) {
  const { state, header, panels, heads } = selection;
  const { font, ink, palette } = theme;
  const { texts } = header;
  const facts = [
    header.source,
    fill(texts.layer, { layer: state.layer + 1 }),
    fill(texts.heads_named, { heads: heads.map((head) => head + 1).join(", ") }),
    ...(state.rescaled ? [texts.rescaled] : []),
    ...(drawings.some(({ map }) => map?.hidden) ? [texts.colours_masked] : []),
  ];
  /** @type {import("../pictures/drawing.js").Scene[]} */
  const scenes = drawings.map((drawing) => drawing.scene());
  const width = Math.max(MIN_WIDTH, ...scenes.map((scene) => scene.width));
  const figure = makeSvg("svg", { "font-family": font });
  let top = 0;
  scenes.forEach((scene, nth) => {
    for (const line of wrapped([panels[nth].title, ...facts].join(" · "), width, measured(`${CAPTION}px ${font}`))) {
      top += CAPTION * 1.35;
      figure.append(makeSvg("text", { x: 0, y: top, "font-size": CAPTION, fill: ink }, line));
    }
    top += CAPTION;
    const group = makeSvg("g", { transform: `translate(0 ${top.toFixed(1)})` });
    group.append(...shapes(scene, ink, palette));
    figure.append(group);
    top += scene.height + CAPTION;
  });
  for (const [name, value] of Object.entries({ width, height: top })) figure.setAttribute(name, String(value));
  return { figure, width, height: top };
}

/** @param {import("../pictures/drawing.js").Scene} scene */
function shapes({ image, rectangles = [], curves, labels }, ink, palette) {
  return [
    ...(image ? [makeSvg("image", image)] : []),
    ...rectangles.map((box) => makeSvg("rect", { ...box, rx: 3 })),
    ...[...curves].sort((a, b) => a.weight - b.weight).map((curve) => curvePath(curve, lookOf(palette, curve.head))),
    ...labels.map((label) => labelText(label, ink)),
  ];
}

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

/** @param {import("../pictures/drawing.js").Label} label */
function labelText({ text, unknown, note, x, y, anchor, fill: colour }, ink) {
  const place = { x: x.toFixed(1), y: (y + 4).toFixed(1), "text-anchor": anchor };
  const element = makeSvg("text", { ...place, "font-size": text ? 14 : 11, fill: colour ?? ink });
  element.append(makeSvg("tspan", unknown ? { style: "text-decoration: underline dotted" } : {}, text));
  if (note) element.append(makeSvg("tspan", { "font-size": 11, ...(text ? { dx: 8 } : {}) }, note));
  return element;
}

/** @param {Selection} selection */
function weightLines(selection) {
  const rows = selection.panels.flatMap((panel) =>
    table(panel, selection.layer(panel), selection.heads, selection.of(panel).pinned).map((row) => [
      panel.title,
      ...row,
    ]),
  );
  return [[...COLUMNS, selection.state.rescaled ? "weight_rescaled" : "weight"], ...rows];
}
