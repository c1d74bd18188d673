// A small model in the browser: one pass of a sentence, with edits, and its answers (mha_core/training/model.py). Numbers
// are added up in double precision and kept in single precision, so they differ from torch's by rounding alone.
import { Layer } from "../numbers/payload.js";
import { required } from "../page/elements.js";
import { editRule } from "./edits.js";

/** @typedef {import("./edits.js").Edit} Edit */
/**
 * The header of a model's part (mha_core/static/parts.py). `scores` has for each question the share of right answers.
 * @typedef {object} ModelFacts
 * @property {string} name
 * @property {string} architecture
 * @property {string} language
 * @property {number} h
 * @property {number} d_model
 * @property {string[]} layers "block" or "lookup"
 * @property {number} kv_heads
 * @property {string} source
 * @property {number} steps
 * @property {number} seed
 * @property {Record<string, number[]>} questions the heads of each
 * @property {Record<string, number>} temperatures
 * @property {Record<string, number>} scores
 * @property {[layer: number, head: number, role: string, score: number][]} roles
 * @property {Record<string, number[]>} shapes of its tensors, in their order
 */
/**
 * One layer of a pass: its input x, the layer as pictures draw it, and what its heads give, (query, head · d_v).
 * @typedef {{ x: Float32Array, layer: Layer, heads: Float32Array }} LayerPass
 */
/** @typedef {{ layers: LayerPass[], x: Float32Array }} Pass `x` before the last layer */

const EPSILON = 1e-5; // of a layer norm
const LATENT_EPSILON = 1e-6; // of the norm of a latent vector
const SINGLE = new Float32Array(1 << 16).map((_, bits) => {
  const [exponent, fraction] = [(bits >> 10) & 31, bits & 1023];
  const size = exponent ? (1 + fraction / 1024) * 2 ** (exponent - 15) : fraction * 2 ** -24;
  return bits >> 15 ? -size : size;
});

export class SmallModel {
  /** @param {import("../numbers/blobs.js").Bytes} bytes 4 with the length of the header, the header, half-precision numbers: their low bytes, then their high bytes */
  constructor(bytes) {
    const start = 4 + new DataView(bytes.buffer, bytes.byteOffset).getUint32(0, true);
    /** @type {ModelFacts} */
    this.facts = JSON.parse(new TextDecoder().decode(bytes.subarray(4, start)));
    const count = (bytes.length - start) / 2;
    const [low, high] = [bytes.subarray(start, start + count), bytes.subarray(start + count)];
    /** @type {Map<string, Float32Array>} */
    this.tensors = new Map();
    let at = 0;
    for (const [name, shape] of Object.entries(this.facts.shapes)) {
      const tensor = new Float32Array(shape.reduce((size, axis) => size * axis, 1));
      for (let i = 0; i < tensor.length; i++, at++) tensor[i] = SINGLE[low[at] | (high[at] << 8)];
      this.tensors.set(name, tensor);
    }
    const { d_model: width, h } = this.facts;
    this.width = width;
    this.dK = width / h;
    this.isDecoder = this.facts.architecture.startsWith("decoder");
    this.isLatent = this.facts.architecture.endsWith("latent");
  }

  /** @param {string} name */
  tensor = (name) => required(this.tensors.get(name), name);

  // W x + b for each row of x; nOut is a multiple of 4. (row, in) → (row, out)
  /** @param {Float32Array} x @param {string} name */
  linear(x, name) {
    const [weight, bias] = [this.tensor(`${name}.weight`), this.tensors.get(`${name}.bias`)];
    const [nOut, nIn] = this.facts.shapes[`${name}.weight`];
    const columns = new Float32Array((x.length / nIn) * nOut);
    if (bias) for (let at = 0; at < columns.length; at += nOut) columns.set(bias, at);
    for (let from = 0, at = 0; from < x.length; from += nIn)
      for (let out = 0; out < nOut; out += 4) {
        let [a, b, c, d] = [0, 0, 0, 0]; // four at once: x is read a quarter as often
        for (let i = 0, j = out * nIn; i < nIn; i++, j++) {
          const one = x[from + i];
          a += one * weight[j];
          b += one * weight[j + nIn];
          c += one * weight[j + 2 * nIn];
          d += one * weight[j + 3 * nIn];
        }
        columns[at++] += a;
        columns[at++] += b;
        columns[at++] += c;
        columns[at++] += d;
      }
    return columns;
  }

