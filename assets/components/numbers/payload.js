// Reads what mha_core/export/payload.py packs: attention layers whose cells are computed when you look at them.
//
// A layer is either its weights, 8 or 16 bits of each square root, or q, k, v, the score rule and each row's
// log-sum-exp, from which a weight is exp(score / temperature − lse). Numbers are float64 here.
import { required } from "../page/elements.js";

const ARRAYS = { u1: Uint8Array, u2: Uint16Array, i4: Int32Array, f4: Float32Array };
const ROWS_KEPT = 512; // rows that are remembered
/** @type {WeakMap<Bytes, PayloadPanel[]>} of bytes their panels: what one picture has computed others have, too */
const opened = new WeakMap();

/** @typedef {import("./blobs.js").Bytes} Bytes */
/** @typedef {{ shape: number[], data: Uint8Array | Uint16Array | Int32Array | Float32Array | Float64Array }} Tensor */
/** @typedef {{ scale: number, cap: number | null, temperature: number }} Rule */
/**
 * @typedef {{ title: string, tokens: string[], keys: string[], names: string[], keyNames: string[],
 *   layers: Map<number, Layer> }} PayloadPanel
 */

/** @typedef {{ at: number, shape: number[], type: keyof typeof ARRAYS }} PackedArray and where it begins */
/**
 * @typedef {"weights" | "q" | "k" | "v" | "lse" | "bias" | "distance_bias" | "patched_weights" | "patched_outputs"
 *   | "range" | "visible" | "largest" | "sums"} ArrayName
 */
/**
 * @typedef {{ number: number, heads: number[], n_heads: number, scale: number, soft_cap: number | null,
 *   temperature: number, kv: number[], block?: number }} LayerFacts
 */
/**
 * A layer in the header of a payload, whose score rule is left out where its weights are sent.
 * @typedef {LayerFacts & Partial<Record<ArrayName, PackedArray>>} PackedLayer
 */
/**
 * @typedef {{ title: string, tokens: string[], names: string[], keys?: string[], key_names?: string[],
 *   layers: PackedLayer[] }} PackedPanel
 */

/**
 * The panels of a payload, the same ones each time. `keys` are the tokens that are looked at: the same list as
 * `tokens` unless they belong to another text. `names` and `keyNames` are what a link calls the tokens.
 * @param {Bytes} bytes
 * @returns {PayloadPanel[]}
 */
export function openPayload(bytes) {
  const panels = opened.get(bytes) ?? panelsOf(bytes);
  opened.set(bytes, panels);
  return panels;
}

/** @param {Bytes} bytes @returns {PayloadPanel[]} */
function panelsOf(bytes) {
  const mark = new TextDecoder().decode(bytes.subarray(0, 4));
  if (mark !== "mha0") throw new Error(`not attention: ${mark}`);
  const aligned = bytes.byteOffset % 4 ? bytes.slice() : bytes;
  const size = new DataView(aligned.buffer, aligned.byteOffset).getUint32(4, true);
  /** @type {{ panels: PackedPanel[] }} */
  const header = JSON.parse(new TextDecoder().decode(aligned.subarray(8, 8 + size)));
  const start = aligned.byteOffset + 8 + size; // a multiple of 4, as each array's place behind it
  /** @param {PackedArray | undefined} packed */
  const array = (packed) => {
    if (!packed) return null;
    const { at, shape, type } = packed;
    const length = shape.reduce((a, b) => a * b, 1);
    return { shape, data: new ARRAYS[type](aligned.buffer, start + at, length) };
  };
  return header.panels.map(({ title, tokens, names, keys = tokens, key_names: keyNames = names, layers }) => ({
    title,
    tokens,
    keys,
    names,
    keyNames,
    layers: new Map(layers.map((layer) => [layer.number, new Layer(layer, (name) => array(layer[name]))])),
  }));
}

