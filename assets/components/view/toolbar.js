// The controls of the head view: drawing, layer, direction, options, saving, the heads, and buttons that unpin a word or
// hide it.
import { make, makeButton, makeLink, makeMenu, renew, required } from "../page/elements.js";
import { oneTabStop } from "../page/tab_stop.js";
import { fill } from "../page/wording.js";
import { lookOf } from "../pictures/colours.js";
import { afterClick, isDrawable } from "../scene/focus.js";
import { CHOICES } from "../scene/schema.js";
import { isTooLong } from "./files.js";

/** @typedef {import("./selection.js").Selection} Selection */
/** @typedef {import("./selection.js").Chosen} Chosen */
/** @typedef {import("./selection.js").ViewState} ViewState */
/** @typedef {import("./head_view.js").PageActions} PageActions */
/** @typedef {import("../page/saving.js").FileFormat | "html" | "model"} SavedKind */

/**
 * The actions of the view's controls.
 * @typedef {object} Actions
 * @property {<Name extends keyof ViewState>(name: Name, value: ViewState[Name]) => void} set a drawing, a direction, or
 *   what is left out or joined
 * @property {() => void} redraw
 * @property {(number: number) => void} toLayer
 * @property {(on: Set<number> | null) => void} switchHeads
 * @property {(chosen: Chosen) => void} open what is not here
 * @property {(kind: SavedKind) => void} save
 * @property {() => void} release
 * @property {() => void} rewrite
 */

const SEGMENTS = 16; // layers that get a button each
const MAX_NAMED = 10; // heads; of more only the numbers are written, so that they stand in one line

/**
 * @param {string} text
 * @param {boolean} on
 * @param {(() => void) | null} act
 * @param {string} className
 */
function toggle(text, on, act, className = "") {
  const button = makeButton(text, className, act);
  button.setAttribute("aria-pressed", String(on));
  return button;
}

/** @param {string} label @param {HTMLElement[]} buttons @param {string} className */
function group(label, buttons, className = "") {
  const box = make("div", `group ${className}`);
  box.setAttribute("role", "group");
  box.setAttribute("aria-label", label);
  box.append(...buttons);
  return box;
}

/** @param {string} label @param {HTMLElement[]} buttons */
const segments = (label, buttons) => group(label, buttons, "segments");

/**
 * @param {HTMLElement} bar
 * @param {Selection} selection
 * @param {PageActions} page
 * @param {Actions} actions
 */
export function showBar(bar, selection, page, actions) {
  const { header, original, panels, state, threshold, two } = selection;
  const { compact, groups, held, texts } = header;
  const offered = [page.open, page.page, page.model, hasSpecials(panels), groups?.some(Boolean), isTooLong(selection)];
  const layersHere = [header.layers, held, ...original[0].layers.keys()];
  const now = JSON.stringify([texts.lang, compact, state, threshold, two, layersHere, offered.map(Boolean)]);
  if (bar.dataset.now === now) return; // most keys in a sentence change none of it
  bar.dataset.now = now;
  const drawings = CHOICES.drawing.map((name) => {
    const button = toggle(texts[`draw_${name}`], state.drawing === name, () => actions.set("drawing", name));
    if (!isDrawable(name, two)) Object.assign(button, { disabled: true, title: texts.no_arcs });
    return button;
  });
  /** @type {HTMLElement[]} */
  const parts = [segments(texts.drawing, drawings)];
  if (header.layers > 1) parts.push(layers(selection, page, actions));
  if (held && !page.open) parts.push(make("span", "note", held));
  if ((state.drawing === "text" && !two) || state.drawing === "arcs") {
    const sides = /** @type {const} */ (["query", "key"]).map((side) =>
      toggle(texts[`side_${side}`], state.side === side, () => actions.set("side", side)),
    );
    parts.push(segments(texts.direction, sides));
  }
  if (!compact) parts.push(options(selection, actions), saving(selection, page, actions.save));
  bar.setAttribute("aria-label", texts.bar);
  renew(bar, parts);
  oneTabStop(bar, ".segments button, summary, .alone"); // what a menu holds has stops of its own
}

