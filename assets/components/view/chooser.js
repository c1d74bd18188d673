// The chooser of a page whose numbers come from the server: rows of layers and heads, and the sentence as words, each
// shaded by the weight that the chosen token gives it. A choice is marked at once and enters the history at once; the page
// follows when the server has answered.
// Each group is one stop of the Tab key; arrow keys choose in it.
// Data: { texts: { hint, hint_hidden }, rows: [{ field, title, count, chosen, first, heads }], strips: [{ field, title,
// caption, tokens, names: what a link calls these, weights (null where hidden; null for a text that is not looked at),
// query, limit, chosen, every: the weights that each token gives, where all that follows is in the browser }],
// sticky: whether the words stay in sight on a phone, focus: that of the server }.

import { fadeWhereMore, make, makeButton } from "../page/elements.js";
import { exact, fill, isRtl } from "../page/wording.js";
import { inkOn, lookOf, shade, themeColours } from "../pictures/colours.js";
import { follow, heldFocus, move, ready, take, unreported } from "../scene/address.js";
import { positionOf } from "../scene/focus_link.js";
import { followHighlight, highlight, litOf } from "../scene/highlight.js";
import { fitHeight, keepInSight } from "../streamlit/adapter.js";

/** @type {Record<string, import("../scene/highlight.js").HighlightKind>} what is pointed at in the group of a field */
const KINDS = { layer: "layer", head: "head", token: "token", key_token: "key" };
const KEY_PAUSE = 250; // milliseconds after an arrow key: who walks on asks the server once

/**
 * What was chosen and not yet sent: a position for each field.
 * @typedef {{ waiting: Map<string, number>, timer: number, data: any, send: ((chosen: object) => void) | null }} ChooserState
 */
/** @type {WeakMap<Element, ChooserState>} */
const choices = new WeakMap();

// Numbered layers or heads, the heads in their colours.
function rowGroup({ field, title, count, chosen, first, heads }, palette) {
  const buttons = Array.from({ length: count }, (_, at) => {
    const button = makeButton(String(at + first), "number", null);
    if (!heads) return button;
    const { colour, dash } = lookOf(palette, at);
    button.classList.add("head");
    button.classList.toggle("dashed", dash.length > 0);
    button.style.setProperty("--head", colour);
    return button;
  });
  const name = make("span", "name", title);
  name.setAttribute("aria-hidden", "true");
  const row = make("div", "row");
  row.append(name, radios(field, title, buttons, chosen));
  return row;
}

// A text as its words.
function stripGroup(strip, colours, texts) {
  const { field, title, caption, tokens, chosen } = strip;
  const words = tokens.map((_, at) => wordButton(strip, at, colours, texts));
  const group = radios(field, title, words, chosen);
  group.classList.add("strip");
  fadeWhereMore(group);
  group.dir = isRtl(tokens) ? "rtl" : "ltr";
  if (!caption) return [group];
  return [make("p", "caption", caption), group];
}

function wordButton({ tokens, weights, query, limit }, at, colours, { hint, hint_hidden }) {
  const button = makeButton("", "word", null);
  const word = make("bdi", "", tokens[at]);
  const number = make("span");
  const weight = weights?.[at];
  const names = { query, key: tokens[at] };
  if (!weights) button.classList.add("unshaded");
  else if (weight === null) {
    button.classList.add("masked");
    number.textContent = "×";
    button.title = fill(hint_hidden, names);
  } else {
    const colour = shade(colours, weight / limit);
    word.style.backgroundColor = `rgb(${colour})`;
    word.style.color = inkOn(colour);
    number.textContent = weight < 0.005 ? "·" : weight.toFixed(2);
    button.title = fill(hint, { ...names, weight: exact(weight) });
  }
  button.append(word, number);
  return button;
}

/** @param {HTMLElement[]} buttons */
function radios(field, title, buttons, chosen) {
  const group = make("div", "radios");
  group.setAttribute("role", "radiogroup");
  group.setAttribute("aria-label", title);
  group.dataset.field = field;
  buttons.forEach((button, at) => {
    button.setAttribute("role", "radio");
    button.dataset.at = String(at);
  });
  group.append(...buttons);
  check(group, chosen);
  return group;
}

const optionsOf = (group) => /** @type {HTMLElement[]} */ ([...group.querySelectorAll("[role=radio]")]);

// The chosen one is marked, and the only one where the Tab key stops.
function check(group, chosen) {
  optionsOf(group).forEach((button, at) => {
    button.setAttribute("aria-checked", String(at === chosen));
    button.tabIndex = at === chosen ? 0 : -1;
  });
}

// What a word or a number stands for.
const standsFor = (option) => option.querySelector("bdi")?.textContent ?? Number(option.textContent);

// What is pointed at here is lit in every picture of the page, and what is pointed at there is lit here.
function linkPointing(root) {
  const point = (option) => {
    const kind = option && KINDS[option.closest("[role=radiogroup]").dataset.field];
    highlight(root, kind ? { [kind]: standsFor(option) } : null);
    lightOptions(root);
  };
  root.addEventListener("pointerover", ({ target }) => point(target.closest("[role=radio]")));
  root.addEventListener("pointerleave", () => point(null));
  followHighlight(root, () => lightOptions(root));
}

function lightOptions(root) {
  for (const group of root.querySelectorAll("[role=radiogroup]")) {
    const lit = litOf(KINDS[group.dataset.field] ?? null);
    for (const option of optionsOf(group)) option.classList.toggle("lit", standsFor(option) === lit);
  }
}

