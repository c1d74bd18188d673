// The projector view of a desk, for the class: the way in on one line, the question, the spread of its answers, and,
// once it is revealed, the most frequent answers run in the model beside the model's own. It has no names and no
// results. The teacher leads it by the keys of a keyboard or of a presenter, which the foot names.
import { formatted } from "../lesson/formatted.js";
import { sideOf } from "../lesson/reveal.js";
import { sceneSentence } from "../lesson/scene_sentence.js";
import { claim, emphasized, make, makeButton } from "../page/elements.js";
import { fill } from "../page/wording.js";
import { scrollPage } from "../streamlit/adapter.js";
import { drawSpread } from "./spread.js";

/**
 * @typedef {object} RunOfClass
 * @property {string} heading
 * @property {string[][]} sentences in pieces, every other of which is emphasized
 * @property {import("../lesson/reveal.js").RowOfWeights | null} side
 * @property {boolean | null} right
 */

export const MAX_VOTES = 2;
/** @type {Record<string, number>} */
const SCREENS = { ArrowRight: 1, PageDown: 1, ArrowLeft: -1, PageUp: -1 };
/** @type {Record<string, number>} */
const SCROLLS = { ArrowDown: 0.4, ArrowUp: -0.4 }; // shares of the height, where a picture is too high
/** @typedef {(what: import("./desk.js").DeskAct) => void} ActAtDesk */
/** @type {{ root: HTMLElement, page: import("./desk.js").DeskPage, act: ActAtDesk } | null} */
let projected = null; // the page on the wall
let hearsKeys = false;

/** @param {HTMLElement} root @param {import("./desk.js").DeskPage} page @param {ActAtDesk} act */
export function leadByKeys(root, page, act) {
  projected = page.projector ? { root, page, act } : null;
  if (hearsKeys) return;
  hearsKeys = true;
  window.addEventListener("keydown", leadOn, true); // before Streamlit, which has keys of its own
  document.addEventListener("fullscreenchange", () => {
    if (document.fullscreenElement || !projected?.root.isConnected) return;
    projected.act({ do: "projector", shown: false }); // Escape ends both
  });
}

/** @param {import("./desk.js").DeskPage} page @param {ActAtDesk} act */
export function startProjecting({ texts }, act) {
  return makeButton(texts.project, "hint", () => {
    document.documentElement.requestFullscreen?.().catch(() => {}); // else without it, as in a frame
    act({ do: "projector", shown: true });
  });
}

/** @param {KeyboardEvent} event */
function leadOn(event) {
  if (!projected?.root.isConnected || event.ctrlKey || event.metaKey || event.altKey || event.repeat) return;
  const { page, act } = projected;
  const number = page.number + (SCREENS[event.key] ?? 0);
  if (event.key in SCROLLS) {
    scrollPage(SCROLLS[event.key]);
  } else if (number !== page.number) {
    if (number >= 1 && number <= page.count) act({ do: "screen", number });
  } else {
    const way = waysOf(page).find(({ key }) => key.toLowerCase() === event.key.toLowerCase());
    if (!way) return;
    carryOut(way.what, act);
  }
  claim(event);
}

/** @param {import("./desk.js").DeskAct} what @param {ActAtDesk} act */
function carryOut(what, act) {
  if (what.do === "projector" && document.fullscreenElement) document.exitFullscreen();
  else act(what);
}

/**
 * The acts that the teacher can do now, each by a key.
 * @param {import("./desk.js").DeskPage} page
 * @returns {{ key: string, text: string, what: import("./desk.js").DeskAct, pressed?: boolean }[]}
 */
function waysOf({ texts, pace, revealed, vote, shows_code, shows_spread }) {
  /** @type {ReturnType<typeof waysOf>} */
  const ways = [{ key: "C", text: texts.code, what: { do: "code" }, pressed: shows_code }];
  if (!shows_code) {
    if (!revealed) {
      ways.push({ key: "S", text: texts.spread, what: { do: "spread" }, pressed: shows_spread });
      if (vote < MAX_VOTES) ways.push({ key: "V", text: texts.again, what: { do: "again" } });
      ways.push({ key: "R", text: texts.reveal, what: { do: "reveal" } });
    } else ways.push({ key: "U", text: texts.conceal, what: { do: "conceal" } });
    ways.push({ key: "P", text: texts.pause, what: { do: "pause" }, pressed: pace.paused });
  }
  return [...ways, { key: "Escape", text: texts.projector_off, what: { do: "projector", shown: false } }];
}

/** @param {HTMLElement} root @param {import("./desk.js").DeskPage} page */
export function drawQuestion(root, page) {
  const { invitation, answered, place, ask, spreads, shows_spread, note, texts } = page;
  const top = [make("span", "", invitation.way_in), make("span", "answered", answered), make("span", "place", place)];
  const scenes = spreads.map((scene) => {
    const drawn = shows_spread || scene.refusal ? drawSpread(root, scene, texts) : sceneSentence(scene.question);
    const runs = (scene.runs ?? []).map((run) => drawRun(root, run));
    return make("div", "shown", drawn, runs.length > 0 && make("div", "runs", ...runs));
  });
  const parts = [make("p", "go", ...top), formatted("h1", "ask", ask), make("div", "scenes", ...scenes)];
  return note ? [...parts, make("p", "none", note)] : parts;
}

/** @param {HTMLElement} root @param {RunOfClass} run */
function drawRun(root, { heading, sentences, side, right }) {
  const sign = right === null ? [] : [" ", make("span", right ? "sign right" : "sign", right ? "✓" : "↻")];
  const told = make("div", "told", ...sentences.map((pieces) => emphasized("p", pieces)));
  return make("section", "run", make("h2", "", heading, ...sign), told, side && sideOf(root, { ...side, heading: "" }));
}

/** @param {import("./desk.js").DeskPage} page @param {ActAtDesk} act */
export function drawWays(page, act) {
  const ways = waysOf(page).map(({ key, text, what, pressed }) => {
    const button = makeButton("", "quiet", () => carryOut(what, act));
    button.append(make("kbd", "", key === "Escape" ? "Esc" : key), ` ${text}`);
    if (pressed !== undefined) button.ariaPressed = String(pressed);
    return button;
  });
  return [make("div", "keys", make("span", "", fill(page.texts.screens, { keys: "← →" })), ...ways)];
}
