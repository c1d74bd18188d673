// The head view's controls: drawings, layers, direction, options, saving; the heads; what lets go of a word or hides it.
import { make, makeButton, renew } from "../page/elements.js";
import { oneTabStop } from "../page/tab_stop.js";
import { fill } from "../page/wording.js";
import { afterClick, isDrawable } from "../scene/focus.js";
import { CHOICES } from "../scene/schema.js";
import { saveView } from "./files.js";

/** @typedef {import("./head_view.js").HeadView} HeadView */

const SEGMENTS = 16; // layers that get a button each
const MAX_NAMED = 10; // heads; of more only the numbers are written, so that they stand in one line

function toggle(text, on, act, className = "") {
  const button = makeButton(text, className, act);
  button.setAttribute("aria-pressed", String(on));
  return button;
}

/** @param {HTMLElement[]} buttons */
function group(label, buttons, className = "") {
  const box = make("div", `group ${className}`);
  box.setAttribute("role", "group");
  box.setAttribute("aria-label", label);
  box.append(...buttons);
  return box;
}

/** @param {HTMLElement[]} buttons */
const segments = (label, buttons) => group(label, buttons, "segments");

/** @param {HeadView} view */
export function showBar(view) {
  const { texts, state } = view;
  const drawings = CHOICES.drawing.map((name) => {
    const button = toggle(texts[`draw_${name}`], state.drawing === name, () => view.set("drawing", name));
    if (!isDrawable(name, view.two)) Object.assign(button, { disabled: true, title: texts.no_arcs });
    return button;
  });
  /** @type {HTMLElement[]} */
  const parts = [segments(texts.drawing, drawings)];
  if (view.header.layers > 1) parts.push(layers(view));
  if ((state.drawing === "text" && !view.two) || state.drawing === "arcs") {
    const sides = ["query", "key"].map((side) =>
      toggle(texts[`side_${side}`], state.side === side, () => view.set("side", side)),
    );
    parts.push(segments(texts.direction, sides));
  }
  parts.push(options(view), saving(view));
  if (view.header.follows) parts.push(linkButton(view.texts));
  view.bar.setAttribute("aria-label", texts.bar);
  renew(view.bar, parts);
  oneTabStop(view.bar, ".segments button, summary, .alone"); // what a menu holds has stops of its own
}

function layers(view) {
  const { texts, header, state } = view;
  const name = (number) => fill(texts.layer, { layer: number + 1 });
  const every = Array.from({ length: header.layers }, (_, number) => number);
  if (header.layers <= SEGMENTS) {
    const buttons = every.map((number) => {
      const button = toggle(String(number + 1), state.layer === number, () => view.toLayer(number));
      button.setAttribute("aria-label", name(number));
      button.disabled = !view.open && !view.has(number); // a page on its own cannot ask for it
      return button;
    });
    const box = segments(texts.layers, buttons);
    box.prepend(make("span", "label", texts.layers));
    return box;
  }
  const select = make("select");
  select.setAttribute("aria-label", texts.layers);
  const option = (number) =>
    Object.assign(make("option", "", name(number)), {
      value: number,
      selected: number === state.layer,
      disabled: !view.open && !view.has(number),
    });
  select.append(...every.map(option));
  select.onchange = () => view.toLayer(Number(select.value));
  return select;
}

function menu(text, parts) {
  const box = make("details", "menu");
  const inside = make("div", "inside");
  inside.append(...parts);
  box.append(make("summary", "", text), inside);
  box.onkeydown = (event) => {
    if (event.key !== "Escape" || !box.open) return;
    event.stopPropagation();
    box.open = false;
    box.querySelector("summary").focus();
  };
  box.ontoggle = () => {
    if (!box.open) return;
    for (const other of box.parentElement.querySelectorAll("details[open]")) {
      if (other !== box) other.removeAttribute("open");
    }
  };
  return box;
}

function options(view) {
  const { texts, state } = view;
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
    value: view.threshold,
  });
  const readout = make("output", "", view.threshold.toFixed(3));
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
  const tick = (name, text) => {
    const box = Object.assign(make("input"), { type: "checkbox", checked: state[name] });
    box.onchange = () => view.set(name, box.checked);
    const label = make("label", "tick");
    label.append(box, text);
    return label;
  };
  const thresholdField = field(texts.threshold, threshold);
  thresholdField.append(readout);
  /** @type {HTMLElement[]} */
  const parts = [thresholdField, field(texts.max_lines, maxLines)];
  if (view.data.some(({ special }) => special.query.size + special.key.size))
    parts.push(tick("rescaled", texts.hide_special));
  if (view.header.groups?.some(Boolean)) parts.push(tick("words", texts.words));
  parts.push(make("p", "keys", texts.keys));
  return menu(texts.options, parts);
}

