// The sentence about each stage of the path of one cell (cell_path.js), with its numbers.
import { countDone, partialSum } from "../numbers/cell_path.js";
import { exact, fill, written } from "../page/wording.js";

/** @typedef {import("../numbers/cell_path.js").CellPath} CellPath */
/** @typedef {import("../numbers/explanation.js").Step} Step */
/** @typedef {(name: string, values?: Record<string, string | number>) => string} Say a sentence with these values */

const ARRIVES = 0.2; // progress of the exponentials at which the score reaches its line

// How many lines have their exponential at a progress of that stage, and how far the score is on its way to its line.
/** @param {number} part @param {number} count */
export const powersDone = (part, count) => countDone(Math.max(part - ARRIVES, 0) / (1 - ARRIVES), count);
/** @param {number} part */
export const arrivalOf = (part) => Math.min(part / ARRIVES, 1);

/** @param {number} value */
export const inBrackets = (value) => (value < 0 ? `(${written(value)})` : written(value));

// Is a score divided by √d_k?
/** @param {number} by @param {CellPath} path */
export const isRoot = (by, { score }) => Math.abs(by * Math.sqrt(score.terms.length) - 1) < 1e-5;

/**
 * The sentence about a moment of the path.
 * @param {CellPath} path
 * @param {{ at: number, part: number }} moment the stage, and its progress
 * @param {{ query: string, key: string, head: number, heads: number }} names the words, the head and how many share the key
 * @param {Record<string, string>} texts
 */
export function sentenceOf(path, { at, part }, names, texts) {
  const { score, changes } = path;
  const count = score.terms.length;
  /** @type {Say} */
  const say = (name, values = {}) => fill(texts[name], { ...names, width: count, ...values });
  const name = path.stages[at];
  if (at === 0 && part === 0) return say("start");
  if (name === "vectors") return say(names.heads > 1 ? "vectors_shared" : "vectors");
  if (name === "products") {
    const done = countDone(part, count);
    if (part < 1) return say("products_some", { done, count, sum: written(partialSum(score.terms, done)) });
    return say("products", { value: written(score.value), count });
  }
  const change = changes.findIndex((one) => one.name === name);
  if (change >= 0) return ofChange(path, changes[change], changes[change - 1] ?? score, say);
  return ofRow(path, name, part, say);
}

/**
 * @param {CellPath} path
 * @param {Step} change
 * @param {Step} before
 * @param {Say} say
 */
function ofChange(path, { name, value, factors }, before, say) {
  if (name === "mask") return say(path.hidden ? "mask_hides" : "mask_shows", { value: written(value) });
  const by = factors[1][0];
  const values = { before: written(before.value), value: written(value), by: inBrackets(by) };
  const isOwn = name === "scale" && !isRoot(by, path);
  return say(isOwn ? "scale_own" : name, { ...values, d_k: path.score.terms.length, root: written(1 / by) });
}

// The number of keys, the sink included, in the first lines.
/** @param {CellPath["lines"]} lines @param {number} done */
const countKeys = (lines, done = lines.length) => lines.slice(0, done).reduce((all, { keys }) => all + keys.length, 0);

/**
 * @param {CellPath} path
 * @param {string} name
 * @param {number} part
 * @param {Say} say
 */
function ofRow({ lines, chosen, largest, patch, patchedOutput, ...path }, name, part, say) {
  const { power, share, score } = lines[chosen];
  const sum = written(path.sum);
  switch (name) {
    case "powers": {
      const done = powersDone(part, lines.length);
      const powers = lines.map((line) => line.power);
      const some = { done: countKeys(lines, done), count: countKeys(lines), sum: written(partialSum(powers, done)) };
      if (part < 1) return say("powers_some", some);
      return say("powers", { score: written(score), largest: inBrackets(largest), power: written(power), sum });
    }
    case "shares":
      return say("shares", { power: written(power), sum, weight: exact(share) });
    case "patch":
      return patch ? say("patch", { before: exact(patch.before), value: exact(patch.after) }) : say("patch_other");
    default: {
      const values = lines.filter(({ kind }) => kind !== "sink");
      const done = countDone(part, lines.length);
      if (part < 1) return say("mixture_some", { done: countKeys(values, done), count: countKeys(values) });
      return say(patchedOutput ? "mixture_patched" : "mixture");
    }
  }
}
