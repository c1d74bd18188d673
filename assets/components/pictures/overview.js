// Small pictures of all layers × heads on one canvas. They are drawn once, off the screen; hovering over one only moves an
// outline. Only opening a head sends a message to the server.

import { arrival } from "../numbers/blobs.js";
import { openPayload } from "../numbers/payload.js";
import { elementIn, make, makeButton, makeSvg, penOf, renew, required } from "../page/elements.js";
import { oneTabStop } from "../page/tab_stop.js";
import { report } from "../scene/address.js";
import { followHighlight, highlight, litOf } from "../scene/highlight.js";
import { atRest, fitHeight, followLink } from "../streamlit/adapter.js";
import { saveable } from "./charts.js";
import { putPixels } from "./heatmap.js";
import {
  arrange,
  axes,
  bracketed,
  brackets,
  byRole,
  captions,
  corner,
  headName,
  headsOf,
  LETTERS,
  placeAt,
  ranking,
  stepTo,
} from "./overview_plan.js";
import { themeOf } from "./theme.js";
import { WeightGrid } from "./weight_grid.js";

/** @typedef {import("../numbers/panel.js").AnyLayer} AnyLayer */
/** @typedef {import("./overview_plan.js").HeadPlace} HeadPlace */
/** @typedef {import("./overview_plan.js").Plan} Plan */

/**
 * Facts about all heads, in the order of their pictures.
 * @typedef {object} OverviewFacts
 * @property {import("../page/saving.js").FigureMeta} meta
 * @property {number[]} heads how many each layer has
 * @property {number[]} shared of each layer how many heads have one head of keys and values together
 * @property {string[]} measures
 * @property {(number | null)[][]} values of each head its measures
 * @property {{ name: string, label: string, down: boolean }[]} orders
 * @property {{ name: string, label: string, digits: number }[]} facts measures that are written beside the pictures
 * @property {number[]} waiting heads that are not computed yet
 * @property {(string | null)[]} roles
 * @property {string[]} labels of the roles; "" for none
 * @property {Record<string, string>} texts
 */

/**
 * @typedef {object} OverviewScene
 * @property {OverviewFacts} header
 * @property {AnyLayer[]} layers
 * @property {HeadPlace} chosen
 * @property {string | null} link to the page that a chosen head opens
 */

/**
 * The element of an overview, with what stays from call to call; `at` is the head at which the keyboard is.
 * @typedef {HTMLElement & { at: number, ui?: ReturnType<typeof build>, order?: { by: string, reversed: boolean },
 *   shown?: string, described?: number | null, finger?: boolean, fit?: () => void, turn?: number, leaving?: number
 *   }} OverviewRoot
 */

/**
 * @typedef {object} OverviewPage
 * @property {string} digest of the facts
 * @property {[name: string, digest: string]} weights
 * @property {HeadPlace} chosen
 * @property {string | null} link
 */

/** @typedef {(head: number, name: string) => number} ValueOf a measure of a head */
/** @typedef {import("./overview_plan.js").PlanLabel} PlanLabel */
/** @typedef {Plan & { of: Map<number, number>, labels: PlanLabel[], brackets: string }} Sheet where each head is */

const ASIDE = 256; // width of the words beside the pictures
const NARROW = 600; // pixels: in fewer the words stand below the pictures
const FINER = 2; // pixels of a picture for each of the drawing, as in a PNG
const MAX_SIDE = 96; // cells of a picture
const FRAME_DASHES = [3, 3]; // pixels

