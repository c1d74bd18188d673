// Reads what mha_core/export/payload.py packs: attention layers whose cells are computed when you look at them.
//
// A layer is either its weights, 8 or 16 bits of each square root, or q, k, v, the score rule and each row's
// log-sum-exp, from which a weight is exp(score / temperature − lse). Numbers are float64 here.
const ARRAYS = { u1: Uint8Array, u2: Uint16Array, i4: Int32Array, f4: Float32Array };
const ROWS_KEPT = 512; // rows that are remembered
/** @type {WeakMap<Uint8Array, PayloadPanel[]>} of bytes their panels: what one picture has computed others have, too */
const opened = new WeakMap();

/** @typedef {{ shape: number[], data: Uint8Array | Uint16Array | Int32Array | Float32Array }} Tensor */
/** @typedef {{ scale: number, cap: number | null, temperature: number }} Rule */
/**
 * @typedef {{ title: string, tokens: string[], keys: string[], names: string[], keyNames: string[],
 *   layers: Map<number, Layer> }} PayloadPanel
 */

/**
 * The panels of a payload, the same ones each time. `keys` are the tokens that are looked at: the same list as
 * `tokens` unless they belong to another text. `names` and `keyNames` are what a link calls the tokens.
 * @param {Uint8Array} bytes
 * @returns {PayloadPanel[]}
 */
export function openPayload(bytes) {
  if (!opened.has(bytes)) opened.set(bytes, panelsOf(bytes));
  return opened.get(bytes);
}

/** @param {Uint8Array} bytes */
function panelsOf(bytes) {
  const mark = new TextDecoder().decode(bytes.subarray(0, 4));
  if (mark !== "mha0") throw new Error(`not attention: ${mark}`);
  const aligned = bytes.byteOffset % 4 ? bytes.slice() : bytes;
  const size = new DataView(aligned.buffer, aligned.byteOffset).getUint32(4, true);
  const header = JSON.parse(new TextDecoder().decode(aligned.subarray(8, 8 + size)));
  const start = aligned.byteOffset + 8 + size; // a multiple of 4, as each array's place behind it
  const array = ({ at, shape, type }) => {
    const length = shape.reduce((a, b) => a * b, 1);
    return { shape, data: new ARRAYS[type](aligned.buffer, start + at, length) };
  };
  return header.panels.map(({ title, tokens, names, keys = tokens, key_names: keyNames = names, layers }) => ({
    title,
    tokens,
    keys,
    names,
    keyNames,
    layers: new Map(layers.map((layer) => [layer.number, new Layer(layer, array)])),
  }));
}

// One layer. `heads` are the numbers of the heads that are here; every method takes such a number.
export class Layer {
  constructor(described, array) {
    /** @type {(name: string) => Tensor | null} */
    const tensor = (name) => (described[name] ? array(described[name]) : null);
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
    /** @type {number} */
    this.number = described.number;
    /** @type {number[]} */
    this.heads = described.heads;
    /** @type {number} */
    this.nHeads = described.n_heads;
    /** @type {Rule} */
    this.rule = { scale: described.scale, cap: described.soft_cap, temperature: described.temperature };
    /** @type {number[]} which of the heads of keys and values each head uses */
    this.kv = described.kv;
    /** @type {Map<number, number>} */
    this.place = new Map(described.heads.map((head, place) => [head, place]));
    /** the code of the weight 1 */
    this.levels = this.weights && 256 ** this.weights.data.BYTES_PER_ELEMENT - 1;
    this.nQuery = (this.weights ?? this.q).shape[1];
    this.nKey = this.weights ? this.weights.shape[2] : this.k.shape[1];
    /** @type {Map<number, Float32Array>} */
    this.rows = new Map();
  }