// One layer. `heads` are the numbers of the heads that are here; every method takes such a number.
export class Layer {
  /** @param {LayerFacts} described @param {(name: ArrayName) => Tensor | null} tensor */
  constructor(described, tensor) {
    this.weights = tensor("weights");
    this.q = tensor("q");
    this.k = tensor("k");
    this.v = tensor("v");
    this.lse = tensor("lse");
    this.bias = tensor("bias");
    this.distanceBias = tensor("distance_bias");
    // of an experiment: numbers in place of computed ones, Infinity where there are none
    this.patchedWeights = tensor("patched_weights");
    this.patchedOutputs = tensor("patched_outputs");
    this.range = tensor("range");
    this.visible = tensor("visible");
    // of a long text, for each block of cells
    this.largest = tensor("largest");
    this.sums = tensor("sums");
    this.block = described.block ?? 1;
    this.number = described.number;
    this.heads = described.heads;
    this.nHeads = described.n_heads;
    /** @type {Rule} */
    this.rule = { scale: described.scale, cap: described.soft_cap, temperature: described.temperature };
    /** @type {number[]} which of the heads of keys and values each head uses */
    this.kv = described.kv;
    /** @type {Map<number, number>} */
    this.place = new Map(described.heads.map((head, place) => [head, place]));
    /** the code of the weight 1 */
    this.levels = this.weights ? 256 ** this.weights.data.BYTES_PER_ELEMENT - 1 : NaN;
    this.nQuery = required(this.weights ?? this.q, "weights or queries").shape[1];
    this.nKey = this.weights ? this.weights.shape[2] : required(this.k, "keys").shape[1];
    /** @type {Map<number, Float32Array>} */
    this.rows = new Map();
  }

