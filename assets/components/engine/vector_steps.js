// Where a number of Q, K or V of a small model comes from: the products of X and a column of W.

/**
 * The steps to a number of Q, K or V: a row of X, or in latent attention of cᴷⱽ, times a column of W; else null.
 * @param {import("./sentence.js").ReadSentence} read
 * @param {import("../view/head_view.js").AskedNumber} asked
 * @returns {import("../numbers/explanation.js").Step[] | null}
 */
export function stepsToVector({ model, pass }, { name, layer, head, row, column }) {
  const { facts, width, dK } = model;
  if (!"qkv".includes(name)) return null;
  const attention = `layers.${layer}.attention`;
  const x = pass.layers[layer].x.subarray(row * width, (row + 1) * width);
  /** @type {(matrix: string, at: number, vector: Float32Array) => number[]} */
  const weightsOf = (matrix, at, { length }) => [
    ...model.tensor(`${attention}.${matrix}.weight`).subarray(at * length, (at + 1) * length),
  ];
  if (model.isLatent) {
    if (name === "q") return sumOf("projection", [...x], weightsOf("q_up", head * dK + column, x));
    const short = model.latentVectors(x, attention);
    const at = (2 * head + (name === "v" ? 1 : 0)) * dK + column; // of each head the keys, then the values
    return sumOf("latent", [...short], weightsOf("kv_up", at, short));
  }
  const at = (name === "q" ? head : Math.floor((head * facts.kv_heads) / facts.h)) * dK + column;
  const bias = model.tensor(`${attention}.${name}.bias`)[at];
  return sumOf("projection", [...x, 1], [...weightsOf(name, at, x), bias], "b");
}

/**
 * One step, a sum of products; `last` names its last term where that has no number.
 * @param {string} name
 * @param {number[]} one
 * @param {number[]} other
 * @param {string[]} last
 * @returns {import("../numbers/explanation.js").Step[]}
 */
function sumOf(name, one, other, ...last) {
  const terms = one.map((number, i) => number * other[i]);
  const labels = [...terms.keys()].map((at) => String(at + 1));
  labels.splice(labels.length - last.length, last.length, ...last);
  return [{ name, value: terms.reduce((sum, term) => sum + term, 0), labels, factors: [one, other], terms }];
}
