// The controls of the head view: drawing, layer, direction, options, saving, the heads, and buttons that unpin a word or
// hide it.
import { make, makeButton, makeLink, makeMenu, makeToggle, named, renew, required } from "../page/elements.js";
import { oneTabStop } from "../page/tab_stop.js";
import { fill } from "../page/wording.js";
import { lookOf } from "../pictures/colours.js";
import { afterClick, isDrawable } from "../scene/focus.js";
import { CHOICES } from "../scene/schema.js";
import { withoutEdge } from "../scene/what_if.js";
import { isTooLong } from "./files.js";

/** @typedef {import("./head_view.js").HeadView} HeadView */
/** @typedef {import("../page/saving.js").FileFormat | "html" | "model"} SavedKind */

const FAINT = 0.1; // where no weight in sight reaches this, bringing small ones out is offered
const SEGMENTS = 16; // layers that get a button each
const MAX_NAMED = 10; // heads; of more only the numbers are written, so that they stand in one line

/** @param {"segments" | "shared"} kind @param {string} label @param {HTMLElement[]} buttons */
const group = (kind, label, ...buttons) =>
  Object.assign(make("div", `group ${kind}`, ...buttons), { role: "group", ariaLabel: label });

/** @param {HeadView} view */
export function showBar(view) {
  const { bar, page, selection } = view;
  const { header, original, panels, state, threshold, two } = selection;
  const { compact, groups, held, texts } = header;
  const offered = [page.open, page.page, page.model, hasSpecials(panels), groups?.some(Boolean), isTooLong(selection)];
  const layersHere = [header.layers, held, ...original[0].layers.keys()];
  const now = JSON.stringify([texts.lang, compact, state, threshold, two, layersHere, offered.map(Boolean)]);
  if (bar.dataset.now === now) return; // most keys in a sentence change none of it
  bar.dataset.now = now;
  const drawings = CHOICES.drawing.map((name) => {
    const button = makeToggle(texts[`draw_${name}`], "", state.drawing === name, () => view.set("drawing", name));
    if (!isDrawable(name, two)) Object.assign(button, { disabled: true, title: texts.no_arcs });
    return button;
  });
  /** @type {HTMLElement[]} */
  const parts = [group("segments", texts.drawing, ...drawings)];
  if (header.layers > 1) parts.push(layers(view));
  if (held && !page.open) parts.push(make("span", "note", held));
  if ((state.drawing === "text" && !two) || state.drawing === "arcs") {
    const sides = /** @type {const} */ (["query", "key"]).map((side) =>
      makeToggle(texts[`side_${side}`], "", state.side === side, () => view.set("side", side)),
    );
    parts.push(group("segments", texts.direction, ...sides));
  }
  if (!compact) parts.push(options(view), saving(view));
  bar.ariaLabel = texts.bar;
  renew(bar, parts);
  oneTabStop(bar, ".segments button, summary, .alone"); // what a menu holds has stops of its own
}

/** @param {HeadView} view */
function layers(view) {
  const { page, selection } = view;
  const { header, state } = selection;
  const { texts } = header;
  /** @param {number} number */
  const isFar = (number) => !page.open && !selection.has(number); // a page on its own cannot ask for it
  /** @param {number} number */
  const name = (number) => fill(texts.layer, { layer: number + 1 });
  const every = Array.from({ length: header.layers }, (_, number) => number);
  if (header.layers <= SEGMENTS) {
    const buttons = every.map((number) => {
      const button = makeToggle(String(number + 1), "", state.layer === number, () => view.toLayer(number));
      return Object.assign(button, { ariaLabel: name(number), disabled: isFar(number) });
    });
    return group("segments", texts.layers, make("span", "label", texts.layers), ...buttons);
  }
  /** @param {number} number */
  const option = (number) =>
    Object.assign(make("option", "", name(number)), {
      value: String(number),
      selected: number === state.layer,
      disabled: isFar(number),
    });
  const select = Object.assign(make("select", "", ...every.map(option)), { ariaLabel: texts.layers });
  select.onchange = () => view.toLayer(Number(select.value));
  return select;
}

