// Every private part of Streamlit that our scripts touch. What it calls its elements and how it writes addresses may
// change with any version: tests/browser/test_streamlit.py fails then.
const AT_REST = '[data-testid="stApp"][data-test-script-state="notRunning"]';
const KEY = "st-key-"; // before the key of an element, as a class
const MOMENT = 50; // milliseconds
const MAX_MOMENTS = 200; // before a page that runs on and on is left all the same

// The key of the element that this one is in; "" for none.
export function keyAround(element) {
  const classes = element.closest(`[class*='${KEY}']`)?.classList ?? [];
  return [...classes].find((name) => name.startsWith(KEY))?.slice(KEY.length) ?? "";
}

// Act once the page has run to its end.
export function atRest(act, moments = MAX_MOMENTS) {
  if (moments && !document.querySelector(AT_REST)) setTimeout(() => atRest(act, moments - 1), MOMENT);
  else setTimeout(act, MOMENT);
}

// Follow the link in the container with this key.
export function followLink(key) {
  /** @type {HTMLElement} */ (document.querySelector(`.${KEY}${key} a`))?.click();
}

// What is drawn takes the height that it needs, no longer the one that it had while it was loading
// (pages/_kit/heights.py), nor does the container with that key around it.
export function drawn(element, key = "") {
  const { host } = element.getRootNode();
  const around = key && host?.closest(`.${KEY}${key}`);
  for (const box of [host?.closest(".stElementContainer"), around, around?.parentElement])
    if (box) Object.assign(box.style, { height: "auto", overflow: "visible" });
}

let watched = false;

// Back undoes a change of a control. Streamlit writes a control that is bound to the address with
// `history.replaceState`, which leaves nothing to go back to; here such a write becomes an entry of its own. It is
// told apart by its form: an absolute address on the same page with another query. Streamlit's own writes while Back
// is under way are relative and pass as they are. One act of the user makes one entry: what the server then changes
// by itself, such as the token when the source changes, Streamlit would push as another, with a scene between that
// never was.
export function undoByBack(history = window.history, location = window.location) {
  if (watched) return;
  watched = true;
  const push = history.pushState.bind(history);
  const replace = history.replaceState.bind(history);
  let acted = false;
  const note = (happened) => () => {
    acted = happened;
  };
  for (const act of ["pointerdown", "keydown"]) window.addEventListener(act, note(true), true);
  window.addEventListener("popstate", note(false), true);
  const changes = (url) => url.pathname === location.pathname && url.search !== location.search;
  history.replaceState = (state, title, url) => {
    const control = URL.canParse(String(url)) && changes(new URL(url));
    return control ? history.pushState(state, title, url) : replace(state, title, url);
  };
  history.pushState = (state, title, url) => {
    const follows = (!acted || pressedLink) && changes(new URL(url ?? "", location.href));
    acted = false;
    return follows ? replace(state, title, url) : push(state, title, url);
  };
}

/** @type {(() => void) | null} tells the server what the pictures look at, where it has not heard of it */
let untold = null;
let following = null;
let telling = false; // the server has not answered yet
let pressedLink = false; // what it then writes into the address is no act of the user
/** @type {HTMLElement | null} a link that waits for that */
let waiting = null;
const MAX_WAIT = 15000; // milliseconds, then a link is followed all the same
const CONTROLS = "a, button, input, textarea, select, summary, label, [role]";

// What the pictures look at stands in the address at once, so that a copied link shows the same. The server hears of
// it before the next press on a control of the page.
export function writeLink(values, tell) {
  const url = new URL(location.href);
  for (const [name, value] of Object.entries(values)) {
    if (value === null) url.searchParams.delete(name);
    else url.searchParams.set(name, value);
  }
  if (url.href !== location.href) history.replaceState({}, "", url.href);
  watchControls();
  untold = tell;
}

let watchesControls = false;

function watchControls() {
  if (watchesControls) return;
  watchesControls = true;
  /** @param {any} event */
  const before = ({ target, key }) => {
    if (!untold || target.shadowRoot || key === "Tab" || !target.closest?.(CONTROLS)) return;
    const tell = untold;
    untold = null;
    telling = true;
    pressedLink = Boolean(target.closest("a[href]"));
    tell();
  };
  for (const act of ["pointerdown", "keydown"]) document.addEventListener(act, before, true);
  document.addEventListener("click", wait, true);
}

// Streamlit forgets what a page has told when another page is asked for in the same moment: the link to it waits.
/** @param {any} event */
function wait(event) {
  const link = event.target.closest?.("a[href]");
  if (!telling || !link || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  event.stopImmediatePropagation();
  waiting = link;
  setTimeout(() => atRest(heard), MAX_WAIT);
}

// The server has answered.
export function heard() {
  telling = false;
  pressedLink = false;
  const link = waiting;
  waiting = null;
  link?.click();
}

// Back and forward move the pictures, too: the server may have nothing new to say.
export function followHistory(element, act) {
  if (!following) {
    window.addEventListener("popstate", () => {
      untold = null;
      if (following.element.isConnected) following.act(new URLSearchParams(location.search));
    });
  }
  following = { element, act };
}
