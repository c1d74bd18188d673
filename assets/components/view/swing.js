// On a first visit the second of two sentences begins as the first one. Then the one word in which they differ turns into
// its own, and the lines swing over to what the heads look at now.

import { elementsIn } from "../page/elements.js";
import { Lines } from "../pictures/lines.js";

/** @typedef {import("../pictures/curves.js").Curve} Curve */

const WAIT = 1600; // milliseconds in which one reads the first picture, whose lines draw themselves
const SWING = 1000;
const ENDING = ["pointerdown", "keydown", "wheel"]; // acts of the reader, who need not wait

let hasSwung = false; // once for each page that is loaded

// The one position at which two lists of words differ, or -1.
/** @param {string[]} one @param {string[]} other */
export function oneOther(one, other) {
  const different = one.flatMap((word, at) => (word === other[at] ? [] : [at]));
  return one.length === other.length && different.length === 1 ? different[0] : -1;
}

// The curves of the second sentence on their way: the strongest of each head comes from the strongest one of that head
// in the first sentence, the others fade in.
/** @param {Curve[]} from @param {Curve[]} to @param {number} share of the way, 0 to 1 @returns {Curve[]} */
export function swung(from, to, share) {
  const [starts, ends] = [strongestOfHeads(from), strongestOfHeads(to)];
  return to.map((curve) => {
    const start = ends.get(curve.head) === curve ? starts.get(curve.head) : undefined;
    if (!start) return { ...curve, strength: share * curve.strength };
    /** @type {(a: number, b: number) => number} */
    const mixed = (a, b) => a + share * (b - a);
    const points = curve.points.map((end, nth) => mixed(start.points[nth], end));
    return { ...curve, points, strength: mixed(start.strength, curve.strength) };
  });
}

/** @param {Curve[]} curves */
function strongestOfHeads(curves) {
  /** @type {Map<number, Curve>} */
  const strongest = new Map();
  for (const curve of curves)
    if (curve.weight > (strongest.get(curve.head)?.weight ?? 0)) strongest.set(curve.head, curve);
  return strongest;
}

/**
 * Swing the second of two pictures with lines, where their sentences differ in one word and the reader likes movement.
 * @param {HTMLElement} root of the view
 * @param {import("./head_view.js").Drawing[]} drawings
 */
export function swing(root, drawings) {
  const [first, second] = drawings;
  const at = second ? oneOther(first.panel.tokens, second.panel.tokens) : -1;
  if (hasSwung || at < 0 || matchMedia("(prefers-reduced-motion: reduce)").matches) return;
  const [start, picture] = [first.drawing, second.drawing];
  const parts = [second.head, second.box];
  const words = parts.flatMap((part) => elementsIn(part, `[data-at="${at}"] bdi`));
  if (!(start instanceof Lines && picture instanceof Lines && words.length)) return;
  hasSwung = true;
  /** @param {number} nth of the sentence whose word is shown */
  const show = (nth) => {
    for (const word of words) word.textContent = drawings[nth].panel.tokens[at];
  };
  const [from, to] = picture.range();
  let [frame, began] = [0, 0];
  const end = () => {
    cancelAnimationFrame(frame);
    for (const act of ENDING) root.removeEventListener(act, end, true);
    for (const part of parts) part.classList.remove("awaited");
    show(1);
    picture.update();
  };
  /** @param {number} now */
  const step = (now) => {
    began ||= now;
    const share = Math.max(0, (now - began - WAIT) / SWING);
    if (share >= 1 || !second.box.isConnected) return end();
    if (share && words[0].textContent !== second.panel.tokens[at]) {
      show(1);
      for (const word of words) word.classList.add("turned");
    }
    picture.curves = swung(start.curves, picture.curvesOf(from, to, 0, 0), share * share * (3 - 2 * share));
    picture.paint();
    frame = requestAnimationFrame(step);
  };
  for (const part of parts) part.classList.add("awaited");
  show(0);
  for (const act of ENDING) root.addEventListener(act, end, true);
  frame = requestAnimationFrame(step);
}
