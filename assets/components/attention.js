// What mha_core/transport.py packs, read again: attention layers whose cells are computed when looked at.
//
// A layer is either its weights, 16 bits of each square root, or q, k, the score rule and each row's
// log-sum-exp, from which a weight is exp(score / temperature − lse). Numbers are float64 here.
const LEVELS = 65535;
const ARRAYS = { u1: Uint8Array, u2: Uint16Array, i4: Int32Array, f4: Float32Array };
const KEPT = 512; // rows that are remembered

// The blob's panels: { title, tokens, keys, layers: Map from number to Layer }. `keys` are the tokens that are
// looked at: the same list as `tokens` unless they belong to another text.
export async function openBlob(bytes) {
  const mark = new TextDecoder().decode(bytes.subarray(0, 4));
  if (mark !== "mha0" && mark !== "mha1") throw new Error(`not attention: ${mark}`);
  const inner = mark === "mha1" ? await inflated(bytes.subarray(4)) : bytes.slice(4);
  const view = new DataView(inner.buffer, inner.byteOffset, inner.byteLength);
  const size = view.getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(inner.subarray(4, 4 + size)));
  const start = inner.byteOffset + 4 + size; // a multiple of 4, as each array's place behind it
  const array = ({ at, shape, type }) => {
    const length = shape.reduce((a, b) => a * b, 1);
    if (type[0] === "p") return { shape, data: floats(inner, start - inner.byteOffset + at, length, Number(type[1])) };
    return { shape, data: new ARRAYS[type](inner.buffer, start + at, length) };
  };
  return header.panels.map(({ title, tokens, keys = tokens, layers }) => ({
    title,
    tokens,
    keys,
    layers: new Map(layers.map((layer) => [layer.number, new Layer(layer, array)])),
  }));
}

// Numbers of which all first bytes come first, then all second ones; the last may be left out.
function floats(bytes, at, length, planes) {
  const bits = new Uint32Array(length);
  for (let plane = 0; plane < planes; plane++) {
    const shift = 24 - 8 * plane;
    for (let i = 0; i < length; i++) bits[i] |= bytes[at + plane * length + i] << shift;
  }
  return new Float32Array(bits.buffer);
}

async function inflated(bytes) {
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

// One layer. `heads` are the numbers of the heads that are here; every method takes such a number.
export class Layer {
  constructor(described, array) {
    const tensors = ["weights", "q", "k", "lse", "bias", "distance_bias", "range", "visible"];
    for (const name of tensors) this[name] = described[name] ? array(described[name]) : null;
    Object.assign(this, { number: described.number, heads: described.heads, nHeads: described.n_heads });
    this.rule = { scale: described.scale, cap: described.soft_cap, temperature: described.temperature };
    this.kv = described.kv;
    this.place = new Map(described.heads.map((head, place) => [head, place]));
    [this.nQuery, this.nKey] = this.weights ? this.weights.shape.slice(1) : [this.q.shape[1], this.k.shape[1]];
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
      const code = this.weights.data[(place * this.nQuery + query) * this.nKey + key] / LEVELS;
      return code * code;
    }
    if (!this.sees(head, query, key)) return 0;
    const { scale, cap, temperature } = this.rule;
    let s = this.score(head, query, key) * scale;
    if (cap) s = cap * Math.tanh(s / cap);
    if (this.bias) s += this.#biased(place, query, key);
    if (this.distance_bias) {
      const { shape, data } = this.distance_bias;
      s += data[this.#shared(this.distance_bias, place) * shape[1] + key - query + this.nQuery - 1];
    }
    return Math.exp(s / temperature - this.lse.data[place * this.nQuery + query]);
  }

  // What a query takes from every key; kept for the next time. Float32Array of nKey.
  row(head, query) {
    const name = head * this.nQuery + query;
    let row = this.rows.get(name);
    if (!row) {
      row = Float32Array.from({ length: this.nKey }, (_, key) => this.weight(head, query, key));
      if (this.rows.size >= KEPT) this.rows.delete(this.rows.keys().next().value);
      this.rows.set(name, row);
    }
    return row;
  }

  // What every query takes from a key. Float32Array of nQuery.
  column(head, key) {
    return Float32Array.from({ length: this.nQuery }, (_, query) => this.weight(head, query, key));
  }

  #biased(place, query, key) {
    const { shape, data } = this.bias; // any of its axes may be shared
    const row = shape[1] === 1 ? 0 : query;
    const column = shape[2] === 1 ? 0 : key;
    return data[(this.#shared(this.bias, place) * shape[1] + row) * shape[2] + column];
  }

  #shared(table, place) {
    return table.shape[0] === 1 ? 0 : place;
  }
}
