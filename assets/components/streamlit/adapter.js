// Every private part of Streamlit that our scripts touch. What it calls its elements and how it writes addresses may
// change with any version: tests/browser/test_streamlit.py fails then.

/**
 * The argument with which Streamlit calls a component.
 * @template Data
 * @typedef {object} Mounted
 * @property {Data} data what the server says
 * @property {HTMLElement | ShadowRoot} parentElement
 * @property {(name: string, value: unknown) => void} setTriggerValue for one run of the page
 * @property {(name: string, value: unknown) => void} setStateValue for all that follow
 */
import { elementIn, make, targetOf, treeOf } from "../page/elements.js";

const AT_REST = '[data-testid="stApp"][data-test-script-state="notRunning"]';
export const PAGE = '[data-testid="stMainBlockContainer"]'; // all that a page draws
export const KEY = "st-key-"; // before the key of an element, as a class
export const WHOLE = "leads-out"; // of a link that opens the app outside of the frame that this page is in
const MOMENT = 50; // milliseconds
const CALM = 12; // moments at rest, after which what was asked of the server before has been heard
const MAX_MOMENTS = 200; // before a page that runs on and on is left all the same

// Scrolls the page by so many heights of the screen.
/** @param {number} screens */
export function scrollPage(screens) {
  document.querySelector('[data-testid="stMain"]')?.scrollBy({ top: screens * innerHeight });
}

// The menu closes when a page is chosen in it. In a narrow window of a computer Streamlit leaves it open above the page;
// on a phone it has closed it by now.
export function closeMenuOnChoice() {
  document.addEventListener("click", (event) => {
    if (!targetOf(event)?.closest('[data-testid="stSidebarNavItems"] a')) return;
    const close = document.querySelector('[data-testid="stSidebarCollapseButton"] button');
    if (close instanceof HTMLElement) close.click();
  });
}

// In an address these say that the page is embedded, and how.
/** @param {string} name */
const isEmbedding = (name) => ["embed", "embed_options"].includes(name.toLowerCase());

// An address of the app, embedded as this page is.
/** @param {string} address */
function embeddedAddress(address) {
  const url = new URL(address);
  for (const [name, value] of new URLSearchParams(location.search))
    if (isEmbedding(name) && !url.searchParams.has(name, value)) url.searchParams.append(name, value);
  return url.href;
}

// The address of this page with its whole frame.
export function wholeAddress() {
  const url = new URL(location.href);
  for (const name of [...url.searchParams.keys()].filter(isEmbedding)) url.searchParams.delete(name);
  return url.href;
}

// How high all of the page is, whenever that changes.
/** @param {(height: number) => void} act */
export function followHeight(act) {
  const page = elementIn(document, PAGE);
  const sizes = new ResizeObserver(() => act(Math.ceil(page.getBoundingClientRect().height)));
  sizes.observe(page, { box: "border-box" });
}

// A browser lets the ground of a page show through its frame where both are light, or both dark: it is told which.
export function sayColourScheme() {
  const app = elementIn(document, '[data-testid="stApp"]');
  document.documentElement.style.colorScheme = getComputedStyle(app).colorScheme;
}

// Act once the page has run to its end.
/** @param {() => void} act @param {number} moments */
export function atRest(act, moments = MAX_MOMENTS) {
  if (moments && !document.querySelector(AT_REST)) setTimeout(() => atRest(act, moments - 1), MOMENT);
  else setTimeout(act, MOMENT);
}

// Follow the link in the container with this key.
/** @param {string} key */
export function followLink(key) {
  /** @type {HTMLElement} */ (document.querySelector(`.${KEY}${key} a`))?.click();
}

// Shows, of all containers whose keys have this prefix, only the one whose key ends with that name.
/** @param {string} prefix @param {string} name */
export function showOnly(prefix, name) {
  const id = `headscope-${prefix}shown`;
  const style = document.getElementById(id) ?? document.head.appendChild(Object.assign(make("style"), { id }));
  const one = `.${KEY}${prefix}${name}`;
  style.textContent = `html [class*="${KEY}${prefix}"]:not(${one}) { display: none; } html ${one} { display: flex; }`;
}

/**
 * The nearest element of Streamlit's around a component.
 * @param {HTMLElement} element
 * @param {string} selector
 */
function partAround(element, selector) {
  const tree = treeOf(element);
  const part = tree instanceof ShadowRoot ? tree.host.closest(selector) : null;
  return /** @type {HTMLElement | null} */ (part);
}

// Gives an element the height that it needs instead of the one that it had while it was loading
// (pages/_kit/components.py), and the same to the container with that key around it.
/** @param {HTMLElement} element @param {string} key */
export function fitHeight(element, key = "") {
  const around = key ? partAround(element, `.${KEY}${key}`) : null;
  for (const box of [partAround(element, ".stElementContainer"), around, around?.parentElement])
    if (box) Object.assign(box.style, { height: "auto", flex: "none", overflow: "visible" });
}

