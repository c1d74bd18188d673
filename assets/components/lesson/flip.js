// Build the one change that flips the model's answer: block a word from another, or switch off a head.
// Answer: ``cut,from=9,to=3`` or ``off,layer=2,head=1``.
import { make, makeToggle, renew } from "../page/elements.js";
import { fill } from "../page/wording.js";
import { lookOf } from "../pictures/colours.js";
import { quoted, wordRow } from "./words.js";

const CUT_ANSWER = /^cut,from=(\d+),to=(\d+)$/;
const OFF_ANSWER = /^off,layer=(\d+),head=(\d+)$/;

/**
 * @typedef {import("./words.js").QuestionSentence & { kind: "flip", changes: ("cut" | "off")[],
 *   heads_of_layers: number[] }} FlipQuestion how many heads each layer has
 */
/** @typedef {{ from: number, to: number, head: [layer: number, head: number] | null }} BuiltChange the head from 1 */

/** @param {import("./screen.js").Asked<FlipQuestion>} asked */
export function flip({ root, question, texts, answer, change }) {
  const { words, queries, query, changes, heads_of_layers } = question;
  const box = make("div", "change");
  const told = make("p", "built");
  let from = query;
  let to = -1;
  /** @type {BuiltChange["head"]} */
  let head = null;
  const [, cutFrom, cutTo] = CUT_ANSWER.exec(answer ?? "") ?? [];
  const [, offLayer, offHead] = OFF_ANSWER.exec(answer ?? "") ?? [];
  if (cutTo) [from, to] = [Number(cutFrom) - 1, Number(cutTo) - 1];
  if (offHead) head = [Number(offLayer), Number(offHead)];

  function show() {
    const parts = changes.includes("cut") ? wordsOf() : [];
    if (changes.includes("off")) parts.push(headsOf());
    if (changes.length > 1) {
      parts.unshift(make("h2", "", texts.block));
      parts.splice(-1, 0, make("h2", "", texts.switch_off));
    }
    told.textContent = inWords();
    renew(box, [...parts, told]);
  }

  function wordsOf() {
    /** @param {number} at */
    const chooseFrom = (at) => build({ from: at, to, head: null });
    /** @param {number} at */
    const chooseTo = (at) => build({ from, to: at, head: null });
    const looks = wordRow(queries, { title: texts.from, chosen: from, choose: chooseFrom });
    const hidden = wordRow(words, { title: texts.to, chosen: to, choose: chooseTo });
    hidden.classList.add("struck");
    return [make("p", "name", texts.from), looks, make("p", "name", texts.to), hidden];
  }

  function headsOf() {
    const palette = getComputedStyle(root).getPropertyValue("--st-chart-categorical-colors").split(",");
    const rows = heads_of_layers.map((count, at) => {
      const layer = fill(texts.layer, { layer: at + 1 });
      const numbers = Array.from({ length: count }, (_, nth) => {
        const isOff = head?.[0] === at + 1 && head?.[1] === nth + 1;
        const name = fill(texts.head, { head: nth + 1 });
        const button = makeToggle(name, "number", isOff, () =>
          build({ from, to: -1, head: isOff ? null : [at + 1, nth + 1] }),
        );
        button.style.setProperty("--head", lookOf(palette, nth).colour);
        button.ariaLabel = `${layer}, ${name}`;
        return button;
      });
      return make("div", "switch", make("span", "name", layer), make("div", "numbers", ...numbers));
    });
    return make("div", "switches", ...rows);
  }

  /** @param {BuiltChange} built */
  function build(built) {
    ({ from, to, head } = built);
    show();
    const text = head ? `off,layer=${head[0]},head=${head[1]}` : to < 0 ? null : `cut,from=${from + 1},to=${to + 1}`;
    change(text, inWords());
  }

  function inWords() {
    if (head) return fill(texts.off, { layer: head[0], head: head[1] });
    return to < 0 ? "" : fill(texts.cut, { query: quoted(queries[from]), key: quoted(words[to]) });
  }
  show();
  return box;
}
