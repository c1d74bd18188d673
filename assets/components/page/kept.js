// Data that a browser keeps under a name; one that keeps nothing knows them until the page is left.

/** @typedef {"localStorage" | "sessionStorage"} KeptIn for good, or in one tab */
/** @type {Map<string, string>} */
const here = new Map();

// The data that this browser keeps under a name; empty if it cannot be read.
/** @param {string} key @returns {Record<string, any>} */
export function keptUnder(key) {
  try {
    return JSON.parse(keptText(key) ?? "{}") ?? {};
  } catch {
    return {};
  }
}

/** @param {string} key @param {object} value */
export const keepUnder = (key, value) => keepText(key, JSON.stringify(value));

// Whether the browser keeps what is written under a name: in a frame of another site it may not.
/** @param {string} key */
export function isKept(key) {
  try {
    return localStorage.getItem(key) !== null;
  } catch {
    return false;
  }
}

/** @param {string} key @param {KeptIn} storage */
export function keptText(key, storage = "localStorage") {
  try {
    return window[storage].getItem(key) ?? here.get(key);
  } catch {
    return here.get(key);
  }
}

/** @param {string} key @param {string | null} text null to forget it @param {KeptIn} storage */
export function keepText(key, text, storage = "localStorage") {
  if (text) here.set(key, text);
  else here.delete(key);
  try {
    if (text) window[storage].setItem(key, text);
    else window[storage].removeItem(key);
  } catch {
    // full, or closed to this site
  }
}