// Makes the parts that stay from call to call.
/** @param {OverviewRoot} root */
function build(root) {
  const ui = {
    orders: Object.assign(make("div", "orders"), { role: "toolbar" }),
    canvas: Object.assign(make("canvas", "all"), { tabIndex: 0, role: "application" }),
    preview: Object.assign(make("canvas", "preview"), { ariaHidden: "true" }),
    name: make("strong"),
    role: make("span", "role"),
    list: make("dl"),
    open: makeButton("", "open", null),
  };
  const facts = make("div", "facts", ui.name, ui.role, ui.list);
  Object.assign(facts, { role: "status", ariaLive: "polite" });
  root.replaceChildren(ui.orders, make("div", "stage", ui.canvas, make("div", "aside", ui.preview, facts, ui.open)));
  new ResizeObserver(() => root.fit?.()).observe(root);
  return ui;
}

// Draws the facts about the heads and the layers of their payload, with the `chosen` head, in an element that may have
// shown others.
/** @param {OverviewRoot} root @param {OverviewScene} scene @param {(head: HeadPlace) => void} pick */
function showOverview(root, { header, layers, chosen: own, link }, pick) {
  root.ui ??= build(root);
  root.order ??= { by: "", reversed: false };
  const { ui, order } = root;
  const all = headsOf(header.heads);
  /** @type {ValueOf} */
  const value = (head, name) => header.values[head][header.measures.indexOf(name)] ?? NaN;
  const chosen = all.findIndex(({ layer, head }) => layer === own.layer && head === own.head);
  if (root.shown !== `${header.heads} ${chosen}`) root.at = chosen; // another trace or another choice
  root.shown = `${header.heads} ${chosen}`;

  const theme = themeOf(root);
  const { ink, accent, font } = theme;
  const atlas = paintAtlas(layers, theme, header.waiting);
  const context = penOf(ui.canvas);
  const sheet = make("canvas");
  let plan = planned(root.clientWidth);
  let ratio = 1;
  let hovered = -1; // a head, as `chosen` and `root.at` are

  function ranked() {
    if (!order.by) return null;
    if (order.by === "role")
      return byRole(
        header.roles,
        all.map((_, head) => value(head, "role")),
        order.reversed,
      );
    const down = required(
      header.orders.find(({ name }) => name === order.by),
      order.by,
    ).down;
    return ranking(
      all.map((_, head) => value(head, order.by)),
      down !== order.reversed,
    );
  }

  /**
   * @param {number} room pixels from side to side
   * @returns {Sheet}
   */
  function planned(room) {
    const places = arrange(header.heads, room < NARROW ? room : room - ASIDE, ranked());
    return {
      ...places,
      of: new Map(places.slots.map((head, slot) => [head, slot])),
      labels: order.by ? captions(places, all) : axes(places),
      brackets: order.by ? "" : brackets(places, bracketed(header.shared)),
    };
  }

  // The sheet: every picture, the numbers of layers and heads, captions. Drawn when its size changes.
  function drawSheet() {
    const pen = penOf(sheet);
    [sheet.width, sheet.height] = [Math.round(plan.width * ratio), Math.round(plan.height * ratio)];
    pen.scale(ratio, ratio);
    drawPictures(pen, plan, atlas, atlas.side / ratio, ink);
    pen.fillStyle = pen.strokeStyle = ink;
    pen.globalAlpha = 0.75;
    pen.textBaseline = "middle";
    pen.font = `${LETTERS}px ${font}`;
    for (const { text, x, y, anchor } of plan.labels) {
      pen.textAlign = anchor;
      pen.fillText(text, x, y);
    }
    pen.stroke(new Path2D(plan.brackets));
  }

  function fit() {
    const room = root.clientWidth;
    if (!room) return; // in a closed fold
    root.classList.toggle("narrow", room < NARROW);
    plan = planned(room);
    ratio = globalThis.devicePixelRatio || 1;
    drawSheet();
    [ui.canvas.width, ui.canvas.height] = [sheet.width, sheet.height];
    ui.canvas.style.width = `${plan.width}px`;
    ui.canvas.style.height = `${plan.height}px`;
    context.drawImage(sheet, 0, 0);
    outline();
  }

  /** @type {[x: number, y: number][]} */
  let outlined = [];
  function outline() {
    for (const [x, y] of outlined) restore(x, y);
    outlined = [];
    const shown = hovered < 0 ? root.at : hovered;
    const lit = all.findIndex(({ layer, head }) => layer + 1 === litOf("layer") && head + 1 === litOf("head"));
    frame(chosen, accent, 2.5);
    for (const head of new Set([shown, lit])) if (head !== chosen) frame(head, ink, 1.5);
    describe(shown);
  }

  /** @param {number} x @param {number} y */
  function restore(x, y) {
    const box = [x - 3, y - 3, plan.size + 6, plan.size + 6].map((edge) => Math.round(edge * ratio));
    const [left, top] = [Math.max(0, box[0]), Math.max(0, box[1])];
    const [wide, high] = [Math.min(sheet.width - left, box[2]), Math.min(sheet.height - top, box[3])];
    context.clearRect(left, top, wide, high);
    context.drawImage(sheet, left, top, wide, high, left, top, wide, high);
  }

  /** @param {number} head @param {string} colour @param {number} weight */
  function frame(head, colour, weight) {
    const slot = plan.of.get(head);
    if (slot === undefined) return;
    const [x, y] = corner(plan, slot);
    context.save();
    context.scale(ratio, ratio);
    context.strokeStyle = colour;
    context.lineWidth = weight;
    context.strokeRect(x - 0.5, y - 0.5, plan.size + 1, plan.size + 1);
    context.restore();
    outlined.push([x, y]);
  }

  // One head in words and as a larger picture.
  /** @param {number} head */
  function describe(head) {
    if (root.described === head) return;
    root.described = head;
    const { layer, head: own } = all[head];
    ui.name.textContent = headName(header.texts, header.shared, layer, own);
    ui.role.textContent = header.labels[head] || header.texts.none;
    ui.role.classList.toggle("none", !header.labels[head]);
    ui.list.replaceChildren(
      ...header.facts.flatMap(({ name, label, digits }) => {
        const number = value(head, name);
        return [make("dt", "", label), make("dd", "", Number.isNaN(number) ? "–" : number.toFixed(digits))];
      }),
    );
    ui.open.style.visibility = (link || root.at !== chosen) && head === root.at ? "visible" : "hidden";
    const pen = penOf(ui.preview);
    pen.clearRect(0, 0, atlas.side, atlas.side);
    pen.drawImage(atlas.canvas, ...atlas.at(head), 0, 0, atlas.side, atlas.side);
  }

  /** @param {number} head */
  function open(head) {
    root.at = head;
    outline();
    lead(head, () => pick(all[head]));
  }

  function orders() {
    return [{ name: "", label: header.texts.layers, down: false }, ...header.orders].map(({ name, label, down }) => {
      const button = makeButton(label, "", () => {
        order.reversed = name && order.by === name ? !order.reversed : false;
        order.by = name;
        renew(ui.orders, orders());
        oneTabStop(ui.orders);
        fit();
      });
      button.ariaPressed = String(order.by === name);
      if (order.by === name && name) {
        button.append(make("span", "way", (name === "role" ? order.reversed : down !== order.reversed) ? " ↓" : " ↑"));
        button.title = header.texts.turn;
      }
      return button;
    });
  }

  /** @param {MouseEvent} event */
  const under = ({ offsetX, offsetY }) => {
    const slot = placeAt(plan, offsetX, offsetY);
    return slot < 0 ? -1 : plan.slots[slot];
  };
  /** @param {number} head */
  const point = (head) => {
    if (head === hovered) return;
    hovered = head;
    highlight(root, head < 0 ? null : { layer: all[head].layer + 1, head: all[head].head + 1 });
    outline();
  };
  ui.canvas.onpointermove = (event) => {
    const head = under(event);
    ui.canvas.style.cursor = head < 0 ? "default" : "pointer";
    point(head);
  };
  ui.canvas.onpointerleave = () => point(-1);
  ui.canvas.onpointerdown = (event) => {
    root.finger = event.pointerType === "touch";
  };
  ui.canvas.onclick = (event) => {
    const head = under(event);
    if (head < 0) return;
    // A finger hides what it points at: the first tap shows a head, the second one or the button opens it.
    if (!root.finger || head === root.at) return open(head);
    root.described = null;
    root.at = head;
    outline();
  };
  ui.canvas.onkeydown = (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Enter" || event.key === " ") open(root.at);
    else {
      const before = plan.of.get(root.at) ?? 0;
      const slot = stepTo(plan, before, event.key);
      if (slot === before && !/^(Arrow|Home|End)/.test(event.key)) return;
      hovered = -1;
      root.described = null;
      root.at = plan.slots[slot];
      outline();
    }
    event.preventDefault();
  };
  ui.open.onclick = () => open(root.at);
  ui.open.textContent = header.texts.open;
  ui.canvas.ariaLabel = header.texts.canvas;
  ui.orders.ariaLabel = header.texts.order;
  [ui.preview.width, ui.preview.height] = [atlas.side, atlas.side];
  renew(ui.orders, orders());
  oneTabStop(ui.orders);
  root.described = null;
  root.fit = fit;
  fit();
  followHighlight(root, () => root.clientWidth && outline());
  fitHeight(root, "overview_fold");
  saveable(root, {
    meta: header.meta,
    look: () => themeOf(root),
    drawn: () => overviewDrawn(plan, atlas, ink),
    lines: () => overviewLines(header, all, value),
  });
  const lead = leads(root, link, chosen);
}

