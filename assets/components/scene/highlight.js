// The thing under the pointer, one value for the whole page: every picture with this token, head or layer highlights it,
// whichever component draws it. A token is its label, unique in its text; heads and layers count from 1.

import { Followers } from "./followers.js";

/** @typedef {{ query?: string, key?: string, token?: string, head?: number, layer?: number }} Highlight */
/** @typedef {keyof Highlight} HighlightKind */

const TOKENS = /** @type {const} */ (["query", "key", "token"]);

/** @type {Highlight} */
let pointed = {};
/** @type {Followers<void>} */
const watchers = new Followers();

/**
 * A picture in that element is pointed at, or, with null, is no longer.
 * @param {HTMLElement} element
 * @param {Highlight | null} at
 */
export function highlight(element, at) {
  if (JSON.stringify(at ?? {}) === JSON.stringify(pointed)) return;
  pointed = at ?? {};
  watchers.tell(undefined, element);
}

// An element hears of what is pointed at in others.
/** @param {HTMLElement} element @param {() => void} act */
export const followHighlight = (element, act) => watchers.add(element, act);

/**
 * The thing of a kind that is lit. A query that is pointed at is also lit among keys unless a key is pointed at, and
 * the other way round, because it is the same token.
 * @param {HighlightKind | null} kind
 */
export function litOf(kind) {
  if (!kind) return undefined;
  const own = pointed[kind];
  if (own !== undefined || !TOKENS.some((one) => one === kind)) return own;
  return TOKENS.map((one) => pointed[one]).find((label) => label !== undefined);
}
