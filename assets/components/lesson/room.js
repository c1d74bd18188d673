// The data of a room in the browser: the token of its student, a record to take along when the room is gone, and the
// answers that wait until the room names them as kept. A browser without storage has all of it until the page is left.
import { keepUnder, keptUnder } from "./progress.js";

/** @typedef {{ lesson: string, answers: string }} TakenAlong */
/** @typedef {{ token: string, waiting: Record<string, string>, along: TakenAlong }} Held `waiting` by "screen.vote" */

/** @type {Map<HTMLElement, () => void>} */
const roomFollowers = new Map();

/** @param {string} code */
export const roomKey = (code) => `headscope-room-${code}`;

/** @param {string} code @returns {Held} */
export function heldOf(code) {
  const { token = "", waiting = {}, along = { lesson: "", answers: "" } } = keptUnder(roomKey(code));
  return { token, waiting, along };
}

/** @param {string} code @param {Partial<Held>} changes */
export function holdOf(code, changes) {
  const before = heldOf(code);
  const now = { ...before, ...changes };
  if (JSON.stringify(now) === JSON.stringify(before)) return;
  keepUnder(roomKey(code), now);
  callRoomFollowers();
}

// As long as the element is on the page it hears of each change.
/** @param {HTMLElement} element @param {() => void} act */
export function followRoom(element, act) {
  roomFollowers.set(element, act);
}

export function callRoomFollowers() {
  for (const [element, act] of roomFollowers) {
    if (element.isConnected) act();
    else roomFollowers.delete(element);
  }
}

// An answer is locked: it waits here until it is kept there. One that waits already stays.
/** @param {string} code @param {string} key @param {string} answer */
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