/** @param {Selection} selection @param {PageActions} page @param {Actions} actions */
function layers(selection, page, { toLayer }) {
  const { header, state } = selection;
  const { texts } = header;
  /** @param {number} number */
  const isFar = (number) => !page.open && !selection.has(number); // a page on its own cannot ask for it
  /** @param {number} number */
  const name = (number) => fill(texts.layer, { layer: number + 1 });
  const every = Array.from({ length: header.layers }, (_, number) => number);
  if (header.layers <= SEGMENTS) {
    const buttons = every.map((number) => {
      const button = toggle(String(number + 1), state.layer === number, () => toLayer(number));
      button.setAttribute("aria-label", name(number));
      button.disabled = isFar(number);
      return button;
    });
    const box = segments(texts.layers, buttons);
    box.prepend(make("span", "label", texts.layers));
    return box;
  }
  const select = make("select");
  select.setAttribute("aria-label", texts.layers);
  /** @param {number} number */
  const option = (number) =>
    Object.assign(make("option", "", name(number)), {
      value: String(number),
      selected: number === state.layer,
      disabled: isFar(number),
    });
  select.append(...every.map(option));
  select.onchange = () => toLayer(Number(select.value));
  return select;
}

/** @param {string} text @param {HTMLElement[]} parts */
function menu(text, parts) {
  const inside = make("div", "inside");
  inside.append(...parts);
  return makeMenu("menu", [text], inside);
}

/** @param {Selection["panels"]} panels */
const hasSpecials = (panels) => panels.some(({ special }) => special.query.size + special.key.size > 0);

/** @param {Selection} selection @param {Actions} actions */
function options({ header, panels, state, threshold: least }, { set, redraw }) {
  const { texts } = header;
  /** @param {string} text @param {HTMLInputElement} input */
  const field = (text, input) => {
    const label = make("label", "", text);
    label.append(input);
    return label;
  };
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
    redraw();
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
    redraw();
  };
  /** @param {"fitted" | "rescaled" | "words"} name @param {string} text */
  const tick = (name, text) => {
    const box = Object.assign(make("input"), { type: "checkbox", checked: state[name] });
    box.onchange = () => set(name, box.checked);
    const label = make("label", "tick");
    label.append(box, text);
    return label;
  };
  const thresholdField = field(texts.threshold, threshold);
  thresholdField.append(readout);
  /** @type {HTMLElement[]} */
  const parts = [thresholdField, field(texts.max_lines, maxLines), tick("fitted", texts.fitted)];
  if (hasSpecials(panels)) parts.push(tick("rescaled", texts.hide_special));
  if (header.groups?.some(Boolean)) parts.push(tick("words", texts.words));
  parts.push(make("p", "keys", texts.keys));
  return menu(texts.options, parts);
}

/** @param {Selection} selection @param {PageActions} page @param {Actions["save"]} save */
function saving(selection, { page, model }, save) {
  const { texts } = selection.header;
  /** @param {string} text @param {SavedKind} kind */
  const item = (text, kind) => {
    const button = makeButton(text, "", () => {
      required(button.closest("details"), "menu").open = false;
      save(kind);
    });
    return button;
  };
  const table = isTooLong(selection) ? texts.save_csv_word : texts.save_csv;
  const parts = [item(texts.save_png, "png"), item(texts.save_svg, "svg"), item(table, "csv")];
  if (page) parts.push(item(texts.save_page, "html"));
  if (model) parts.push(item(texts.save_model, "model"));
  return menu(texts.save, parts);
}

// Chips are made once and then changed in place: a double-click needs the same button twice.
/**
 * @param {HTMLElement} chips
 * @param {Selection} selection
 * @param {string[]} palette
 * @param {boolean} canOpen whether heads that are not here can be loaded
 * @param {Actions} actions
 */
