// All layers × heads of a text as one canvas of small pictures. They are drawn once, off the screen; the
// finger on one only moves an outline. Only opening a head reaches the server.
import { arrival } from "./blobs.js";
import { saveable } from "./charts.js";
import { codeColours, themeColours } from "./colours.js";
import { make, makeButton, makeSvg, renew } from "./elements.js";
import { byRole, headsOf, ranking, unpackOverview } from "./overview_data.js";
import {
  arrange,
  axes,
  bracketed,
  brackets,
  captions,
  corner,
  headName,
  LETTERS,
  placeAt,
  stepTo,
} from "./overview_plan.js";
import { atRest, drawn, followLink } from "./streamlit.js";

const ASIDE = 256; // width of the words beside the pictures
const NARROW = 600;
const FINER = 2; // pixels of a picture for each of the drawing, as in a PNG

// What stays from call to call.
function build(root) {
  const ui = {
    orders: make("div", "orders"),
    stage: make("div", "stage"),
    canvas: make("canvas", "all"),
    aside: make("div", "aside"),
    preview: make("canvas", "preview"),
    facts: make("div", "facts"),
    name: make("strong"),
    role: make("span", "role"),
    list: make("dl"),
    open: makeButton("", "open", null),
  };
  ui.orders.setAttribute("role", "group");
  ui.facts.setAttribute("role", "status");
  ui.facts.setAttribute("aria-live", "polite");
  ui.canvas.tabIndex = 0;
  ui.canvas.setAttribute("role", "application");
  ui.facts.append(ui.name, ui.role, ui.list);
  ui.aside.append(ui.preview, ui.facts, ui.open);
  ui.stage.append(ui.canvas, ui.aside);
  root.replaceChildren(ui.orders, ui.stage);
  new ResizeObserver(() => root.fit?.()).observe(root);
  return ui;
}

// What `unpackOverview` has read, with the head that is `chosen`, in an element that may have shown others.
function showOverview(root, { header, thumbs, measures, chosen: own, link }, pick) {
  root.ui ??= build(root);
  root.order ??= { by: "", reversed: false };
  const { ui, order } = root;
  const all = headsOf(header.heads);
  const wide = header.measures.length;
  const value = (head, name) => measures[head * wide + header.measures.indexOf(name)];
  const chosen = all.findIndex(({ layer, head }) => layer === own.layer && head === own.head);
  if (root.shown !== `${header.heads} ${chosen}`) root.at = chosen; // another trace or another choice
  root.shown = `${header.heads} ${chosen}`;

  const style = getComputedStyle(root);
  const text = style.getPropertyValue("--st-text-color");
  const primary = style.getPropertyValue("--st-primary-color");
  const atlas = paintAtlas(header, thumbs, themeColours(root));
  const context = ui.canvas.getContext("2d");
  const sheet = make("canvas");
  let plan = null;
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
    const down = header.orders.find(({ name }) => name === order.by).down;
    return ranking(
      all.map((_, head) => value(head, order.by)),
      down !== order.reversed,
    );
  }

  // The sheet: every picture, the numbers of layers and heads, captions. Drawn when its size changes.
  function drawSheet() {
    const pen = sheet.getContext("2d");
    [sheet.width, sheet.height] = [Math.round(plan.width * ratio), Math.round(plan.height * ratio)];
    pen.scale(ratio, ratio);
    drawPictures(pen, plan, atlas, header.side / ratio);
    pen.fillStyle = pen.strokeStyle = text;
    pen.globalAlpha = 0.75;
    pen.textBaseline = "middle";
    pen.font = `${LETTERS}px ${style.fontFamily}`;
    for (const { text: written, x, y, anchor } of plan.labels) {
      pen.textAlign = anchor;
      pen.fillText(written, x, y);
    }
    pen.stroke(new Path2D(plan.brackets));
  }

  function fit() {
    const room = root.clientWidth;
    if (!room) return; // in a closed fold
    root.classList.toggle("narrow", room < NARROW);
    plan = arrange(header.heads, room < NARROW ? room : room - ASIDE, ranked());
    plan.of = new Map(plan.slots.map((head, slot) => [head, slot]));
    plan.labels = order.by ? captions(plan, all) : axes(plan);
    plan.brackets = order.by ? "" : brackets(plan, bracketed(header.shared));
    ratio = globalThis.devicePixelRatio || 1;
    drawSheet();
    [ui.canvas.width, ui.canvas.height] = [sheet.width, sheet.height];
    ui.canvas.style.width = `${plan.width}px`;
    ui.canvas.style.height = `${plan.height}px`;
    context.drawImage(sheet, 0, 0);
    outline();
  }

  let outlined = [];
  function outline() {
    for (const [x, y] of outlined) restore(x, y);
    outlined = [];
    const shown = hovered < 0 ? root.at : hovered;
    frame(chosen, primary, 2.5);
    if (shown !== chosen) frame(shown, text, 1.5);
    say(shown);
  }

  function restore(x, y) {
    const box = [x - 3, y - 3, plan.size + 6, plan.size + 6].map((edge) => Math.round(edge * ratio));
    const [left, top] = [Math.max(0, box[0]), Math.max(0, box[1])];
    const [wide, high] = [Math.min(sheet.width - left, box[2]), Math.min(sheet.height - top, box[3])];
    context.clearRect(left, top, wide, high);
    context.drawImage(sheet, left, top, wide, high, left, top, wide, high);
  }

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
  function say(head) {
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
    const pen = ui.preview.getContext("2d");
    pen.clearRect(0, 0, header.side, header.side);
    pen.drawImage(atlas.canvas, ...atlas.at(head), 0, 0, header.side, header.side);
  }

  function open(head) {
    root.at = head;
    outline();
    leading.open(head, () => pick(all[head]));
  }

  function orders() {
    return [{ name: "", label: header.texts.layers, down: false }, ...header.orders].map(({ name, label, down }) => {
      const button = makeButton(label, "", () => {
        order.reversed = name && order.by === name ? !order.reversed : false;
        order.by = name;
        renew(ui.orders, orders());
        fit();
      });
      button.setAttribute("aria-pressed", String(order.by === name));
      if (order.by === name && name) {
        button.append(make("span", "way", (name === "role" ? order.reversed : down !== order.reversed) ? " ↓" : " ↑"));
        button.title = header.texts.turn;
      }
      return button;
    });
  }

  const under = ({ offsetX, offsetY }) => {
    const slot = plan ? placeAt(plan, offsetX, offsetY) : -1;
    return slot < 0 ? -1 : plan.slots[slot];
  };
  const point = (head) => {
    if (head === hovered) return;
    hovered = head;
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
    if (event.key === "Enter" || event.key === " ") open(root.at);
    else {
      const slot = stepTo(plan, plan.of.get(root.at), event.key);
      if (slot === plan.of.get(root.at) && !/^(Arrow|Home|End)/.test(event.key)) return;
      hovered = -1;
      root.described = null;
      root.at = plan.slots[slot];
      outline();
    }
    event.preventDefault();
  };
  ui.open.onclick = () => open(root.at);
  ui.open.textContent = header.texts.open;
  ui.canvas.setAttribute("aria-label", header.texts.canvas);
  ui.orders.setAttribute("aria-label", header.texts.order);
  [ui.preview.width, ui.preview.height] = [header.side, header.side];
  ui.preview.setAttribute("aria-hidden", "true");
  renew(ui.orders, orders());
  root.described = null;
  root.fit = fit;
  fit();
  drawn(root, "overview_fold");
  saveable(root, {
    meta: header.meta,
    look: () => ({ paper: style.getPropertyValue("--st-background-color"), ink: text, font: style.fontFamily }),
    drawn: () => overviewDrawn(plan, atlas, { ink: text, side: header.side }),
    lines: () => overviewLines(header, all, value),
  });
  const leading = leads(root, link, chosen);
}