  // LN(x), row by row.
  /** @param {Float32Array} x @param {string} name */
  norm(x, name) {
    const [weight, bias] = [this.tensor(`${name}.weight`), this.tensor(`${name}.bias`)];
    const width = weight.length;
    const normed = new Float32Array(x.length);
    for (let from = 0; from < x.length; from += width) {
      let [mean, variance] = [0, 0];
      for (let i = 0; i < width; i++) mean += x[from + i] / width;
      for (let i = 0; i < width; i++) variance += (x[from + i] - mean) ** 2 / width;
      const scale = 1 / Math.sqrt(variance + EPSILON);
      for (let i = 0; i < width; i++) normed[from + i] = (x[from + i] - mean) * scale * weight[i] + bias[i];
    }
    return normed;
  }

  /**
   * One pass of a sentence, with these edits.
   * @param {number[]} ids of its words
   * @param {Edit[]} edits
   * @returns {Pass}
   */
  pass(ids, edits = []) {
    const { facts, width } = this;
    const [embedding, position] = [this.tensor("embedding"), this.tensor("position")];
    const isOrdered = !edits.some(({ kind }) => kind === "position");
    /** @type {Float32Array} */
    let x = new Float32Array(ids.length * width);
    for (const [row, id] of ids.entries())
      for (let i = 0; i < width; i++)
        x[row * width + i] = embedding[id * width + i] + (isOrdered ? position[row * width + i] : 0);
    /** @type {LayerPass[]} */
    const layers = [];
    let before = x;
    for (const number of facts.layers.keys()) {
      const layer = this.#attend(x, number, edits, ids.length);
      layers.push(layer);
      before = x;
      if (number < facts.layers.length - 1) x = this.#result(x, layer.heads, number, edits);
    }
    return { layers, x: before };
  }

  /** @param {Float32Array} stream @param {number} number @param {Edit[]} edits @param {number} length @returns {LayerPass} */
  #attend(stream, number, edits, length) {
    const { facts, dK, isDecoder: isCausal } = this;
    const name = `layers.${number}.attention`;
    const x = this.norm(stream, `layers.${number}.norm`);
    const vectors = this.isLatent
      ? this.#latent(x, name)
      : ["q", "k", "v"].map((one) => this.#heads(this.linear(x, `${name}.${one}`), length));
    const rule = editRule(edits, { layer: number, length, h: facts.h, dK, isCausal });
    return { x, ...attended(number, vectors, rule, length, facts.h, dK) };
  }

  /**
   * The latent vectors cᴷⱽ of tokens, one after another, from their vectors `x`, in a layer's attention by its name.
   * @param {Float32Array} x
   * @param {string} name
   */
  latentVectors(x, name) {
    const short = this.linear(x, `${name}.kv_down`);
    const weight = this.tensor(`${name}.kv_norm.weight`);
    for (let from = 0; from < short.length; from += weight.length) {
      let square = 0;
      for (let i = 0; i < weight.length; i++) square += short[from + i] ** 2 / weight.length;
      for (let i = 0; i < weight.length; i++) short[from + i] *= weight[i] / Math.sqrt(square + LATENT_EPSILON);
    }
    return short;
  }

  // Keys and values from one latent vector for each token.
  /** @param {Float32Array} x @param {string} name */
  #latent(x, name) {
    const length = x.length / this.width;
    const both = this.#heads(this.linear(this.latentVectors(x, name), `${name}.kv_up`), length);
    const ofHead = length * this.dK; // of each head its keys, then its values
    /** @param {number} part */
    const half = (part) =>
      Float32Array.from({ length: both.length / 2 }, (_, i) => both[i + (Math.floor(i / ofHead) + part) * ofHead]);
    return [this.#heads(this.linear(x, `${name}.q_up`), length), half(0), half(1)];
  }