  // May this query look at this key?
  /** @param {number} head @param {number} query @param {number} key */
  sees(head, query, key) {
    const place = this.#placeOf(head);
    if (this.#byDistance(place, query, key) === -Infinity) return false;
    if (this.range) {
      const at = 2 * (this.#shared(this.range, place) * this.nQuery + query);
      return key >= this.range.data[at] && key < this.range.data[at + 1];
    }
    if (!this.visible) return true;
    const { shape, data } = this.visible;
    const byte = (this.#shared(this.visible, place) * shape[1] + query) * shape[2] + (key >> 3);
    return ((data[byte] >> (7 - (key & 7))) & 1) === 1;
  }

  // q · k, or NaN where it was not sent.
  /** @param {number} head @param {number} query @param {number} key */
  score(head, query, key) {
    if (!this.q || !this.k) return NaN;
    const place = this.#placeOf(head);
    const [, nKey, width] = this.k.shape;
    const from = (place * this.nQuery + query) * width;
    const to = (this.kv[place] * nKey + key) * width;
    let dot = 0;
    for (let d = 0; d < width; d++) dot += this.q.data[from + d] * this.k.data[to + d];
    return dot;
  }

  /** @param {number} head @param {number} query @param {number} key */
  weight(head, query, key) {
    const place = this.#placeOf(head);
    if (this.weights) {
      const code = this.weights.data[(place * this.nQuery + query) * this.nKey + key] / this.levels;
      return code * code;
    }
    if (!this.sees(head, query, key)) return 0;
    const patched = this.#at(this.patchedWeights, place, query, key);
    return patched === Infinity ? Math.exp(this.logit(head, query, key) - this.logSumExp(head, query)) : patched;
  }

  // The input of the softmax for a cell, without its mask. `note` is called with each step: its name, the number after
  // it, and its parameter.
  /**
   * @param {number} head
   * @param {number} query
   * @param {number} key
   * @param {((step: string, value: number, by: number) => void) | null} note
   */
  logit(head, query, key, note = null) {
    const place = this.#placeOf(head);
    const { scale, cap, temperature } = this.rule;
    let s = this.score(head, query, key);
    note?.("score", s, 1);
    s *= scale;
    note?.("scale", s, scale);
    if (cap) {
      s = cap * Math.tanh(s / cap);
      note?.("cap", s, cap);
    }
    let bias = this.bias ? this.#at(this.bias, place, query, key) : 0;
    bias += this.#byDistance(place, query, key);
    s += bias;
    if (this.bias || this.distanceBias) note?.("bias", s, bias);
    s /= temperature;
    if (temperature !== 1) note?.("temperature", s, temperature);
    return s;
  }

  // The logarithm of the sum over all keys, and a sink, of a row.
  /** @param {number} head @param {number} query */
  logSumExp(head, query) {
    return required(this.lse, "sums of rows").data[this.#placeOf(head) * this.nQuery + query];
  }

  // Does an experiment put a number in place of a weight, or of a number of an output?
  /** @param {number} head @param {number} query @param {number} key */
  isPatched = (head, query, key) => this.#at(this.patchedWeights, this.#placeOf(head), query, key) !== Infinity;
  /** @param {number} head @param {number} query @param {number} at */
  isPatchedOutput = (head, query, at) => this.#at(this.patchedOutputs, this.#placeOf(head), query, at) !== Infinity;

  // The weights of a query on every key; kept for the next time. Float32Array of nKey.
  /** @param {number} head @param {number} query */
  row(head, query) {
    const name = head * this.nQuery + query;
    let row = this.rows.get(name);
    if (!row) {
      row = new Float32Array(this.nKey);
      for (let key = 0; key < row.length; key++) row[key] = this.weight(head, query, key);
      if (this.rows.size >= ROWS_KEPT) {
        const [oldest] = this.rows.keys();
        this.rows.delete(oldest);
      }
      this.rows.set(name, row);
    }
    return row;
  }

  // The numbers of a token in "q", "k" or "v" of a head. Float32Array of d_k or d_v.
  /** @param {"q" | "k" | "v"} name @param {number} head @param {number} at */
  vector(name, head, at) {
    const { shape, data } = required(this[name], name);
    const place = this.#placeOf(head);
    const from = ((name === "q" ? place : this.kv[place]) * shape[1] + at) * shape[2];
    return /** @type {Float32Array} */ (data.subarray(from, from + shape[2]));
  }

  // The output of a query: Σ weight · v. Float32Array of d_v.
  /** @param {number} head @param {number} query */
  output(head, query) {
    const { shape, data } = required(this.v, "values");
    const [, nKey, width] = shape;
    const place = this.#placeOf(head);
    const row = this.row(head, query);
    const output = new Float32Array(width);
    for (let d = 0; d < width; d++) {
      let mixture = 0;
      for (let key = 0, at = this.kv[place] * nKey * width + d; key < nKey; key++, at += width)
        if (row[key]) mixture += row[key] * data[at];
      const patched = this.#at(this.patchedOutputs, place, query, d);
      output[d] = patched === Infinity ? mixture : patched;
    }
    return output;
  }

  // The largest weight and the sum of each block of step × step cells of a head of a long text; null of a shorter one.
  /** @param {number} head */
  blocks(head) {
    const { largest, sums, block: step } = this;
    if (!largest || !sums) return null;
    const [, rows, columns] = largest.shape;
    const from = this.#placeOf(head) * rows * columns;
    /** @param {Tensor} of */
    const own = (of) => /** @type {Float32Array} */ (of.data.subarray(from, from + rows * columns));
    return { step, rows, columns, largest: own(largest), sums: own(sums) };
  }

  // The bias of a cell that follows from its distance alone; −Infinity hides it.
  /** @param {number} place @param {number} query @param {number} key */
  #byDistance(place, query, key) {
    if (!this.distanceBias) return 0;
    const { shape, data } = this.distanceBias;
    return data[this.#shared(this.distanceBias, place) * shape[1] + key - query + this.nQuery - 1];
  }

  // A number of a table whose axes (head, query, column) may each be shared; Infinity where there is no table.
  /** @param {Tensor | null} table @param {number} place @param {number} query @param {number} at */
  #at(table, place, query, at) {
    if (!table) return Infinity;
    const { shape, data } = table;
    const row = shape[1] === 1 ? 0 : query;
    const column = shape[2] === 1 ? 0 : at;
    return data[(this.#shared(table, place) * shape[1] + row) * shape[2] + column];
  }

  /** @param {Tensor} table @param {number} place */
  #shared(table, place) {
    return table.shape[0] === 1 ? 0 : place;
  }

  // Where the numbers of a head are; NaN, and so are they, for one that is not here.
  /** @param {number} head */
  #placeOf(head) {
    return this.place.get(head) ?? NaN;
  }
}