// All pictures side by side at their own size: the only place where codes become colours.
function paintAtlas(header, thumbs, colours) {
  const { side } = header;
  const count = thumbs.length / side ** 2;
  const across = Math.ceil(Math.sqrt(count));
  const atlas = make("canvas");
  [atlas.width, atlas.height] = [across * side, Math.ceil(count / across) * side];
  const context = atlas.getContext("2d");
  const image = context.createImageData(atlas.width, atlas.height);
  const [inks, pixels] = [new Uint32Array(codeColours(colours).buffer), new Uint32Array(image.data.buffer)];
  for (let head = 0, from = 0; head < count; head += 1) {
    const start = Math.floor(head / across) * side * atlas.width + (head % across) * side;
    for (let row = 0; row < side; row += 1) {
      for (let column = 0; column < side; column += 1, from += 1) {
        pixels[start + row * atlas.width + column] = inks[thumbs[from]];
      }
    }
  }
  context.putImageData(image, 0, 0);
  return { canvas: atlas, at: (head) => [(head % across) * side, Math.floor(head / across) * side, side, side] };
}

// The pictures where they stand; `side` is how many pixels of the screen one has by itself.
function drawPictures(pen, plan, atlas, side) {
  pen.imageSmoothingEnabled = plan.size < side; // smaller: the mean of pixels; larger: as they are
  plan.slots.forEach((head, slot) => {
    if (head >= 0) pen.drawImage(atlas.canvas, ...atlas.at(head), ...corner(plan, slot), plan.size, plan.size);
  });
}

// The overview as a file: its pictures as they stand, numbers and captions as letters.
function overviewDrawn(plan, atlas, { ink, side }) {
  const { width, height } = plan;
  const pictures = make("canvas");
  [pictures.width, pictures.height] = [FINER * width, FINER * height];
  const pen = pictures.getContext("2d");
  pen.scale(FINER, FINER);
  drawPictures(pen, plan, atlas, side / FINER);
  const figure = makeSvg("svg", { width, height, viewBox: `0 0 ${width} ${height}` });
  figure.append(makeSvg("image", { href: pictures.toDataURL(), width, height }));
  for (const { text, x, y, anchor } of plan.labels) {
    const letters = { "text-anchor": anchor === "center" ? "middle" : anchor, "font-size": LETTERS, fill: ink };
    figure.append(makeSvg("text", { x, y: y + LETTERS / 3, ...letters }, text));
  }
  if (plan.brackets) figure.append(makeSvg("path", { d: plan.brackets, fill: "none", stroke: ink }));
  return { figure, width, height };
}

// Every measure as a table.
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
export function leads(root, link, chosen) {
  const follow = () => {
    root.leaving = undefined;
    atRest(() => followLink(link));
  };
  if (link && root.leaving === chosen) follow();
  return {
    // Opens a head; one that is chosen already is nothing new to the server.
    open(head, choose) {
      if (!link) return choose();
      if (head === chosen) return follow();
      root.leaving = head;
      choose();
    },
  };
}

// Inside Streamlit: which head is chosen comes as JSON, all else by itself (blobs.js).
export default async function ({ data, parentElement, setTriggerValue }) {
  const root = parentElement.querySelector(".overview");
  root.turn = (root.turn ?? 0) + 1;
  const { turn } = root;
  const seen = unpackOverview(await arrival("overview", data.digest));
  if (root.turn !== turn) return; // a newer scene has come meanwhile
  showOverview(root, { ...seen, chosen: data.chosen, link: data.link }, (head) => setTriggerValue("picked", head));
}