// On a phone the element stays in sight below Streamlit's own header, but for so many pixels at its top
// (pages/_server/streamlit_parts.py).
/** @param {HTMLElement} element @param {number} above */
export function keepInSight(element, above) {
  const box = partAround(element, ".stElementContainer");
  box?.style.setProperty("--above", `${above}px`);
}

// Keeps sticky elements and the targets of links to headings below this element while it stays in sight
// (pages/_server/streamlit_parts.py). Returns a function that ends that.
/** @param {HTMLElement} element */
export function reserveTop(element) {
  const box = partAround(element, ".stElementContainer");
  const { style } = document.documentElement;
  const sizes = new ResizeObserver(() => {
    const isSticky = box && getComputedStyle(box).position === "sticky";
    style.setProperty("--headscope-above", `${isSticky ? element.offsetHeight : 0}px`);
  });
  sizes.observe(element);
  return () => {
    sizes.disconnect();
    style.removeProperty("--headscope-above");
  };
}

// Streamlit opens each link of a text in a new tab; one to a page of the app opens where one is, and Back returns. In a
// frame of another site the next page is embedded as this one is; `WHOLE` is the class of the link that leads out of it.
export function openHere() {
  const home = new URL(".", document.baseURI).href;
  /** @param {Event} event */
  const here = (event) => {
    const link = event.composedPath().find((one) => one instanceof HTMLAnchorElement);
    if (!link?.href.startsWith(home) || link.download || link.classList.contains(WHOLE)) return;
    if (link.target === "_blank") link.target = "_self";
    link.href = embeddedAddress(link.href);
  };
  for (const act of ["click", "keydown"]) window.addEventListener(act, here, true);
}

// A fold opens by a script of Streamlit's, whose movement no style sheet stops for those who want nothing to move.
export function reduceMotion(prototype = Element.prototype) {
  const { animate } = prototype;
  prototype.animate = function (frames, options) {
    const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
    return animate.call(this, frames, still ? 0 : options);
  };
}

// Every address that is written gets what `complete` puts into it, and Back undoes a change of a control. Streamlit
// writes a control that is bound to the address with `history.replaceState`, which leaves nothing to go back to; here
// such a write becomes an entry of its own. It is told apart by its form: an absolute address on the same page with
// another query. Streamlit's own writes while Back is under way are relative and pass as they are. One act of the user
// makes one entry: what the server then changes by itself Streamlit would push as another, with a scene between that
// never was. A page that is left through a link keeps its address: Streamlit clears it of the controls that the next
// page does not have before that page is there, and Back would find it without them. An address to which Back returns
// from another page stays as it is until its page is there or the user acts: what the server still says about the page
// that was left would be written into it.
// Back that comes while a page is opened anew, before Streamlit can hear of it, is told to it once more: it would open
// the page that was left.
/** @param {(address?: string | URL | null) => string} complete @param {History} history @param {Location} location */
export function undoByBack(complete, history = window.history, location = window.location) {
  const push = history.pushState.bind(history);
  const replace = history.replaceState.bind(history);
  let [acted, leaving] = [false, false];
  let returning = 0; // moments at rest until the page to which Back returns is there; 0 where it is
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let timer;
  let { pathname } = location;
  const note = () => {
    [acted, leaving, returning] = [true, false, 0];
  };
  for (const act of ["pointerdown", "keydown"]) window.addEventListener(act, note, true);
  const goBack = () => {
    [acted, leaving] = [false, false];
    if (returning || location.pathname !== pathname) returning = CALM;
    pathname = location.pathname;
    clearTimeout(timer);
    timer = setTimeout(waitForPage, MOMENT);
  };
  const waitForPage = () => {
    if (!returning) return;
    returning = document.querySelector(AT_REST) ? returning - 1 : CALM;
    timer = setTimeout(waitForPage, MOMENT);
  };
  window.addEventListener("popstate", goBack, true);
  /** @param {Event} event */
  const leave = (event) => {
    const link = event.composedPath().find((one) => one instanceof HTMLAnchorElement);
    leaving = link !== undefined && link.origin === location.origin && link.pathname !== location.pathname;
    if (leaving) returning = 0;
  };
  window.addEventListener("click", leave, true);
  /** @param {URL} url */
  const samePage = (url) => url.pathname === location.pathname;
  history.replaceState = (state, title, url) => {
    const whole = new URL(complete(url));
    if (returning && samePage(whole)) return;
    const control = URL.canParse(String(url)) && samePage(whole) && whole.search !== location.search;
    return control ? history.pushState(state, title, url) : replace(state, title, whole.href);
  };
  history.pushState = (state, title, url) => {
    const whole = new URL(complete(url));
    if (returning && !samePage(whole)) {
      window.dispatchEvent(new PopStateEvent("popstate", { state: history.state }));
      return;
    }
    if (whole.href === location.href || ((leaving || returning) && samePage(whole))) return;
    const follows = !acted && samePage(whole);
    [acted, leaving] = [false, false];
    pathname = whole.pathname;
    return follows ? replace(state, title, whole.href) : push(state, title, whole.href);
  };
}