/** @param {string} text @param {(HTMLElement | false | null | undefined)[]} parts */
const menu = (text, ...parts) => makeMenu("menu", [text], make("div", "inside", ...parts));

/** @param {import("../numbers/panel.js").Panel[]} panels */
const hasSpecials = (panels) => panels.some(({ special }) => special.query.size + special.key.size > 0);

/** @param {HeadView} view */
function options(view) {
  const { header, panels, state, threshold: least } = view.selection;
  const { texts } = header;
  const threshold = Object.assign(make("input"), {
    type: "range",
    min: 0,
    max: 0.5,
    step: 0.01,
    value: least,
  });
  const readout = make("output", "", least.toFixed(3));
  threshold.oninput = () => {
    readout.textContent = Number(threshold.value).toFixed(3);
    state.threshold = Number(threshold.value);
    view.redraw();
  };
  const maxLines = Object.assign(make("input"), {
    type: "number",
    min: 0,
    max: 99,
    step: 1,
    value: state.maxLines || "",
    placeholder: texts.all,
  });
  maxLines.oninput = () => {
    state.maxLines = Math.max(0, Math.floor(Number(maxLines.value) || 0));
    view.redraw();
  };
  /** @param {"fitted" | "rescaled" | "words"} name @param {string} text */
  const tick = (name, text) => {
    const box = Object.assign(make("input"), { type: "checkbox", checked: state[name] });
    box.onchange = () => view.set(name, box.checked);
    return make("label", "tick", box, text);
  };
  return menu(
    texts.options,
    make("label", "", texts.threshold, threshold, readout),
    make("label", "", texts.max_lines, maxLines),
    tick("fitted", texts.fitted),
    hasSpecials(panels) && tick("rescaled", texts.hide_special),
    header.groups?.some(Boolean) && tick("words", texts.words),
    make("p", "keys", texts.keys),
  );
}

/** @param {HeadView} view */
function saving(view) {
  const { page, selection } = view;
  const { texts } = selection.header;
  /** @param {string} text @param {SavedKind} kind */
  const item = (text, kind) => {
    const button = makeButton(text, "", () => {
      required(button.closest("details"), "menu").open = false;
      view.save(kind);
    });
    return button;
  };
  return menu(
    texts.save,
    item(texts.save_png, "png"),
    item(texts.save_svg, "svg"),
    item(isTooLong(selection) ? texts.save_csv_word : texts.save_csv, "csv"),
    page.page && item(texts.save_page, "html"),
    page.model && item(texts.save_model, "model"),
  );
}

// Chips are made once and then changed in place: a double-click needs the same button twice.
/** @param {HeadView} view */
export function showChips(view) {
  const { chips, page, selection, theme } = view;
  const { every, header, heads } = selection;
  const { texts } = header;
  const roles = header.roles?.[selection.state.layer] ?? [];
  const identity = JSON.stringify([header.heads, header.kv, texts.head, roles]);
  if (chips.dataset.identity !== identity) {
    chips.dataset.identity = identity;
    chips.ariaLabel = texts.chips;
    const own = Array.from({ length: header.heads }, (_, head) => chip(view, head));
    chips.classList.toggle("brief", header.heads > MAX_NAMED);
    const all = makeToggle(texts.all_heads, "chip every", false, () => {
      const complete = selection.heads.length === selection.every.length;
      view.switchHeads(complete ? null : new Set(selection.every));
    });
    all.hidden = header.heads === 1;
    chips.replaceChildren(...framed(header, own), all);
  }
  const buttons = /** @type {HTMLButtonElement[]} */ ([...chips.querySelectorAll(".chip")]);
  required(buttons.pop(), "switch of all heads").ariaPressed = String(heads.length === every.length);
  buttons.forEach((button, head) => {
    const { colour, dash } = lookOf(theme.palette, head);
    button.style.setProperty("--head", colour);
    button.classList.toggle("dashed", dash.length > 0);
    button.ariaPressed = String(heads.includes(head));
    button.disabled = !page.open && !every.includes(head); // which a page on its own cannot load
    const [, role = ""] = roles[head] ?? [];
    button.title = [role, every.includes(head) ? texts.chip_help : texts.chip_load].filter(Boolean).join("\n");
  });
  oneTabStop(chips);
}

