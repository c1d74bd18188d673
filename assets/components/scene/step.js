// The step in focus on the page Steps: the address holds it, the diagram changes it, the matrices follow.
import { Followers } from "./followers.js";

export const OPERATION = "operation"; // in the address, where "step" is one of a training

/** @type {string[]} */
let steps = [];
let current = "";
/** @type {Followers<string>} */
const stepFollowers = new Followers();
let watching = false;

export const stepInFocus = () => current;

// The steps that there are, in their order; the address says at which one the page begins.
/** @param {string[]} names */
export function offerSteps(names) {
  steps = names;
  if (!watching) window.addEventListener("popstate", fromAddress);
  watching = true;
  fromAddress();
}

function fromAddress() {
  const linked = new URLSearchParams(location.search).get(OPERATION) ?? "";
  pass(steps.includes(linked) ? linked : steps[0]);
}

// A step becomes an entry of the browser's history (streamlit/adapter.js).
/** @param {string} name */
export function goToStep(name) {
  if (!steps.includes(name) || name === current) return;
  const url = new URL(location.href);
  url.searchParams.set(OPERATION, name);
  history.replaceState(history.state, "", url.href);
  pass(name);
}

/** @param {number} by */
export const goBySteps = (by) => goToStep(steps[steps.indexOf(current) + by] ?? current);

// An element hears of each step, and of the one in focus at once.
/** @param {HTMLElement} element @param {(step: string) => void} act */
export function followStep(element, act) {
  stepFollowers.add(element, act);
  if (current) act(current);
}

/** @param {string} name */
function pass(name) {
  current = name;
  stepFollowers.tell(name);
}
