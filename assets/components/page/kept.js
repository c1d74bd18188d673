// Data that a browser keeps under a name; one that keeps nothing knows them until the page is left.

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

// Whether the browser keeps what is written under a name: in a frame of another site it may not.
/** @param {string} key */
export function isKept(key) {
  try {
    return localStorage.getItem(key) !== null;
  } catch {
    return false;
  }
}

/** @param {string} key @param {object} value */
export function keepUnder(key, value) {
  const text = JSON.stringify(value);
  here.set(key, text);
  try {
    localStorage.setItem(key, text);
  } catch {
    // full, or closed to this site
  }
}

/** @param {string} key */
function keptText(key) {
  try {
    return localStorage.getItem(key) ?? here.get(key);
  } catch {
    return here.get(key);
  }
}