// All pictures side by side at their own size, colours by the root of the weight; nothing of heads that are `waiting`.
/** @param {AnyLayer[]} layers @param {import("./theme.js").Theme} look @param {number[]} waiting */
function paintAtlas(layers, look, waiting) {
  const pictures = layers.flatMap((layer) => layer.heads.map((head) => pictureOf(layer, head)));
  const side = Math.max(...pictures.map(({ rows, columns }) => Math.max(rows, columns)));
  const across = Math.ceil(Math.sqrt(pictures.length));
  const atlas = make("canvas");
  [atlas.width, atlas.height] = [across * side, Math.ceil(pictures.length / across) * side];
  const context = penOf(atlas, { willReadFrequently: true });
  /** @type {(head: number) => [x: number, y: number, width: number, height: number]} */
  const at = (head) => [(head % across) * side, Math.floor(head / across) * side, side, side];
  pictures.forEach((picture, head) => {
    if (waiting.includes(head)) return;
    const values = squareOf(picture, side);
    const [x, y] = at(head);
    putPixels(context, { values, signed: false, end: 1, roots: true }, look, side, x, y);
  });
  return { canvas: atlas, side, at, waiting };
}

// The weights of a head, of a long text the largest of each block.
/** @param {AnyLayer} layer @param {number} head */
function pictureOf(layer, head) {
  const picture = new WeightGrid(layer, [head], MAX_SIDE);
  picture.advance(Number.POSITIVE_INFINITY);
  return picture;
}

