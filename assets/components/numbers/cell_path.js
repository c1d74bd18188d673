// The path of a number: the products that are added up, what changes their sum, and the softmax of its row; of a weight
// also what becomes of it, the mixture of values. Its stages are the steps of an explanation (explanation.js).

/** @typedef {import("./payload.js").Layer} Layer */
/** @typedef {import("./explanation.js").Step} Step */
/** @typedef {import("./explanation.js").Place} Place */
/** @typedef {{ layer: Layer, place: Place }} Mixed the layer whose values a row of weights mixes, and the weight */

/**
 * A line of the softmax: a key, all keys that have no line of their own, or the sink.
 * @typedef {object} PathLine
 * @property {"key" | "others" | "sink"} kind
 * @property {number[]} keys
 * @property {number} score of one key or the sink
 * @property {number} power e^(score − the largest of the row), or a sum of these
 * @property {number} share the power over the sum of all
 * @property {number} weight the share, or what a change puts in its place
 * @property {Float64Array} part weight × value, one number for each of d_v; nothing of a sink or without values
 */

/**
 * @typedef {object} CellPath
 * @property {string[]} stages by their names, in their order
 * @property {number} length the stages that can be reached: the path of a hidden cell ends at the mask
 * @property {number} end the stages up to the number itself
 * @property {Step} products the first step, a sum
 * @property {Step[]} changes of the sum: scale, cap, bias, mask, temperature, norm, …
 * @property {boolean} hidden
 * @property {Step | null} softmax
 * @property {Step[]} after what changes a weight: a patch, rounding
 * @property {number} largest of the scores of the row
 * @property {number} sum of the powers of the row
 * @property {PathLine[]} lines of the row
 * @property {number} chosen the line of the key
 * @property {Float32Array} output of the head; empty without values
 * @property {boolean} patchedOutput does a change replace numbers of it?
 */

/**
 * The path of a number from its steps. Of a long row the keys with the largest weights have a line of their own, `limit`
 * lines in all; the number itself always has one.
 * @param {Step[]} steps
 * @param {Mixed | null} mixed
 * @returns {CellPath}
 */
export function cellPathOf(steps, mixed = null, limit = Infinity) {
  const [products, ...others] = steps;
  const at = others.findIndex(({ name }) => name === "softmax");
  const [changes, after] = at < 0 ? [others, []] : [others.slice(0, at), others.slice(at + 1)];
  const softmax = others[at] ?? null;
  const hidden = changes.some(({ name, value }) => name === "mask" && !Number.isFinite(value));
  const stages = [...(products.factors.length ? ["vectors"] : []), "products", ...changes.map(({ name }) => name)];
  if (softmax) stages.push("powers", "shares", ...after.map(({ name }) => name));
  if (mixed && !stages.includes("patch") && isPatchedRow(mixed)) stages.push("patch");
  const end = stages.length;
  if (mixed) stages.push("mixture");
  return {
    stages,
    length: hidden ? stages.indexOf("mask") + 1 : stages.length,
    end,
    products,
    changes,
    hidden,
    softmax,
    after,
    ...softmaxRow(softmax, after, mixed, limit),
    ...outputOf(mixed),
  };
}

/** @param {Mixed} mixed */
function isPatchedRow({ layer, place: { head, row } }) {
  const keys = Array.from({ length: layer.nKey }, (_, key) => key);
  return keys.some((key) => layer.sees(head, row, key) && layer.isPatched(head, row, key));
}

/** @param {Mixed | null} mixed */
function outputOf(mixed) {
  if (!mixed) return { output: new Float32Array(0), patchedOutput: false };
  const { layer, place } = mixed;
  const output = layer.output(place.head, place.row);
  return { output, patchedOutput: output.some((_, at) => layer.isPatchedOutput(place.head, place.row, at)) };
}

/** @param {Step | null} softmax @param {Step[]} after @param {Mixed | null} mixed @param {number} limit */
function softmaxRow(softmax, after, mixed, limit) {
  /** @type {PathLine[]} */
  const lines = [];
  if (!softmax) return { largest: NaN, sum: 0, lines, chosen: -1 };
  const { labels, sinks = 0, chosen: column = 0 } = softmax;
  const [scores, powers] = softmax.factors.map((factor) => Array.from(factor));
  const count = labels.length - sinks;
  /** @type {ArrayLike<number>} */
  const weights = mixed
    ? mixed.layer.row(mixed.place.head, mixed.place.row)
    : Array.from(softmax.terms, (share, key) => (key === column ? (after.at(-1)?.value ?? share) : share));
  const every = Array.from({ length: count }, (_, key) => key);
  const largest = every.toSorted((a, b) => weights[b] - weights[a] || a - b);
  const own = count <= limit ? every : [column, ...largest.filter((key) => key !== column)].slice(0, limit - 1);
  const others = every.filter((key) => !own.includes(key));
  /** @type {(list: ArrayLike<number>, keys: number[]) => number} */
  const total = (list, keys) => keys.reduce((all, key) => all + list[key], 0);
  const sum = powers.reduce((all, one) => all + one, 0);
  /** @type {(kind: PathLine["kind"], keys: number[]) => PathLine} */
  const line = (kind, keys) => ({
    kind,
    keys,
    score: scores[keys[0]] ?? -Infinity, // JSON has no infinity
    power: total(powers, keys),
    share: sum ? total(powers, keys) / sum : 0,
    weight: total(weights, keys),
    part: mixed ? partOf(mixed, keys, weights) : new Float64Array(0),
  });
  lines.push(...own.toSorted((a, b) => a - b).map((key) => line("key", [key])));
  if (others.length) lines.push({ ...line("others", others), score: NaN });
  if (sinks) lines.push({ ...line("sink", [count]), weight: 0 });
  return {
    largest: scores.reduce((most, one) => Math.max(most, one ?? -Infinity), -Infinity),
    sum,
    lines,
    chosen: lines.findIndex(({ kind, keys }) => kind === "key" && keys[0] === column),
  };
}

// The sum of these keys' weights times their values.
/** @param {Mixed} mixed @param {number[]} keys @param {ArrayLike<number>} weights */
function partOf({ layer, place }, keys, weights) {
  const part = new Float64Array(layer.vector("v", place.head, 0).length);
  for (const key of keys) {
    if (!weights[key]) continue; // of a sink, which has no value, and of hidden keys
    layer.vector("v", place.head, key).forEach((value, dimension) => {
      part[dimension] += weights[key] * value;
    });
  }
  return part;
}

/**
 * Where a position is on a path: the stage, and how much of it is done, 0 to 1. Positions count in stages.
 * @param {{ length: number }} path
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
