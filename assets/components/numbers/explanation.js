// Where one number of a layer comes from, computed from what the browser has: the steps to a score, to a weight and to
// a number of a head's output, as mha_core/analysis/explanation.py has them.
import { required } from "../page/elements.js";

/** @typedef {import("./payload.js").Layer} Layer */
/** @typedef {{ head: number, row: number, column: number }} Place of a number in the matrices of a head */

/**
 * One step: what is done, and the number behind it. `factors` are what was multiplied for each of its terms; a step
 * without terms changes one number, from factors[0][0] by factors[1][0].
 * @typedef {object} Step
 * @property {string} name
 * @property {number} value
 * @property {string[]} labels
 * @property {ArrayLike<number>[]} factors
 * @property {ArrayLike<number>} terms
 * @property {number} [chosen] of a softmax which of its terms is the weight
 * @property {number} [sinks] of a softmax how many of its terms, the last ones, are sinks
 */

/**
 * A number with the steps to it, or why there are none.
 * @typedef {object} Explanation
 * @property {string} [symbol] of its matrix, where it has a title
 * @property {string} [from] the token of its row
 * @property {string | number} [to] that of its column, or the number of a dimension
 * @property {string} [id] of what the server was asked
 * @property {number | null} [value] null for −∞
 * @property {Step[]} [steps]
 * @property {string} [stage] the last stage of its path where that goes on beyond the number, as from a score to a weight
 * @property {import("./cell_path.js").Mixed} [mixed] where the values are here that its row of weights mixes
 * @property {{ q: string, k: string, output: string }} [symbols] of the vectors
 * @property {number} [shared] how many heads share the key
 * @property {string} [code] PyTorch code that prints the number, where the server has said it
 * @property {string} [latex] its formula
 * @property {string[]} [edits] in words
 * @property {{ text: string, href: string } | null} [without] where it is computed without the edge
 * @property {string} [refusal]
 */

const MAX_SHORTFALL = 1e-5; // by which rounding lets a row sum to less than 1

/**
 * The steps to a number; null where the browser does not have what it is made of.
 * @param {Layer} layer
 * @param {string} name
 * @param {Place} place
 * @param {string[]} keys the tokens that are looked at
 * @param {string} sink the word for a sink among the keys
 * @returns {Step[] | null}
 */
export function stepsTo(layer, name, place, keys, sink = "sink") {
  if (!layer.q) return null;
  const asked = { layer, place, keys, sink };
  if (name === "scores") return pair(asked).slice(0, 1);
  if (name === "weights") return weighed(asked, pair(asked));
  return name === "output" && layer.v ? mixture(asked) : null;
}

/** @typedef {{ layer: Layer, place: Place, keys: string[], sink: string }} AskedPlace */

// From the product of a query and a key to the input of the softmax.
/** @param {AskedPlace} asked */
function pair({ layer, place: { head, row, column } }) {
  const [q, k] = [layer.vector("q", head, row), layer.vector("k", head, column)];
  /** @type {Step[]} */
  const steps = [];
  layer.logit(head, row, column, (step, value, by) => {
    const before = steps.at(-1)?.value ?? value;
    const products = { labels: numbers(q.length), factors: [q, k], terms: Array.from(q, (one, at) => one * k[at]) };
    const changed = { labels: [], factors: [[before], [by]], terms: [] };
    steps.push({ name: step, value, ...(step === "score" ? products : changed) });
  });
  return steps;
}

// On to the weight.
/** @param {AskedPlace} asked @param {Step[]} steps */
function weighed(asked, steps) {
  const { layer, place } = asked;
  const { head, row, column } = place;
  if (layer.range || layer.visible) hide(steps, layer.sees(head, row, column));
  const softmax = shares(asked);
  steps.push(softmax);
  if (layer.isPatched(head, row, column)) {
    const value = layer.weight(head, row, column);
    steps.push({ name: "patch", value, labels: [], factors: [[softmax.value], [value]], terms: [] });
  }
  return steps;
}

// The mask stands before the temperature: what it hides is −∞ from there on.
/** @param {Step[]} steps @param {boolean} seen */
function hide(steps, seen) {
  const at = steps.findIndex(({ name }) => name === "temperature");
  const [before, after] = at < 0 ? [steps, []] : [steps.slice(0, at), steps.slice(at)];
  const value = seen ? required(before.at(-1), "step").value : Number.NEGATIVE_INFINITY;
  const others = after.map((step) => (seen ? step : { ...step, value, factors: [[value], step.factors[1]] }));
  steps.splice(before.length, after.length, { name: "mask", value, labels: [], factors: [], terms: [] }, ...others);
}

// The share of each key in a row, and of a sink if the row sums to less than 1.
/** @param {AskedPlace} asked */
function shares({ layer, place: { head, row, column }, keys, sink }) {
  const scores = keys.map((_, key) => (layer.sees(head, row, key) ? layer.logit(head, row, key) : -Infinity));
  const sum = layer.logSumExp(head, row);
  const terms = scores.map((score) => (score === -Infinity ? 0 : Math.exp(score - sum)));
  const rest = 1 - terms.reduce((all, one) => all + one, 0);
  const labels = [...keys];
  const value = terms[column];
  if (rest > MAX_SHORTFALL && sum > -Infinity) {
    labels.push(sink);
    scores.push(Math.log(rest) + sum);
    terms.push(rest);
  }
  const largest = scores.reduce((most, one) => Math.max(most, one), -Infinity);
  const powers = scores.map((score) => (score === -Infinity ? 0 : Math.exp(score - largest)));
  const sinks = labels.length - keys.length;
  return { name: "softmax", value, labels, factors: [scores, powers], terms, chosen: column, sinks };
}

/** @param {AskedPlace} asked */
function mixture({ layer, place: { head, row, column }, keys }) {
  const weights = layer.row(head, row);
  const values = Float32Array.from(keys, (_, key) => layer.vector("v", head, key)[column]);
  const terms = Array.from(weights, (weight, key) => weight * values[key]);
  const sum = terms.reduce((all, one) => all + one, 0);
  /** @type {Step[]} */
  const steps = [{ name: "mixture", value: sum, labels: keys, factors: [weights, values], terms }];
  if (layer.isPatchedOutput(head, row, column)) {
    const value = layer.output(head, row)[column];
    steps.push({ name: "patch", value, labels: [], factors: [[sum], [value]], terms: [] });
  }
  return steps;
}

/** @param {number} count */
const numbers = (count) => Array.from({ length: count }, (_, at) => String(at + 1));
