// The chooser of a page whose numbers come from the server: rows of layers and heads, and the sentence as words, each
// shaded by the weight that the chosen token gives it. A choice is marked at once and enters the history at once; the page
// follows when the server has answered.
// Each group is one stop of the Tab key; arrow keys choose in it.

import { elementIn, elementsIn, fadeWhereMore, make, makeButton, targetOf, treeOf } from "../page/elements.js";
import { oneOf } from "../page/radios.js";
import { exact, fill, isRtl } from "../page/wording.js";
import { inkOn, lookOf, shade, themeColours } from "../pictures/colours.js";
import { follow, heldFocus, move, ready, take, unreported } from "../scene/address.js";
import { positionOf } from "../scene/focus_link.js";
import { followHighlight, highlight, litOf } from "../scene/highlight.js";
import { fitHeight, keepInSight } from "../streamlit/adapter.js";

/** @typedef {import("../pictures/colours.js").Colour} Colour */
/** @typedef {keyof import("../scene/address.js").LinkFocus} Field */
/** @typedef {(number | null)[]} Shares of each word, null where it is hidden */

/**
 * Numbered layers or heads.
 * @typedef {object} ChooserRow
 * @property {Field} field
 * @property {string} title
 * @property {number} count
 * @property {number} chosen
 * @property {number} first what the first one is called
 * @property {boolean} heads in their colours
 */

/**
 * A text as its words.
 * @typedef {object} ChooserStrip
 * @property {Field} field
 * @property {string} title
 * @property {string} caption
 * @property {string[]} tokens
 * @property {string[]} names what a link calls these
 * @property {number[]} unknown those outside the vocabulary
 * @property {number} chosen
 * @property {Shares | null} weights null for a text that is not looked at
 * @property {string} query the token that gives the weights
 * @property {number} limit the weight at which the colours end
 * @property {Shares[] | null} every the weights that each token gives, where all that follows is in the browser
 */

/**
 * @typedef {object} ChooserPage
 * @property {{ hint: string, hint_hidden: string }} texts
 * @property {ChooserRow[]} rows
 * @property {ChooserStrip[]} strips
 * @property {boolean} sticky the words stay in sight on a phone
 * @property {import("../scene/address.js").ServerFocus} focus
 */

/** @type {Record<string, import("../scene/highlight.js").HighlightKind>} what is pointed at in the group of a field */
const KINDS = { layer: "layer", head: "head", token: "token", key_token: "key" };
const KEY_PAUSE = 250; // milliseconds after an arrow key: who walks on asks the server once

/**
 * The choices that have not been sent yet: a position for each field.
 * @typedef {{ waiting: Map<Field, number>, timer: number, data: ChooserPage,
 *   send: ((chosen: Record<string, number>) => void) | null }} ChooserState
 */
/** @type {WeakMap<Element, ChooserState>} */
const choices = new WeakMap();

// Numbered layers or heads, the heads in their colours.
/** @param {ChooserRow} row @param {string[]} palette @param {ChooserState} choice */
function rowGroup(row, palette, choice) {
  const { title, count, first, heads } = row;
  const buttons = Array.from({ length: count }, (_, at) => {
    const button = makeButton(String(at + first), "number", null);
    if (!heads) return button;
    const { colour, dash } = lookOf(palette, at);
    button.classList.add("head");
    button.classList.toggle("dashed", dash.length > 0);
    button.style.setProperty("--head", colour);
    return button;
  });
  const name = Object.assign(make("span", "name", title), { ariaHidden: "true" });
  return make("div", "row", name, radios(row, buttons, choice));
}

// A text as its words.
/** @param {ChooserStrip} strip @param {Colour[]} colours @param {ChooserState} choice */
function stripGroup(strip, colours, choice) {
  const { caption, tokens } = strip;
  const words = tokens.map((_, at) => wordButton(strip, at, colours, choice.data.texts));
  const group = radios(strip, words, choice);
  group.classList.add("strip");
  fadeWhereMore(group);
  group.dir = isRtl(tokens) ? "rtl" : "ltr";
  if (!caption) return [group];
  return [make("p", "caption", caption), group];
}