// A picture of two texts has the shorter one stretched.
/** @param {WeightGrid} picture @param {number} side */
function squareOf({ values, rows, columns }, side) {
  if (rows === columns && rows === side) return values;
  return Float32Array.from({ length: side ** 2 }, (_, at) => {
    const [row, column] = [Math.floor(at / side), at % side];
    return values[Math.floor((row * rows) / side) * columns + Math.floor((column * columns) / side)];
  });
}

// The pictures where they stand; `side` is how many pixels of the screen one has by itself.
/**
 * @param {CanvasRenderingContext2D} pen
 * @param {Plan} plan
 * @param {ReturnType<typeof paintAtlas>} atlas
 * @param {number} side
 * @param {string} ink of the dashed frames of heads that are not computed yet
 */
function drawPictures(pen, plan, atlas, side, ink) {
  pen.imageSmoothingEnabled = plan.size < side; // smaller: the mean of pixels; larger: as they are
  pen.strokeStyle = ink;
  pen.setLineDash(FRAME_DASHES);
  plan.slots.forEach((head, slot) => {
    const [x, y] = corner(plan, slot);
    if (atlas.waiting.includes(head)) pen.strokeRect(x + 0.5, y + 0.5, plan.size - 1, plan.size - 1);
    else if (head >= 0) pen.drawImage(atlas.canvas, ...atlas.at(head), x, y, plan.size, plan.size);
  });
  pen.setLineDash([]);
}

