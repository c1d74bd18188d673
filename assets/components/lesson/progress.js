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
  try {
    const kept = JSON.parse(keptText(storageKey(lesson)) ?? "{}");
    return { ...NO_PROGRESS, ...kept, drafts: { ...kept.drafts } };
  } catch {
    return { ...NO_PROGRESS, drafts: {} };
  }
}

/**
 * @param {LessonName} lesson
 * @param {Partial<Progress>} changes
 */
export function keepProgress(lesson, changes) {
  const text = JSON.stringify({ ...progressOf(lesson), ...changes });
  here.set(storageKey(lesson), text);
  try {
    localStorage.setItem(storageKey(lesson), text);
  } catch {
    // full, or closed to this site
  }
}

// An answer that is not locked yet; null for none.
/** @param {LessonName} lesson @param {number} number @param {string | null} answer */
export function keepDraft(lesson, number, answer) {
  const { drafts } = progressOf(lesson);
  if (answer === null) delete drafts[number];
  else drafts[number] = answer;
  keepProgress(lesson, { drafts });
}

/** @param {string} key */
function keptText(key) {
  try {
    return localStorage.getItem(key) ?? here.get(key);
  } catch {
    return here.get(key);
  }
}