// Query heads that share keys and values (GQA, MQA): their switches stand in one frame, named after what they share.
/** @param {import("./head_view.js").Header} header @param {HTMLElement[]} chips */
function framed(header, chips) {
  const { texts } = header;
  if (!header.kv || header.kv === header.heads) return chips;
  const size = header.heads / header.kv;
  return Array.from({ length: header.kv }, (_, kv) => {
    const [first, last] = [kv * size, (kv + 1) * size];
    const name = make("span", "label", fill(texts.shared, { head: kv + 1 }));
    name.ariaHidden = "true"; // the frame says it in full
    const label = fill(texts.shared_heads, { heads: `${first + 1}–${last}`, head: kv + 1 });
    return Object.assign(group("shared", label, name, ...chips.slice(first, last)), { title: label });
  });
}

/** @param {HeadView} view @param {number} head */
function chip(view, head) {
  const { selection } = view;
  const { header } = selection;
  const name = fill(header.texts.head, { head: head + 1 });
  const [role = ""] = header.roles?.[selection.state.layer]?.[head] ?? [];
  const button = makeToggle(header.heads > MAX_NAMED ? String(head + 1) : name, "chip", false, null);
  if (role && header.heads <= MAX_NAMED) button.append(" ", make("small", "", role));
  button.ariaLabel = role ? `${name} ${role}` : name;
  button.dataset.head = String(head);
  const here = () => selection.every.includes(head);
  button.onclick = (event) => {
    if (!here()) return view.page.open?.({ ...selection.chosen, head });
    const { every, last } = selection;
    const on = new Set(selection.heads);
    selection.last = head;
    view.switchHeads(afterClick(on, head, event.shiftKey ? "range" : "toggle", every, last));
  };
  button.ondblclick = () =>
    here() && view.switchHeads(afterClick(new Set(selection.heads), head, "solo", selection.every));
  return button;
}

/**
 * Below the drawing: how to unpin what is pinned, how to type over it, what would be without the edge that it looks
 * along, and how to see weights that are all small.
 * @param {HeadView} view
 */
export function showFoot(view) {
  const { drawings, edge, foot, selection } = view;
  const { header, nth, pinned, single, state } = selection;
  const { block, compact, texts } = header;
  /** @type {(HTMLButtonElement | HTMLAnchorElement)[]} */
  const parts = [];
  if (!compact && pinned?.some(Boolean)) parts.push(makeButton(texts.release, "", () => view.release()));
  const rewriting = single && view.rewriting(nth, single.token);
  if (rewriting) {
    const button = makeButton("✎", "", () => view.rewriteChosen());
    parts.push(named(button, rewriting));
  }
  if (edge && block) {
    const trial = makeLink(fill(block, edge.words), withoutEdge(edge));
    parts.push(Object.assign(trial, { title: trial.textContent }));
  }
  const areSmall = drawings.every(({ drawing }) => drawing.strongest > 0 && drawing.strongest < FAINT);
  if (state.fitted || areSmall) {
    parts.push(makeToggle(texts.fitted, "", state.fitted, () => view.set("fitted", !state.fitted)));
  }
  const now = parts
    .map((part) => part.textContent + part.title + part.ariaPressed + ("href" in part ? part.href : ""))
    .join("|");
  if (foot.dataset.now === now) return;
  foot.dataset.now = now;
  renew(foot, parts);
  oneTabStop(foot, "button, a");
}
