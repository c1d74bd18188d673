// The focus of the page: what its pictures look at and how they are drawn (mha_core/focus/focus.py). The browser holds it
// and writes it into every address, so that a copied link shows the same picture and Back undoes a change. The server
// receives it with the messages that are sent anyway: it is the state of a component of the frame, and every message
// carries that state, even a request for another page. Nothing has to wait for an answer, and no change is lost.
//
// A picture changes the focus with `move`, and calls `report` if the server draws something from it. It is called after
// every change if it has registered with `follow`. Before it sends a message of its own it calls `report`, or puts
// `unreported` into the message.

import { targetOf } from "../page/elements.js";
import { reduceMotion } from "../streamlit/adapter.js";
import { fitPaper } from "../streamlit/print.js";
import { holdSection } from "../streamlit/section.js";
import { applyOnEnter } from "../streamlit/sentence_field.js";
import { focusFrom, focusOfLink, queryOf } from "./focus_link.js";
import { Followers } from "./followers.js";

/** @typedef {import("./focus_link.js").LinkFocus} LinkFocus */
/** @typedef {{ count: number, link: LinkFocus }} Report */
/** @typedef {{ focus: LinkFocus, received: Partial<LinkFocus> }} ServerFocus and what it had heard of */

const CONTROLS = "a, button, input, textarea, select, summary, label, [role]";
const SENDING = 50; // milliseconds, in which Streamlit sends the text of a field that was left

let held = inOrder({});
let known = ""; // what the server has heard last
let taken = ""; // the focus that was taken from the server last
let weights = ""; // the edition of the trained weights
let left = 0; // the timer of a field that was left, until its text is sent
let count = 0; // of what it has heard: the same focus may be sent twice
/** @type {((state: Report) => void) | null} */
let send = null;
/** @type {Followers<LinkFocus>} */
const followers = new Followers();
let connected = () => {};

// Until the frame of the page is there, whose address it is.
export const ready = new Promise((resolve) => {
  connected = () => resolve(undefined);
});

export const heldFocus = () => held;

// A picture looks at something else, which becomes an entry of the browser's history.
/** @param {Partial<LinkFocus>} changes */
export function move(changes) {
  if (send) hold({ ...held, ...changes });
}

// Report the focus to the server, in a message that leaves in a moment. Returns whether it was not known there yet.
export function report() {
  const { moved } = unreported();
  if (moved) send?.(moved);
  return moved !== undefined;
}

// The focus that the server does not know yet, as a part of another message. That one may run a part of the page alone;
// the component of the frame would run all of it.
/** @returns {{ moved?: Report }} */
export function unreported() {
  const now = JSON.stringify(held);
  if (!send || now === known) return {};
  known = now;
  count += 1;
  return { moved: { count, link: held } };
}

// An element hears of each focus.
/** @param {HTMLElement} element @param {(focus: LinkFocus) => void} act */
export const follow = (element, act) => followers.add(element, act);

// Takes the server's data: its focus, and the latest focus that it had received from the browser by then.
/** @param {ServerFocus & { weights: string }} server @param {(state: Report) => void} setState */
export function connect(server, setState) {
  const first = !send;
  send = setState;
  weights = server.weights;
  if (first) {
    held = inOrder(server.focus); // which has read the link
    taken = JSON.stringify(held);
    reduceMotion();
    applyOnEnter();
    fitPaper();
    window.addEventListener("popstate", goBack, true); // before Streamlit asks the server for that entry
    for (const act of ["keydown", "click", "change"]) document.addEventListener(act, reportBefore, true);
    document.addEventListener("focusout", () => {
      clearTimeout(left);
      left = window.setTimeout(() => (left = 0), SENDING);
    });
    // From the link as it was opened: Streamlit removes default values from the address, and the hash too.
    const [opened] = performance.getEntriesByType("navigation");
    holdSection(new URL(opened.name).hash.slice(1)); // which leaves the address in the next line
    history.replaceState(history.state, "", location.pathname + location.search);
  }
  take(server);
  connected();
}

// The server has moved the focus, in a run of the page or of a part of it.
/** @param {ServerFocus} server */
export function take(server) {
  // An answer to what was held before comes too late: the user has moved on meanwhile.
  // The server can move it several times before it hears of it anew.
  if (![JSON.stringify(inOrder(server.received)), taken].includes(JSON.stringify(held))) return;
  taken = JSON.stringify(inOrder(server.focus));
  known = taken;
  hold(server.focus);
}

/** @param {LinkFocus} focus */
function hold(focus) {
  const before = JSON.stringify(held);
  held = inOrder(focus);
  if (JSON.stringify(held) === before) return;
  history.pushState(history.state, "", location.pathname + location.search);
  followers.tell(held);
}

/** @param {Partial<LinkFocus>} focus */
function inOrder(focus) {
  return focusFrom((field) => focus[field] ?? "");
}

// An address with the focus in it, whoever writes it; as it is while no focus is held.
/** @param {string | URL | null} [address] */
export function addressOf(address) {
  const url = new URL(address ?? location.href, document.baseURI);
  if (send) url.search = queryOf(url.search.slice(1), held, weights);
  return url.href;
}

// The server reads the focus of that entry with the page.
function goBack() {
  held = focusOfLink(new URLSearchParams(location.search));
  known = "";
  followers.tell(held);
}

// A press on a control of the page is a message, and the focus leaves with it. Another page is asked for at once: a
// message about the focus, or about a field that a tap has just left, would leave behind that and ask for this page
// again. The link is followed next.
/** @param {Event} event */
function reportBefore(event) {
  const target = targetOf(event);
  if (!target?.closest(CONTROLS) || target.shadowRoot) return;
  if (event instanceof KeyboardEvent && event.key === "Tab") return;
  /** @type {HTMLAnchorElement | null} */
  const link = target.closest("a[href]");
  if (!link) report();
  else if (event instanceof MouseEvent && !event.ctrlKey && !event.metaKey && !event.shiftKey) {
    // By a timer, not by the clock: a busy page hears the tap first, however long ago the field was left.
    if (!report() && !left) return; // `left` is 0 again when the link is followed, whose timer ends later
    event.preventDefault();
    event.stopImmediatePropagation();
    setTimeout(() => link.click(), SENDING);
  }
}
