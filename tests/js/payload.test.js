// Reading a payload made by hand.
import assert from "node:assert/strict";
import test from "node:test";
import { openPayload } from "../../assets/components/numbers/payload.js";

/** Bytes of these panels; each array stands behind the last one, from a multiple of 4 on. */
function payload(panels, arrays) {
  const header = new TextEncoder().encode(JSON.stringify({ panels }));
  const start = 8 + Math.ceil(header.length / 4) * 4;
  const sizes = arrays.map(({ byteLength }) => Math.ceil(byteLength / 4) * 4);
  const bytes = new Uint8Array(start + sizes.reduce((sum, size) => sum + size, 0)).fill(32, 8, start);
  bytes.set(new TextEncoder().encode("mha0"));
  new DataView(bytes.buffer).setUint32(4, start - 8, true);
  bytes.set(header, 8);
  let at = start;
  arrays.forEach((array, nth) => {
    bytes.set(new Uint8Array(array.buffer), at);
    at += sizes[nth];
  });
  return bytes;
}

const RULE = { scale: 0.5, soft_cap: null, temperature: 1 };
const COMMON = { number: 3, heads: [1], n_heads: 2, kv: [0], ...RULE };
const panelOf = (layer) => ({ title: "a", tokens: ["x", "y"], names: ["x", "y"], layers: [layer] });

test("weights are the squares of the sent numbers", () => {
  const layer = { ...COMMON, weights: { at: 0, shape: [1, 2, 2], type: "u1" } };
  const [panel] = openPayload(payload([panelOf(layer)], [Uint8Array.of(255, 0, 51, 204)]));
  assert.deepEqual([panel.tokens, panel.keys, panel.keyNames], [["x", "y"], panel.tokens, ["x", "y"]]);
  const read = panel.layers.get(3);
  assert.deepEqual([...read.row(1, 0)], [1, 0]);
  assert.deepEqual([...read.column(1, 1)], [0, Math.fround(0.64)]);
  assert.ok(Number.isNaN(read.score(1, 0, 0)));
});

test("a weight from q and k is exp(score - log-sum-exp), or 0 if hidden", () => {
  const q = Float32Array.of(1, 2, 0, -1);
  const k = Float32Array.of(3, 1, 2, 2);
  const lse = Float32Array.of(2.5, Math.log(2));
  const range = Int32Array.of(0, 1, 0, 2); // the first query sees the first key alone
  const layer = {
    ...COMMON,
    q: { at: 0, shape: [1, 2, 2], type: "f4" },
    k: { at: 16, shape: [1, 2, 2], type: "f4" },
    lse: { at: 32, shape: [1, 2], type: "f4" },
    range: { at: 40, shape: [1, 2, 2], type: "i4" },
  };
  const read = openPayload(payload([panelOf(layer)], [q, k, lse, range]))[0].layers.get(3);
  assert.equal(read.score(1, 0, 0), 5);
  assert.equal(read.weight(1, 0, 0), 1); // exp(5 / 2 − 2.5)
  assert.equal(read.weight(1, 0, 1), 0);
  assert.ok(Math.abs(read.weight(1, 1, 1) - Math.exp(-1) / 2) < 1e-7);
});

test("the same bytes are opened once", () => {
  const bytes = payload(
    [panelOf({ ...COMMON, weights: { at: 0, shape: [1, 2, 2], type: "u1" } })],
    [new Uint8Array(4)],
  );
  assert.equal(openPayload(bytes), openPayload(bytes));
});

test("other bytes are refused", () => {
  assert.throws(() => openPayload(new TextEncoder().encode("PNG?....")), /not attention: PNG\?/);
});