// Where an arrow key leads; null for every other key.
function placeAfter(group, key) {
  const options = optionsOf(group);
  const against = group.dir === "rtl" ? -1 : 1;
  const steps = { ArrowRight: against, ArrowLeft: -against, ArrowDown: 1, ArrowUp: -1 };
  if (key === "Home") return 0;
  if (key === "End") return options.length - 1;
  if (!(key in steps)) return null;
  const now = options.findIndex((option) => option.tabIndex === 0);
  return Math.min(Math.max(now + steps[key], 0), options.length - 1);
}

function followChoices(root, choice) {
  /** @param {any} target */
  const groupOf = (target) => /** @type {HTMLElement | null} */ (target.closest("[role=radiogroup]"));
  const choose = (group, at, pause) => {
    const strip = choice.data.strips.find(({ field, every }) => every && field === group.dataset.field);
    if (strip) return move({ [strip.field]: strip.names[at] });
    check(group, at);
    choice.waiting.set(group.dataset.field, at);
    clearTimeout(choice.timer);
    choice.timer = window.setTimeout(() => sendChoices(choice), pause);
  };
  root.addEventListener("click", ({ target }) => {
    const button = target.closest("[role=radio]");
    if (button) choose(groupOf(button), Number(button.dataset.at), 0);
  });
  root.addEventListener("keydown", (event) => {
    const group = groupOf(event.target);
    const at = group && !event.ctrlKey && !event.metaKey && !event.altKey ? placeAfter(group, event.key) : null;
    if (at === null) return;
    event.preventDefault();
    event.stopPropagation(); // Streamlit has keys of its own
    optionsOf(group)[at].focus();
    choose(group, at, KEY_PAUSE);
  });
  // Who leaves has chosen.
  root.addEventListener("focusout", ({ relatedTarget }) => {
    if (!root.contains(relatedTarget)) sendChoices(choice);
  });
}

/** @param {ChooserState} choice */
function sendChoices(choice) {
  clearTimeout(choice.timer);
  const chosen = Object.fromEntries(choice.waiting);
  choice.waiting.clear();
  if (!Object.keys(chosen).length) return;
  const linked = Object.entries(chosen).map(([field, at]) => [field, inLink(choice.data, field, at)]);
  move(Object.fromEntries(linked));
  choice.send(chosen);
}

// A choice as the focus has it: words by their names, layers and heads by the numbers that they show.
function inLink({ rows, strips }, field, at) {
  const strip = strips.find((one) => one.field === field);
  return strip ? strip.names[at] : String(at + rows.find((one) => one.field === field).first);
}

// Scroll a long sentence, and nothing but the sentence, to the chosen token.
function reveal(strip) {
  const chosen = strip.querySelector("[aria-checked=true]");
  if (!chosen) return;
  const top = chosen.offsetTop - strip.offsetTop;
  const beyond = top < strip.scrollTop || top + chosen.offsetHeight > strip.scrollTop + strip.clientHeight;
  if (beyond) strip.scrollTop = top;
}

export default function ({ data, parentElement, setTriggerValue }) {
  const root = parentElement.querySelector(".chooser");
  if (!choices.has(root)) {
    choices.set(root, { waiting: new Map(), timer: 0, data, send: null });
    followChoices(root, choices.get(root));
    linkPointing(root);
    if (data.sticky)
      new ResizeObserver(() => keepInSight(root, root.querySelector(".strip")?.offsetTop ?? 0)).observe(root);
  }
  const choice = choices.get(root);
  choice.send = (chosen) => setTriggerValue("picked", { ...chosen, ...unreported() });
  ready.then(() => take(data.focus));
  choice.data = data;
  show(root, choice);
  follow(root, () => show(root, choice));
}

// What is chosen in a group: what has not been sent yet, else where the focus is, else what the server says.
/** @param {ChooserState} choice */
function asChosen(group, choice) {
  const held = heldFocus()[group.field] ?? "";
  const at = group.names ? positionOf(group.names, held) : Math.min(Number(held) - group.first, group.count - 1);
  const chosen = choice.waiting.get(group.field) ?? (held && at >= 0 ? at : group.chosen);
  return group.every
    ? { ...group, chosen, query: group.tokens[chosen], weights: group.every[chosen] }
    : { ...group, chosen };
}

/** @param {ChooserState} choice */
function show(root, choice) {
  const { data } = choice;
  const colours = themeColours(root);
  const palette = getComputedStyle(root).getPropertyValue("--st-chart-categorical-colors").split(",");
  const rows = make("div", "rows");
  rows.append(...data.rows.map((row) => rowGroup(asChosen(row, choice), palette)));
  const strips = data.strips.flatMap((strip) => stripGroup(asChosen(strip, choice), colours, data.texts));
  const page = /** @type {ShadowRoot} */ (root.getRootNode());
  const active = /** @type {HTMLElement | null} */ (page.activeElement);
  const field = root.contains(active)
    ? /** @type {HTMLElement} */ (active.closest("[role=radiogroup]"))?.dataset.field
    : null;
  const scrolled = [...root.querySelectorAll(".strip")].map((strip) => strip.scrollTop);
  root.replaceChildren(...(data.rows.length ? [rows] : []), ...strips);
  lightOptions(root);
  fitHeight(root);
  root.querySelectorAll(".strip").forEach((strip, nth) => {
    strip.scrollTop = scrolled[nth] ?? 0;
    reveal(strip);
  });
  if (field) root.querySelector(`[data-field="${field}"] [tabindex="0"]`)?.focus({ preventScroll: true });
}
