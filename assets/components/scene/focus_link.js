// The state of a head view as a focus: in a link tokens have names, and layers and heads count from 1. The names come
// from the server, with the tokens (mha_core/focus/token_names.py), fields and values from the schema.

import { isDrawable } from "./focus.js";
import { CHOICES, DEFAULTS, FIELDS, MAX_NUMBER, OF_HEADS, WITH_HEADS } from "./schema.js";

/** @typedef {Record<keyof typeof DEFAULTS, string>} LinkFocus "" where nothing is chosen */
/** @typedef {import("../numbers/panel.js").Side} Side */
/** @typedef {import("../numbers/payload.js").PayloadPanel} PayloadPanel */

/**
 * The place that a view looks at and how it draws it. Layers, heads and tokens count from 0; tokens are pieces.
 * @typedef {object} ViewPlace
 * @property {number} layer
 * @property {number} head the chosen one
 * @property {number[] | null} on the heads that were switched on
 * @property {number} nth of the sentence
 * @property {Side} side of the tokens
 * @property {number[]} tokens the last one is where the keyboard is
 * @property {string} drawing
 * @property {number | null} threshold
 * @property {number} maxLines for each token and head; 0: all
 * @property {boolean} rescaled special tokens are left out
 * @property {boolean} words pieces are joined
 * @property {boolean} fitted small weights are brought out
 * @property {string} matrix that is large
 * @property {string} number of it that is explained: its row and column, from 1
 */

// The position from 0 of the token of that name, or of that number from 1; -1 where there is none.
/** @param {string[]} names @param {string} name */
export function positionOf(names, name) {
  return /^\d+$/.test(name) ? Math.min(Number(name), names.length) - 1 : names.indexOf(name);
}

// The names of the tokens of one side of a panel.
/** @param {PayloadPanel} panel @param {Side} side */
const namesOf = (panel, side) => (side === "key" ? panel.keyNames : panel.names);

/**
 * A focus with all its fields, in their order.
 * @param {(field: keyof LinkFocus) => string} read
 * @returns {LinkFocus}
 */
export const focusFrom = (read) =>
  /** @type {LinkFocus} */ (Object.fromEntries(FIELDS.map((field) => [field, read(field)])));

/** @param {URLSearchParams} link */
export const focusOfLink = (link) => focusFrom((field) => link.get(field) ?? DEFAULTS[field]);

// Does a link name a layer or heads, which mean something in one edition of the trained weights alone?
/** @param {URLSearchParams} link */
export const namesHeads = (link) =>
  OF_HEADS.some((name) => link.has(name)) || WITH_HEADS.some((name) => link.get(name)?.includes("head"));

// The focus of a view; the other text's token stays as it is in the given focus.
/** @param {{ looked: ViewPlace, original: PayloadPanel[], two: boolean }} selection @param {LinkFocus} focus */
export function linkOf({ looked, original, two }, focus) {
  const { layer, head, on, nth, side, tokens, drawing, threshold, maxLines, rescaled, words, fitted, matrix, number } =
    looked;
  const names = tokens.map((at) => namesOf(original[nth], side)[at]);
  const chosen = names.pop() ?? "";
  const key = two && side === "key";
  return {
    layer: String(layer + 1),
    head: String(head + 1),
    token: key ? focus.token : chosen,
    key_token: key ? chosen : focus.key_token,
    sentence: String(nth + 1),
    side,
    pins: names.join(" "),
    heads: on ? on.map((one) => one + 1).join(",") || "0" : "",
    drawing,
    threshold: threshold === null ? "" : String(threshold),
    lines: maxLines ? String(maxLines) : "",
    specials: CHOICES.specials[Number(rescaled)],
    words: CHOICES.words[Number(words)],
    scale: CHOICES.scale[Number(fitted)],
    matrix,
    number,
  };
}

