// How far this browser is in a lesson: kept under its name and the version of its content. Where a browser keeps
// nothing, it is known until the page is left.

/** @typedef {{ name: string, version: string }} LessonName */
/** @typedef {{ code: string, answered: number, number: number, drafts: Record<string, string> }} Progress */

/** @type {Progress} */
const NO_PROGRESS = { code: "", answered: 0, number: 1, drafts: {} };
/** @type {Map<string, string>} */
const here = new Map();

/** @param {LessonName} lesson */
const storageKey = ({ name, version }) => `headscope-lesson-${name}-${version}`;

/**
 * @param {LessonName} lesson
 * @returns {Progress}
 */
export function progressOf(lesson) {
  const kept = keptUnder(storageKey(lesson));
  return { ...NO_PROGRESS, ...kept, drafts: { ...kept.drafts } };
}

/**
 * @param {LessonName} lesson
 * @param {Partial<Progress>} changes
 */
export function keepProgress(lesson, changes) {
  keepUnder(storageKey(lesson), { ...progressOf(lesson), ...changes });
}

// An answer that is not locked yet; null for none.
/** @param {LessonName} lesson @param {number | string} name of the screen @param {string | null} answer */
export function keepDraft(lesson, name, answer) {
  const { drafts } = progressOf(lesson);
  if (answer === null) delete drafts[name];
  else drafts[name] = answer;
  keepProgress(lesson, { drafts });
}

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
