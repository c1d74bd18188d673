// The outcome of a locked answer: two sentences, a small mark, a hint on what to notice, and links onward.
import { elementIn, emphasized, make, makeButton, makeLink } from "../page/elements.js";
import { isRtl, short } from "../page/wording.js";
import { inkOn, shade, themeColours } from "../pictures/colours.js";
import { fitHeight } from "../streamlit/adapter.js";
import { formatted } from "./formatted.js";

/** @typedef {HTMLElement & { told?: string }} RevealRoot with what was said last */
/** @typedef {{ heading: string, words: string[], weights: number[], query: number | null }} RowOfWeights */

/**
 * @typedef {object} RevealPage
 * @property {RowOfWeights[]} sides on a projector
 * @property {string[][]} sentences in pieces, every other of which is emphasized
 * @property {boolean | null} right null where no answer is
 * @property {string} mark
 * @property {string} notice
 * @property {{ text: string, href: string }[]} look
 * @property {boolean} like a like case
 * @property {number} next
 * @property {boolean} projector
 * @property {Record<string, string>} texts
 */

/** @param {import("../streamlit/adapter.js").Mounted<RevealPage>} mounted */
export default function ({ data, parentElement, setTriggerValue }) {
  /** @type {RevealRoot} */
  const root = elementIn(parentElement, ".reveal");
  const { texts, right } = data;
  /** @param {import("./screen.js").LessonAct} what */
  const act = (what) => setTriggerValue("acted", what);
  root.classList.toggle("projector", data.projector);
  const told = make("div", "told", ...data.sentences.map((pieces) => emphasized("p", pieces)));
  /** @type {HTMLElement[]} */
  const parts = [...data.sides.map((side) => sideOf(root, side)), told];
  if (data.mark) {
    const sign = make("span", "sign", right ? "✓" : "↻");
    parts.push(make("p", right ? "mark right" : "mark", sign, data.mark));
  }
  if (data.notice) parts.push(formatted("p", "notice", data.notice));
  const next = makeButton(texts.next, "lock", () => act({ do: "go", number: data.next }));
  const all = /** @type {const} */ (["again", "like", "back"]);
  const names = all.filter((name) => (name === "back" ? data.like : texts[name]));
  const buttons = names.map((name) => makeButton(texts[name], "hint", () => act({ do: name })));
  const links = data.look.flatMap(({ text, href }, at) => [at ? " · " : "", makeLink(text, href)]);
  parts.push(make("div", "foot", texts.next && next, ...buttons), make("p", "look", `${texts.look} `, ...links));
  root.replaceChildren(...parts);
  say(root, [...data.sentences.map((pieces) => pieces.join("")), data.mark].join(" "));
  fitHeight(root);
}

// A row of weights as words, each shaded by its weight.
/** @param {HTMLElement} root @param {RowOfWeights} side */
export function sideOf(root, { heading, words, weights, query }) {
  const colours = themeColours(root);
  const each = words.map((word, at) => {
    const name = make("bdi", "", word);
    const colour = shade(colours, weights[at]);
    Object.assign(name.style, { backgroundColor: `rgb(${colour})`, color: inkOn(colour) });
    const number = make("span", "", weights[at] < 0.005 ? "·" : short(weights[at]));
    return make("span", at === query ? "weight looking" : "weight", name, number);
  });
  const row = Object.assign(make("div", "weights", ...each), { dir: isRtl(words) ? "rtl" : "ltr" });
  return make("section", "side", heading && make("p", "name", heading), row);
}

// A screen reader hears what came out once it is there; a page that is opened on it is read anyway.
/** @param {RevealRoot} root @param {string} text */
function say(root, text) {
  const live = Object.assign(make("div", "live"), { role: "status" });
  root.append(live);
  if (root.told !== text) setTimeout(() => live.append(text), 100);
  root.told = text;
}