  // May this query look at this key?
  sees(head, query, key) {
    const place = this.place.get(head);
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
  score(head, query, key) {
    if (this.weights) return NaN;
    const place = this.place.get(head);
    const [, nKey, width] = this.k.shape;
    const from = (place * this.nQuery + query) * width;
    const to = (this.kv[place] * nKey + key) * width;
    let dot = 0;
    for (let d = 0; d < width; d++) dot += this.q.data[from + d] * this.k.data[to + d];
    return dot;
  }

  weight(head, query, key) {
    const place = this.place.get(head);
    if (this.weights) {
      const code = this.weights.data[(place * this.nQuery + query) * this.nKey + key] / this.levels;
      return code * code;
    }
    if (!this.sees(head, query, key)) return 0;
    const patched = this.#at(this.patchedWeights, place, query, key);
    return patched === Infinity ? Math.exp(this.logit(head, query, key) - this.logSumExp(head, query)) : patched;
  }

  // What the softmax takes of a cell, without its mask. `note` hears of each step on the way: its name, the number
  // behind it, and by what it was changed.
  /** @param {((step: string, value: number, by: number) => void) | null} note */
  logit(head, query, key, note = null) {
    const place = this.place.get(head);
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
    if (this.distanceBias) {
      const { shape, data } = this.distanceBias;
      bias += data[this.#shared(this.distanceBias, place) * shape[1] + key - query + this.nQuery - 1];
    }
    s += bias;
    if (this.bias || this.distanceBias) note?.("bias", s, bias);
    s /= temperature;
    if (temperature !== 1) note?.("temperature", s, temperature);
    return s;
  }

  // The logarithm of the sum over all keys, and a sink, of a row.
  logSumExp(head, query) {
    return this.lse.data[this.place.get(head) * this.nQuery + query];
  }

  // Does an experiment put a number in place of a weight, or of a number of an output?
  isPatched = (head, query, key) => this.#at(this.patchedWeights, this.place.get(head), query, key) !== Infinity;
  isPatchedOutput = (head, query, at) => this.#at(this.patchedOutputs, this.place.get(head), query, at) !== Infinity;

  // What a query takes from every key; kept for the next time. Float32Array of nKey.
  row(head, query) {
    const name = head * this.nQuery + query;
    let row = this.rows.get(name);
    if (!row) {
      row = new Float32Array(this.nKey);
      for (let key = 0; key < row.length; key++) row[key] = this.weight(head, query, key);
      if (this.rows.size >= ROWS_KEPT) this.rows.delete(this.rows.keys().next().value);
      this.rows.set(name, row);
    }
    return row;
  }

  // What every query takes from a key. Float32Array of nQuery.
  column(head, key) {
    const column = new Float32Array(this.nQuery);
    for (let query = 0; query < column.length; query++) column[query] = this.weight(head, query, key);
    return column;
  }

  // The numbers of a token in "q", "k" or "v" of a head. Float32Array of d_k or d_v.
  vector(name, head, at) {
    const { shape, data } = this[name];
    const place = this.place.get(head);
    const from = ((name === "q" ? place : this.kv[place]) * shape[1] + at) * shape[2];
    return /** @type {Float32Array} */ (data.subarray(from, from + shape[2]));
  }

  // What a query takes from all values: Σ weight · v. Float32Array of d_v.
  output(head, query) {
    const mixture = new Float32Array(this.v.shape[2]);
    this.row(head, query).forEach((weight, key) => {
      if (weight)
        this.vector("v", head, key).forEach((value, d) => {
          mixture[d] += weight * value;
        });
    });
    const place = this.place.get(head);
    return mixture.map((value, d) => {
      const patched = this.#at(this.patchedOutputs, place, query, d);
      return patched === Infinity ? value : patched;
    });
  }

  // A number of a table whose axes (head, query, column) may each be shared; Infinity where there is no table.
  #at(table, place, query, at) {
    if (!table) return Infinity;
    const { shape, data } = table;
    const row = shape[1] === 1 ? 0 : query;
    const column = shape[2] === 1 ? 0 : at;
    return data[(this.#shared(table, place) * shape[1] + row) * shape[2] + column];
  }

  #shared(table, place) {
    return table.shape[0] === 1 ? 0 : place;
  }
}