export function showChips(chips, selection, palette, canOpen, actions) {
  const { every, header, heads } = selection;
  const { texts } = header;
  const roles = header.roles?.[selection.state.layer] ?? [];
  const identity = JSON.stringify([header.heads, header.kv, texts.head, roles]);
  if (chips.dataset.identity !== identity) {
    chips.dataset.identity = identity;
    chips.setAttribute("aria-label", texts.chips);
    const own = Array.from({ length: header.heads }, (_, head) => chip(selection, head, actions));
    chips.classList.toggle("brief", header.heads > MAX_NAMED);
    const all = toggle(
      texts.all_heads,
      false,
      () => {
        const complete = selection.heads.length === selection.every.length;
        actions.switchHeads(complete ? null : new Set(selection.every));
      },
      "chip every",
    );
    all.hidden = header.heads === 1;
    chips.replaceChildren(...framed(header, own), all);
  }
  const buttons = /** @type {HTMLButtonElement[]} */ ([...chips.querySelectorAll(".chip")]);
  buttons.pop()?.setAttribute("aria-pressed", String(heads.length === every.length));
  buttons.forEach((button, head) => {
    const { colour, dash } = lookOf(palette, head);
    button.style.setProperty("--head", colour);
    button.classList.toggle("dashed", dash.length > 0);
    button.setAttribute("aria-pressed", String(heads.includes(head)));
    button.disabled = !canOpen && !every.includes(head);
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
    name.setAttribute("aria-hidden", "true"); // the frame says it in full
    const label = fill(texts.shared_heads, { heads: `${first + 1}–${last}`, head: kv + 1 });
    const box = group(label, [name, ...chips.slice(first, last)], "shared");
    box.title = label;
    return box;
  });
}

/** @param {Selection} selection @param {number} head @param {Actions} actions */
function chip(selection, head, actions) {
  const { header } = selection;
  const name = fill(header.texts.head, { head: head + 1 });
  const [role = ""] = header.roles?.[selection.state.layer]?.[head] ?? [];
  const button = toggle(header.heads > MAX_NAMED ? String(head + 1) : name, false, null, "chip");
  if (role && header.heads <= MAX_NAMED) button.append(" ", make("small", "", role));
  button.setAttribute("aria-label", role ? `${name} ${role}` : name);
  button.dataset.head = String(head);
  const here = () => selection.every.includes(head);
  button.onclick = (event) => {
    if (!here()) return actions.open({ ...selection.chosen, head });
    const { every, last } = selection;
    const on = new Set(selection.heads);
    selection.last = head;
    actions.switchHeads(afterClick(on, head, event.shiftKey ? "range" : "toggle", every, last));
  };
  button.ondblclick = () =>
    here() && actions.switchHeads(afterClick(new Set(selection.heads), head, "solo", selection.every));
  return button;
}

/**
 * Below the drawing: how to unpin what is pinned, how to type over it, what would be without the edge that it looks
 * along, and how to see weights that are all small.
 * @param {HTMLElement} foot
 * @param {Record<string, string>} texts
 * @param {boolean} isPinned
 * @param {string | null | undefined} rewriting what typing over the one chosen word is called
 * @param {{ text: string, href: string } | null} trial a link to the sentence without that edge
 * @param {boolean | null} fitted whether small weights are brought out, null where none of them is too small to see
 * @param {Actions} actions
 */
export function showFoot(foot, texts, isPinned, rewriting, trial, fitted, { release, rewrite, set }) {
  /** @type {(HTMLButtonElement | HTMLAnchorElement)[]} */
  const parts = isPinned ? [makeButton(texts.release, "", release)] : [];
  if (rewriting) parts.push(Object.assign(makeButton("✎", "", rewrite), { title: rewriting, ariaLabel: rewriting }));
  if (trial) parts.push(Object.assign(makeLink(trial.text, trial.href), { title: trial.text }));
  if (fitted !== null) parts.push(toggle(texts.fitted, fitted, () => set("fitted", !fitted)));
  const now = parts
    .map((part) => part.textContent + part.title + part.ariaPressed + ("href" in part ? part.href : ""))
    .join("|");
  if (foot.dataset.now === now) return;
  foot.dataset.now = now;
  renew(foot, parts);
  oneTabStop(foot, "button, a");
}