// The overview as a file: its pictures as they stand, numbers and captions as letters.
/** @param {Sheet} plan @param {ReturnType<typeof paintAtlas>} atlas @param {string} ink */
function overviewDrawn(plan, atlas, ink) {
  const { width, height } = plan;
  const pictures = make("canvas");
  [pictures.width, pictures.height] = [FINER * width, FINER * height];
  const pen = penOf(pictures);
  pen.scale(FINER, FINER);
  drawPictures(pen, plan, atlas, atlas.side / FINER, ink);
  const image = makeSvg("image", { href: pictures.toDataURL(), width, height });
  const figure = makeSvg("svg", { width, height, viewBox: `0 0 ${width} ${height}` }, image);
  for (const { text, x, y, anchor } of plan.labels) {
    const letters = { "text-anchor": anchor === "center" ? "middle" : anchor, "font-size": LETTERS, fill: ink };
    figure.append(makeSvg("text", { x, y: y + LETTERS / 3, ...letters }, text));
  }
  if (plan.brackets) figure.append(makeSvg("path", { d: plan.brackets, fill: "none", stroke: ink }));
  return { figure, width, height };
}

// Every measure as a table.
/** @param {OverviewFacts} facts @param {HeadPlace[]} all @param {ValueOf} value */
function overviewLines({ texts, facts, labels }, all, value) {
  const names = facts.map(({ label }) => label);
  const body = all.map(({ layer, head }, at) => [
    layer + 1,
    head + 1,
    labels[at],
    ...facts.map(({ name }) => value(at, name)),
  ]);
  return [[texts.of_layer, texts.of_head, texts.role, ...names], ...body];
}

// On a page where the head is shown on another page, opening one leads there: first the scene moves to it,
// and when the server has answered, the link on the page is followed. So Back leads back to this page. The link stands
// below the overview: before the page has run to its end there may be none to follow.
/** @param {{ leaving?: number }} root @param {string | null} link @param {number} chosen */
export function leads(root, link, chosen) {
  const follow = () => {
    root.leaving = undefined;
    if (link) atRest(() => followLink(link));
  };
  if (link && root.leaving === chosen) follow();
  // Opens a head; one that is chosen already is nothing new to the server.
  /** @param {number} head @param {() => void} choose */
  return (head, choose) => {
    if (!link) return choose();
    if (head === chosen) return follow();
    root.leaving = head;
    choose();
  };
}

// Inside Streamlit: which head is chosen comes as JSON, all else by itself (blobs.js). The weights are those of the
// head view where it has them all.
/** @param {import("../streamlit/adapter.js").Mounted<OverviewPage>} mounted */
export default async function ({ data, parentElement, setTriggerValue }) {
  const root = /** @type {OverviewRoot} */ (elementIn(parentElement, ".overview"));
  root.turn = (root.turn ?? 0) + 1;
  const { turn } = root;
  const [facts, weights] = await Promise.all([arrival("overview", data.digest), arrival(...data.weights)]);
  if (root.turn !== turn) return; // a newer scene has come meanwhile
  const header = JSON.parse(new TextDecoder().decode(facts));
  const layers = [...openPayload(weights)[0].layers.values()];
  const { chosen, link } = data;
  showOverview(root, { header, layers, chosen, link }, (head) => {
    report();
    setTriggerValue("picked", head);
  });
}