// The address has all that the view looks at.
function linkButton(texts) {
  const button = makeButton(texts.copy_link, "alone", async () => {
    try {
      await navigator.clipboard.writeText(location.href);
      button.textContent = texts.copied;
    } catch {
      window.prompt(texts.copy_link, location.href); // a page that may not write there shows what to copy
    }
  });
  button.setAttribute("aria-live", "polite");
  return button;
}

function saving(view) {
  const { texts } = view;
  const item = (text, kind) => {
    const button = makeButton(text, "", () => {
      button.closest("details").open = false;
      saveView(view, kind);
    });
    return button;
  };
  const parts = ["PNG", "SVG", "CSV"].map((name) => item(name, name.toLowerCase()));
  if (view.page) parts.push(item(texts.save_page, "html"));
  return menu(texts.save, parts);
}

// Chips are made once and then changed in place: a double-click needs the same button twice.
/** @param {HeadView} view */
export function showChips(view) {
  const { texts, header } = view;
  const identity = JSON.stringify([header.heads, header.kv, texts.head]);
  if (view.chips.dataset.identity !== identity) {
    view.chips.dataset.identity = identity;
    view.chips.setAttribute("aria-label", texts.chips);
    const heads = Array.from({ length: header.heads }, (_, head) => chip(view, head));
    view.chips.classList.toggle("brief", header.heads > MAX_NAMED);
    const all = toggle(
      texts.all_heads,
      false,
      () => {
        const complete = view.heads.length === view.every.length;
        view.switchHeads(new Set(complete ? view.header.on : view.every));
      },
      "chip every",
    );
    all.hidden = header.heads === 1;
    view.chips.replaceChildren(...framed(view, heads), all);
  }
  const { every, heads } = view;
  const chips = /** @type {HTMLButtonElement[]} */ ([...view.chips.querySelectorAll(".chip")]);
  chips.pop().setAttribute("aria-pressed", String(heads.length === every.length));
  chips.forEach((button, head) => {
    const { colour, dash } = view.look(head);
    button.style.setProperty("--head", colour);
    button.classList.toggle("dashed", dash.length > 0);
    button.setAttribute("aria-pressed", String(heads.includes(head)));
    button.disabled = !view.open && !every.includes(head);
    button.title = every.includes(head) ? texts.chip_help : texts.chip_load;
  });
  oneTabStop(view.chips);
}

// Query heads that share keys and values (GQA, MQA): their switches stand in one frame, named after what they share.
function framed(view, chips) {
  const { header, texts } = view;
  const size = header.heads / header.kv;
  if (!header.kv || size === 1) return chips;
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

function chip(view, head) {
  const name = fill(view.texts.head, { head: head + 1 });
  const button = toggle(view.header.heads > MAX_NAMED ? String(head + 1) : name, false, null, "chip");
  button.setAttribute("aria-label", name);
  button.dataset.head = String(head);
  const here = () => view.every.includes(head);
  button.onclick = (event) => {
    if (!here()) return view.open({ ...view.chosen, head });
    const on = afterClick(view.on, head, event.shiftKey ? "range" : "toggle", view.every, view.last);
    view.last = head;
    view.switchHeads(on);
  };
  button.ondblclick = () => here() && view.switchHeads(afterClick(view.on, head, "solo", view.every));
  return button;
}

// The one word that is chosen, and what hiding it is called; null where it cannot be hidden.
/** @param {HeadView} view */
function hideable(view) {
  const nth = view.at?.nth ?? 0;
  const pinned = view.pinned?.[nth];
  const token = pinned?.tokens.length === 1 ? view.data[nth].pieceOf(pinned.side, pinned.tokens[0]) : null;
  const name = token === null ? null : view.header.hides?.[nth]?.[token];
  return name && view.hide ? { nth, token, name } : null;
}

// Below the drawing: how to let go of what is pinned, and how to hide it.
/** @param {HeadView} view */
export function showFoot(view) {
  const parts = [];
  if (view.pinned?.some(Boolean)) {
    const release = () => {
      view.pinned = null;
      view.update();
    };
    parts.push(makeButton(view.texts.release, "", release));
  }
  const word = hideable(view);
  if (word) {
    // The button stays where another word of the same name is chosen: which one is read when it is pressed.
    const hide = () => {
      const { nth, token } = hideable(view);
      view.hide(nth, token);
    };
    parts.push(makeButton(word.name, "", hide));
  }
  const now = parts.map((part) => part.textContent).join("|");
  if (view.foot.dataset.now === now) return;
  view.foot.dataset.now = now;
  renew(view.foot, parts);
  oneTabStop(view.foot);
}