/** @param {ChooserStrip} strip @param {number} at @param {Colour[]} colours @param {ChooserPage["texts"]} texts */
function wordButton({ tokens, unknown, weights, query, limit }, at, colours, { hint, hint_hidden }) {
  const button = makeButton("", "word", null);
  const word = make("bdi", "", tokens[at]);
  const number = make("span");
  const weight = weights?.[at] ?? null;
  const names = { query, key: tokens[at] };
  button.classList.toggle("unknown", unknown.includes(at));
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

// The options of a group, one of which is chosen.
/** @param {ChooserRow | ChooserStrip} of @param {HTMLElement[]} buttons @param {ChooserState} choice */
function radios({ field, title, chosen }, buttons, choice) {
  const group = make("div", "radios");
  group.dataset.field = field;
  oneOf(group, buttons, { title, chosen, choose: (at, byKey) => chooseIn(choice, field, at, byKey ? KEY_PAUSE : 0) });
  return group;
}

/** @param {HTMLElement} group */
const optionsOf = (group) => elementsIn(group, "[role=radio]");

/** @param {HTMLElement} root */
const groupsIn = (root) => elementsIn(root, "[role=radiogroup]");
/** @param {HTMLElement} root */
const stripsIn = (root) => elementsIn(root, ".strip");
/** @param {Event} event */
const optionAt = (event) => /** @type {HTMLElement | null} */ (targetOf(event)?.closest("[role=radio]") ?? null);
/** @param {HTMLElement} option */
const groupOf = (option) => /** @type {HTMLElement} */ (option.closest("[role=radiogroup]"));
/** @param {HTMLElement} element a group, or an option of one */
const fieldOf = (element) => /** @type {Field} */ (groupOf(element).dataset.field);

// The token, or the number of the layer or head, that an option stands for.
/** @param {HTMLElement} option */
const standsFor = (option) => option.querySelector("bdi")?.textContent ?? Number(option.textContent);

// Lights an option that is pointed at in every picture of the page, and a thing pointed at there among the options.
/** @param {HTMLElement} root */
function linkPointing(root) {
  /** @param {HTMLElement | null} option */
  const point = (option) => {
    const kind = option && KINDS[fieldOf(option)];
    highlight(root, kind ? { [kind]: standsFor(option) } : null);
    lightOptions(root);
  };
  root.addEventListener("pointerover", (event) => point(optionAt(event)));
  root.addEventListener("pointerleave", () => point(null));
  followHighlight(root, () => lightOptions(root));
}

/** @param {HTMLElement} root */
function lightOptions(root) {
  for (const group of groupsIn(root)) {
    const lit = litOf(KINDS[fieldOf(group)] ?? null);
    for (const option of optionsOf(group)) option.classList.toggle("lit", standsFor(option) === lit);
  }
}

/** @param {ChooserState} choice @param {Field} own @param {number} at @param {number} pause */
function chooseIn(choice, own, at, pause) {
  const strip = choice.data.strips.find(({ field, every }) => every && field === own);
  if (strip) return move({ [own]: strip.names[at] });
  choice.waiting.set(own, at);
  clearTimeout(choice.timer);
  choice.timer = window.setTimeout(() => sendChoices(choice), pause);
}

/** @param {ChooserState} choice */
function sendChoices(choice) {
  clearTimeout(choice.timer);
  const chosen = [...choice.waiting];
  choice.waiting.clear();
  if (!chosen.length) return;
  move(Object.fromEntries(chosen.map(([field, at]) => [field, inLink(choice.data, field, at)])));
  choice.send?.(Object.fromEntries(chosen));
}

// A choice as the focus has it: words by their names, layers and heads by the numbers that they show.
/** @param {ChooserPage} page @param {Field} field @param {number} at */
function inLink({ rows, strips }, field, at) {
  const strip = strips.find((one) => one.field === field);
  return strip ? strip.names[at] : String(at + (rows.find((one) => one.field === field)?.first ?? 0));
}

// Scroll a long sentence, and nothing but the sentence, to the chosen token.
/** @param {HTMLElement} strip */
function reveal(strip) {
  const chosen = elementsIn(strip, "[aria-checked=true]").at(0);
  if (!chosen) return;
  const top = chosen.offsetTop - strip.offsetTop;
  const beyond = top < strip.scrollTop || top + chosen.offsetHeight > strip.scrollTop + strip.clientHeight;
  if (beyond) strip.scrollTop = top;
}

/** @param {import("../streamlit/adapter.js").Mounted<ChooserPage>} mounted */
export default function ({ data, parentElement, setTriggerValue }) {
  const root = elementIn(parentElement, ".chooser");
  const choice = choices.get(root) ?? begin(root, data);
  choice.send = (chosen) => setTriggerValue("picked", { ...chosen, ...unreported() });
  ready.then(() => take(data.focus));
  choice.data = data;
  show(root, choice);
  follow(root, () => show(root, choice));
}

/** @param {HTMLElement} root @param {ChooserPage} data */
function begin(root, data) {
  /** @type {ChooserState} */
  const choice = { waiting: new Map(), timer: 0, data, send: null };
  choices.set(root, choice);
  // Leaving the row confirms the choice.
  root.addEventListener("focusout", ({ relatedTarget }) => {
    if (!root.contains(/** @type {Node | null} */ (relatedTarget))) sendChoices(choice);
  });
  linkPointing(root);
  if (data.sticky) new ResizeObserver(() => keepInSight(root, stripsIn(root)[0]?.offsetTop ?? 0)).observe(root);
  return choice;
}

// The choice in a group: one that has not been sent yet, else that of the focus, else the server's.
/** @param {ChooserRow | ChooserStrip} group @param {ChooserState} choice */
function chosenIn(group, { waiting }) {
  const held = heldFocus()[group.field] ?? "";
  const at = "names" in group ? positionOf(group.names, held) : Math.min(Number(held) - group.first, group.count - 1);
  return waiting.get(group.field) ?? (held && at >= 0 ? at : group.chosen);
}

// A strip with its choice, and the weights that this one gives where they are here.
/** @param {ChooserStrip} strip @param {ChooserState} choice @returns {ChooserStrip} */
function asChosen(strip, choice) {
  const chosen = chosenIn(strip, choice);
  const { every, tokens } = strip;
  return every ? { ...strip, chosen, query: tokens[chosen], weights: every[chosen] } : { ...strip, chosen };
}

/** @param {HTMLElement} root @param {ChooserState} choice */
function show(root, choice) {
  const { data } = choice;
  const colours = themeColours(root);
  const palette = getComputedStyle(root).getPropertyValue("--st-chart-categorical-colors").split(",");
  const groups = data.rows.map((row) => rowGroup({ ...row, chosen: chosenIn(row, choice) }, palette, choice));
  const strips = data.strips.flatMap((strip) => stripGroup(asChosen(strip, choice), colours, choice));
  const { activeElement } = treeOf(root);
  const active = groupsIn(root).find((group) => group.contains(activeElement));
  const scrolled = stripsIn(root).map((strip) => strip.scrollTop);
  root.replaceChildren(...(groups.length ? [make("div", "rows", ...groups)] : []), ...strips);
  lightOptions(root);
  fitHeight(root);
  stripsIn(root).forEach((strip, nth) => {
    strip.scrollTop = scrolled[nth] ?? 0;
    reveal(strip);
  });
  const renewed = active && groupsIn(root).find((group) => fieldOf(group) === fieldOf(active));
  if (renewed)
    optionsOf(renewed)
      .find(({ tabIndex }) => tabIndex === 0)
      ?.focus({ preventScroll: true });
}
