// The path of one cell of a head: the products of a query and a key, their score, the softmax of its row, the mixture
// of values. Its stages are the steps of an explanation (explanation.js) and what becomes of them.
import { required } from "../page/elements.js";
import { stepsTo } from "./explanation.js";

/** @typedef {import("./payload.js").Layer} Layer */
/** @typedef {import("./explanation.js").Step} Step */
/** @typedef {import("./explanation.js").Place} Place */

/**
 * A line of the softmax: a key, all keys that have no line of their own, or the sink.
 * @typedef {object} PathLine
 * @property {"key" | "others" | "sink"} kind
 * @property {number[]} keys
 * @property {number} score of one key or the sink
 * @property {number} power e^(score − the largest of the row), or a sum of these
 * @property {number} share the power over the sum of all
 * @property {number} weight the share, or what a change puts in its place
 * @property {Float64Array} part weight × value, one number for each of d_v; nothing of a sink
 */

/**
 * @typedef {object} CellPath
 * @property {string[]} stages by their names, in their order
 * @property {number} length the stages that can be reached: the path of a hidden cell ends at the mask
 * @property {Step} score q · k with its products
 * @property {Step[]} changes of the score before the softmax: scale, cap, bias, mask, temperature
 * @property {boolean} hidden
 * @property {number} largest of the scores of the row
 * @property {number} sum of the powers of the row
 * @property {PathLine[]} lines
 * @property {number} chosen the line of the key
 * @property {{ before: number, after: number } | null} patch the weight of the cell where a change replaces it
 * @property {Float32Array} output of the head
 * @property {boolean} patchedOutput does a change replace numbers of it?
 */

/**
 * The path of a cell; null where the layer has no queries, keys and values. Of a long row the keys with the largest
 * weights have a line of their own, `limit` lines in all; a path of the cell always has one.
 * @param {Layer} layer
 * @param {Place} place
 * @param {string[]} keys
 * @returns {CellPath | null}
 */
export function cellPathOf(layer, place, keys, limit = Infinity) {
  if (!layer.q || !layer.v) return null;
  const { head, row, column } = place;
  const [score, ...others] = required(stepsTo(layer, "weights", place, keys), "way to a weight");
  const at = others.findIndex(({ name }) => name === "softmax");
  const [changes, softmax] = [others.slice(0, at), others[at]];
  const scores = Array.from(softmax.factors[0]);
  const largest = scores.reduce((most, one) => Math.max(most, one), -Infinity);
  const powers = scores.map((one) => (one === -Infinity ? 0 : Math.exp(one - largest)));
  const sum = powers.reduce((all, one) => all + one, 0);
  const hidden = !layer.sees(head, row, column);
  /** @param {number} key */
  const isReplaced = (key) => layer.sees(head, row, key) && layer.isPatched(head, row, key);
  const stages = ["vectors", "products", ...changes.map(({ name }) => name), "powers", "shares"];
  if (keys.some((_, key) => isReplaced(key))) stages.push("patch");
  stages.push("mixture");
  const lines = linesOfRow(layer, place, { scores, powers, sum }, limit);
  const output = layer.output(head, row);
  return {
    stages,
    length: hidden ? stages.indexOf("mask") + 1 : stages.length,
    score,
    changes,
    hidden,
    largest,
    sum,
    lines,
    chosen: lines.findIndex((line) => line.kind === "key" && line.keys[0] === column),
    patch: isReplaced(column) ? { before: softmax.value, after: layer.weight(head, row, column) } : null,
    output,
    patchedOutput: output.some((_, dimension) => layer.isPatchedOutput(head, row, dimension)),
  };
}

/**
 * @param {Layer} layer
 * @param {Place} place
 * @param {{ scores: number[], powers: number[], sum: number }} row
 * @param {number} limit
 * @returns {PathLine[]}
 */
function linesOfRow(layer, { head, row, column }, { scores, powers, sum }, limit) {
  const weights = layer.row(head, row);
  const every = Array.from(weights, (_, key) => key);
  const largest = every.toSorted((a, b) => weights[b] - weights[a] || a - b);
  const own = every.length <= limit ? every : [column, ...largest.filter((key) => key !== column)].slice(0, limit - 1);
  const others = every.filter((key) => !own.includes(key));
  /** @type {(list: ArrayLike<number>, keys: number[]) => number} */
  const total = (list, keys) => keys.reduce((all, key) => all + list[key], 0);
  /** @type {(kind: PathLine["kind"], keys: number[]) => PathLine} */
  const line = (kind, keys) => ({
    kind,
    keys,
    score: scores[keys[0]],
    power: total(powers, keys),
    share: sum ? total(powers, keys) / sum : 0,
    weight: total(weights, keys),
    part: mixed(layer, head, keys, weights),
  });
  const lines = own.toSorted((a, b) => a - b).map((key) => line("key", [key]));
  if (others.length) lines.push({ ...line("others", others), score: NaN });
  if (scores.length > every.length) lines.push({ ...line("sink", [every.length]), weight: 0 });
  return lines;
}

// The sum of these keys' weights times their values.
/**
 * @param {Layer} layer
 * @param {number} head
 * @param {number[]} keys
 * @param {Float32Array} weights
 */
function mixed(layer, head, keys, weights) {
  const part = new Float64Array(layer.vector("v", head, 0).length);
  for (const key of keys) {
    if (!weights[key]) continue; // of a sink, which has no value, and of hidden keys
    layer.vector("v", head, key).forEach((value, dimension) => {
      part[dimension] += weights[key] * value;
    });
  }
  return part;
}

/**
 * Where a position is on a path: the stage, and how much of it is done, 0 to 1. Positions count in stages.
 * @param {CellPath} path
 * @param {number} position
 */
export function momentOf({ length }, position) {
  const reached = Math.min(Math.max(position, 0), length);
  const at = Math.max(Math.ceil(reached) - 1, 0);
  return { at, part: reached - at };
}

// How many of some terms have been added when so much of their stage is done.
/** @param {number} part @param {number} count */
export const countDone = (part, count) => Math.floor(part * count + 1e-9);

// The sum of the first terms.
/** @param {ArrayLike<number>} terms @param {number} count */
export function partialSum(terms, count) {
  let sum = 0;
  for (let at = 0; at < count; at++) sum += terms[at];
  return sum;
}

/**
 * The output after the first lines have been added: the output itself after the last.
 * @param {CellPath} path
 * @param {number} count
 */
export function partialOutput({ lines, output }, count) {
  if (count >= lines.length) return Float64Array.from(output);
  const sums = new Float64Array(output.length);
  for (const { part } of lines.slice(0, count)) {
    part.forEach((value, dimension) => {
      sums[dimension] += value;
    });
  }
  return sums;
}