// Where a view of these panels looks then, as HeadView.goTo takes it; a token that is not there is the server's.
/**
 * @param {LinkFocus} focus
 * @param {import("../view/head_view.js").Header} header
 * @param {PayloadPanel[]} panels
 * @returns {ViewPlace}
 */
export function placeOf(focus, header, panels) {
  const layer = Math.min(numberOf(focus.layer) || header.layer + 1, header.layers) - 1;
  const head = Math.min(numberOf(focus.head) || header.head + 1, header.heads) - 1;
  const every = panels[0].layers.get(layer)?.heads ?? [];
  const side = focus.side === "key" ? "key" : "query";
  const two = panels.some(({ tokens, keys }) => keys !== tokens);
  const name = two && side === "key" ? focus.key_token : focus.token;
  const names = [...focus.pins.split(" "), name].filter(Boolean);
  const sentence = Math.min(numberOf(focus.sentence) || 1, panels.length) - 1;
  /** @type {(nth: number, one: string) => number} */
  const find = (nth, one) => {
    const at = positionOf(namesOf(panels[nth], side), one);
    const meant = nth === header.asked?.nth && header.asked[side].find(([asked]) => asked === one);
    return at < 0 && meant ? meant[1] : at;
  };
  /** @param {number} nth */
  const has = (nth) => find(nth, name) >= 0;
  const nth = name ? ([sentence, ...panels.keys()].find(has) ?? 0) : sentence;
  const at = names.map((one) => find(nth, one)).filter((position) => position >= 0);
  const tokens = name && !has(nth) && header.token !== null ? [...at, header.token] : at;
  const heads = focus.heads.split(",").map((one) => Number(one) - 1);
  const drawings = CHOICES.drawing.filter((name) => isDrawable(name, two));
  const drawing = drawings.includes(focus.drawing) ? focus.drawing : drawings[0];
  const threshold = focus.threshold === "" || !(Number(focus.threshold) >= 0) ? null : Number(focus.threshold);
  return {
    layer,
    head,
    on: focus.heads ? heads.filter((one) => every.includes(one)) : null,
    nth,
    side,
    tokens: name ? tokens : [],
    drawing,
    threshold,
    maxLines: numberOf(focus.lines) ?? 0,
    rescaled: CHOICES.specials.indexOf(focus.specials) > 0,
    words: CHOICES.words.indexOf(focus.words) > 0,
    fitted: CHOICES.scale.indexOf(focus.scale) > 0,
    matrix: CHOICES.matrix.includes(focus.matrix) ? focus.matrix : CHOICES.matrix[0],
    number: /^[1-9]\d*,[1-9]\d*$/.test(focus.number) ? focus.number : "",
  };
}

// The whole number that a field of a link is; null where it is none that can be (mha_core/focus/fields.py).
/** @param {string} text */
export const numberOf = (text) => (/^\d{1,18}$/.test(text) && Number(text) <= MAX_NUMBER ? Number(text) : null);

// The query of an address with the focus in it; what is as it begins is left out. One that names a layer or a head of a
// small model says of which edition of the trained `weights` it is (mha_core/scene/link.py).
/**
 * @param {string} query what follows the "?"
 * @param {LinkFocus} focus
 * @param {string} weights
 */
export function queryOf(query, focus, weights) {
  /** @param {string} part */
  const nameOf = (part) => part.split("=")[0];
  const others = query.split("&").filter((part) => part && nameOf(part) !== "weights" && !(nameOf(part) in DEFAULTS));
  const said = FIELDS.filter((field) => focus[field] !== DEFAULTS[field]);
  const written = said.map((field) => `${field}=${encodeURIComponent(focus[field]).replaceAll("%20", "+")}`);
  const link = new URLSearchParams([...others, ...written].join("&"));
  const isSmall = (link.get("source") ?? "mini") === "mini";
  return [...others, ...written, ...(namesHeads(link) && isSmall ? [`weights=${weights}`] : [])].join("&");
}
