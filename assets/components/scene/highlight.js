// The thing under the pointer, one value for the whole page: every picture with this token, head or layer highlights it,
// whichever component draws it. A token is its label, unique in its text; heads and layers count from 1.

/** @typedef {{ query?: string, key?: string, token?: string, head?: number, layer?: number }} Highlight */
/** @typedef {keyof Highlight} HighlightKind */

const TOKENS = /** @type {const} */ (["query", "key", "token"]);

/** @type {Highlight} */
let pointed = {};
/** @type {Map<HTMLElement, () => void>} */
const watchers = new Map();

/**
 * A picture in that element is pointed at, or, with null, is no longer.
 * @param {HTMLElement} element
 * @param {Highlight | null} at
 */
export function highlight(element, at) {
  if (JSON.stringify(at ?? {}) === JSON.stringify(pointed)) return;
  pointed = at ?? {};
  for (const [watcher, act] of watchers) {
    if (!watcher.isConnected) watchers.delete(watcher);
    else if (watcher !== element) act();
  }
}

/**
 * As long as the element is on the page it hears of what is pointed at in others.
 * @param {HTMLElement} element
 * @param {() => void} act
 */
export function followHighlight(element, act) {
  watchers.set(element, act);
}

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
