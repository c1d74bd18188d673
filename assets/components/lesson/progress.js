// How far this browser is in a lesson: kept under its name and the version of its content (page/kept.js).
import { keepUnder, keptUnder } from "../page/kept.js";

/** @typedef {{ name: string, version: string }} LessonName */
/** @typedef {{ code: string, answered: number, number: number, drafts: Record<string, string> }} Progress */

/** @type {Progress} */
const NO_PROGRESS = { code: "", answered: 0, number: 1, drafts: {} };

/** @param {LessonName} lesson */
const storageKey = ({ name, version }) => `headscope-lesson-${name}-${version}`;

/** @param {LessonName} lesson @returns {Progress} */
export function progressOf(lesson) {
  const kept = keptUnder(storageKey(lesson));
  return { ...NO_PROGRESS, ...kept, drafts: { ...kept.drafts } };
}

/** @param {LessonName} lesson @param {Partial<Progress>} changes */
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
