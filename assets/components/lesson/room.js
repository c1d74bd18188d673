// The data of a room in the browser: the token of its student, a record to take along when the room is gone, and the
// answers that wait until the room names them as kept. A browser without storage has all of it until the page is left.
import { keepUnder, keptUnder } from "../page/kept.js";
import { Followers } from "../scene/followers.js";

/**
 * A lesson of the room, with the number of screens before it and of its own.
 * @typedef {{ lesson: string, title: string, before: number, count: number, answers: string }} TakenAlong
 */
/** @typedef {{ answer: string, language: string }} WaitingAnswer with the language of its question */
/** @typedef {Record<string, WaitingAnswer>} Waiting by "screen.vote" */
/** @typedef {{ token: string, waiting: Waiting, along: TakenAlong[] }} Held */

/** @type {Followers<void>} */
const roomFollowers = new Followers();

/** @param {string} code */
export const roomKey = (code) => `headscope-room-${code}`;

/** @param {string} code @returns {Held} */
export function heldOf(code) {
  const { token = "", waiting = {}, along = [] } = keptUnder(roomKey(code));
  // Earlier versions kept an answer alone, and one lesson to take along.
  for (const [key, one] of Object.entries(waiting))
    if (typeof one === "string") waiting[key] = { answer: one, language: "" };
  const lessons = Array.isArray(along) ? along : [{ title: "", before: 0, count: 99, ...along }];
  return { token, waiting, along: lessons };
}

/** @param {string} code @param {Partial<Held>} changes */
export function holdOf(code, changes) {
  const before = heldOf(code);
  const now = { ...before, ...changes };
  if (JSON.stringify(now) === JSON.stringify(before)) return;
  keepUnder(roomKey(code), now);
  callRoomFollowers();
}

// An element hears of each change.
/** @param {HTMLElement} element @param {() => void} act */
export const followRoom = (element, act) => roomFollowers.add(element, act);

export const callRoomFollowers = () => roomFollowers.tell();

// An answer is locked: it waits here until it is kept there. One that waits already stays.
/** @param {string} code @param {string} key @param {WaitingAnswer} answer */
export function lockIn(code, key, answer) {
  const { waiting } = heldOf(code);
  holdOf(code, { waiting: { [key]: answer, ...waiting } });
}

// The room has these answers, whoever of this student's pages has sent them.
/** @param {string} code @param {string[]} keys */
export function release(code, keys) {
  const left = Object.entries(heldOf(code).waiting).filter(([key]) => !keys.includes(key));
  holdOf(code, { waiting: Object.fromEntries(left) });
}
