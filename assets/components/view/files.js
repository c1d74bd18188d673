// What the head view saves: its drawings as a figure, its weights as a table, itself as a page.

import { makeSvg } from "../page/elements.js";
import { download, measured, save, wrapped } from "../page/saving.js";
import { fill } from "../page/wording.js";
import { strokeOf } from "../pictures/curves.js";
import { table } from "../scene/focus.js";

const CAPTION = 13; // pixels, for the lines that say what is drawn
const MIN_WIDTH = 480; // pixels: the captions need them
const COLUMNS = ["sentence", "layer", "head", "query", "query_token", "key", "key_token"];

/**
 * @param {import("./head_view.js").HeadView} view
 * @param {string} kind "png", "svg", "csv", or "html" for the whole page
 */
export async function saveView(view, kind) {
  const file = `${view.header.file}-layer-${view.state.layer + 1}-${view.state.drawing}`;
  if (kind !== "html") return save(figureOf(view, file), kind);
  const { drawing, rescaled, words } = view.state;
  const inView = { ...view.chosen, on: view.heads, drawing, rescaled, words, brief: false, follows: undefined };
  const page = await view.page({ ...view.header, ...inView });
  return download(new Blob([page], { type: "text/html;charset=utf-8" }), `${file}.html`);
}

/** @returns {import("../page/saving.js").Figure} */
function figureOf(view, file) {
  return {
    meta: { file },
    look: () => ({ paper: view.background, ink: view.ink, font: view.font }),
    drawn: () => drawnScenes(view),
    lines: () => weightLines(view),
  };
}

// The scenes of all panels under each other, each below the words that say what it is.
function drawnScenes(view) {
  const { texts, state, header, data, drawings, heads, font, ink } = view;
  const facts = [
    header.source,
    fill(texts.layer, { layer: state.layer + 1 }),
    fill(texts.heads_named, { heads: heads.map((head) => head + 1).join(", ") }),
    ...(state.rescaled ? [texts.rescaled] : []),
    ...(drawings.some(({ drawing }) => drawing.map?.hidden) ? [texts.colours_masked] : []),
  ];
  /** @type {import("../pictures/drawing.js").Scene[]} */
  const scenes = drawings.map(({ drawing }) => drawing.scene());
  const width = Math.max(MIN_WIDTH, ...scenes.map((scene) => scene.width));
  const figure = makeSvg("svg", { "font-family": font });
  let top = 0;
  scenes.forEach((scene, nth) => {
    for (const line of wrapped([data[nth].title, ...facts].join(" · "), width, measured(`${CAPTION}px ${font}`))) {
      top += CAPTION * 1.35;
      figure.append(makeSvg("text", { x: 0, y: top, "font-size": CAPTION, fill: ink }, line));
    }
    top += CAPTION;
    const group = makeSvg("g", { transform: `translate(0 ${top.toFixed(1)})` });
    group.append(...shapes(scene, view));
    figure.append(group);
    top += scene.height + CAPTION;
  });
  for (const [name, value] of Object.entries({ width, height: top })) figure.setAttribute(name, String(value));
  return { figure, width, height: top };
}

/** @param {import("../pictures/drawing.js").Scene} scene */
function shapes({ image, rectangles = [], curves, labels }, view) {
  return [
    ...(image ? [makeSvg("image", image)] : []),
    ...rectangles.map((box) => makeSvg("rect", { ...box, rx: 3 })),
    ...[...curves].sort((a, b) => a.weight - b.weight).map((curve) => curvePath(curve, view.look(curve.head))),
    ...labels.map((label) => labelText(label, view.ink)),
  ];
}

function curvePath({ points, strength }, { colour, dash }) {
  const [x, y, ...rest] = points.map((value) => value.toFixed(1));
  const { width, opacity } = strokeOf(strength);
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

function weightLines(view) {
  const rows = view.data.flatMap((panel) =>
    table(panel, view.layer(panel), view.heads, view.of(panel).pinned).map((row) => [panel.title, ...row]),
  );
  return [[...COLUMNS, view.state.rescaled ? "weight_rescaled" : "weight"], ...rows];
}