  // (row, head · d) → (head, row, d)
  /** @param {Float32Array} columns @param {number} length */
  #heads(columns, length) {
    const [all, width] = [columns.length / length, this.dK];
    const split = new Float32Array(columns.length);
    for (let row = 0, at = 0; row < length; row++)
      for (let column = 0; column < all; column++, at++)
        split[(Math.floor(column / width) * length + row) * width + (column % width)] = columns[at];
    return split;
  }

  // The stream after a layer, from the stream before it and the outputs of its heads.
  /** @param {Float32Array} x @param {Float32Array} heads (row, head · d_v) @param {number} number @param {Edit[]} edits */
  #result(x, heads, number, edits) {
    const name = `layers.${number}`;
    const isAlone = edits.some(({ kind, layer }) => kind === "concatenated" && (layer ?? number) === number);
    const output = isAlone ? heads : this.linear(heads, `${name}.attention.o`);
    if (this.facts.layers[number] === "lookup") return output;
    const sum = output.map((one, at) => one + x[at]);
    const inner = this.linear(this.norm(sum, `${name}.mlp_norm`), `${name}.mlp_in`).map(gelu);
    return this.linear(inner, `${name}.mlp_out`).map((one, at) => one + sum[at]);
  }

  /**
   * How probable words are as answers to a question at some tokens. (token, word)
   * @param {Pass} pass
   * @param {string} question
   * @param {number[]} tokens
   * @param {number[]} words by their numbers
   * @param {Edit[]} edits
   */
  probabilities(pass, question, tokens, words, edits = []) {
    const { facts, width, dK } = this;
    const last = required(pass.layers.at(-1), "last layer");
    const asked = new Set(facts.questions[question]);
    const heads = new Float32Array(tokens.length * width);
    const x = new Float32Array(heads.length);
    for (const [row, token] of tokens.entries())
      for (let i = 0; i < width; i++) {
        if (asked.has(Math.floor(i / dK))) heads[row * width + i] = last.heads[token * width + i];
        x[row * width + i] = pass.x[token * width + i];
      }
    const read = this.norm(this.#result(x, heads, pass.layers.length - 1, edits), "norm");
    const [embedding, bias, temperature] = [
      this.tensor("embedding"),
      this.tensor("bias"),
      facts.temperatures[question] ?? 1,
    ];
    return tokens.map((_, row) => {
      const logits = words.map((word) => {
        let sum = bias[word];
        for (let i = 0; i < width; i++) sum += read[row * width + i] * embedding[word * width + i];
        return sum / temperature;
      });
      const largest = logits.reduce((most, one) => Math.max(most, one), -Infinity);
      const powers = logits.map((one) => Math.exp(one - largest));
      const all = powers.reduce((sum, one) => sum + one, 0);
      return powers.map((one) => one / all);
    });
  }
}

/**
 * The layer of these q, k and v of each head under a rule. The layer computes weights and outputs, once it has the
 * logarithm of the sum of each row.
 * @param {number} number
 * @param {Float32Array[]} vectors
 * @param {import("./edits.js").EditedRule} rule
 * @param {number} length
 * @param {number} h
 * @param {number} dK
 */
function attended(number, [q, k, v], { scale, temperature, visible, weights, outputs }, length, h, dK) {
  const kvHeads = k.length / length / dK;
  const lse = new Float64Array(h * length);
  /** @type {(data: Uint8Array | Float32Array | Float64Array | null, ...shape: number[]) => import("../numbers/payload.js").Tensor | null} */
  const tensor = (data, ...shape) => data && { shape, data };
  /** @type {Partial<Record<import("../numbers/payload.js").ArrayName, ReturnType<typeof tensor>>>} */
  const tensors = {
    q: tensor(q, h, length, dK),
    k: tensor(k, kvHeads, length, dK),
    v: tensor(v, kvHeads, length, dK),
    lse: tensor(lse, h, length),
    patched_weights: tensor(weights, h, length, length),
    patched_outputs: tensor(outputs, h, length, dK),
    visible: tensor(visible, h, length, Math.ceil(length / 8)),
  };
  const heads = [...Array(h).keys()];
  const kv = heads.map((head) => Math.floor((head * kvHeads) / h));
  const described = { number, heads, n_heads: h, scale, soft_cap: null, temperature, kv };
  const layer = new Layer(described, (name) => tensors[name] ?? null);
  const outputsOfHeads = new Float32Array(q.length);
  const logits = new Float64Array(length);
  for (const head of heads)
    for (let query = 0; query < length; query++) {
      for (let key = 0; key < length; key++)
        logits[key] = layer.sees(head, query, key) ? layer.logit(head, query, key) : -Infinity;
      const largest = Math.max(...logits);
      const sum = logits.reduce((all, one) => all + (Math.exp(one - largest) || 0), 0);
      lse[head * length + query] = largest + Math.log(sum);
      outputsOfHeads.set(layer.output(head, query), (query * h + head) * dK);
    }
  return { layer, heads: outputsOfHeads };
}

/** @param {number} x */
const gelu = (x) => 0.5 * x * (1 + errorFunction(x * Math.SQRT1_2));

// erf(x) = 2/√π · exp(−x²) · (x + 2x³/3 + 4x⁵/15 + …), ±1e-9; beyond 4.5 it is 1.
/** @param {number} x */
export function errorFunction(x) {
  if (Math.abs(x) > 4.5) return Math.sign(x);
  let [sum, term] = [x, x];
  for (let n = 3; Math.abs(term) > 1e-10; n += 2) {
    term *= (2 * x * x) / n;
    sum += term;
  }
  return (2 / Math.sqrt(Math.PI)) * Math.exp(-x * x) * sum;
}
