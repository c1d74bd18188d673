// Changes of attention, as a link of What if writes them, and the score rule that they make (mha_core/attention/edits.py,
// mha_core/scene/changes.py). Layers, heads and tokens count from 0 here and from 1 in a link.

/**
 * Places that are null mean all of them. `values` are the weights of a row of one's own; `link` is the edit in a link.
 * @typedef {{ link: string, kind: string, layer: number | null, heads: number[] | null, rows: number[] | null,
 *   keys: number[] | null, by: number, mask: string, values: number[] | null }} Edit
 */
/**
 * The rule of a layer with its edits, as a payload has it. `visible` has a bit for each cell, each row from a byte of its
 * own on; `weights` and `outputs` are (head, query, key or dimension), and Infinity marks what keeps its computed number.
 * @typedef {{ scale: number, temperature: number, visible: Uint8Array | null, weights: Float32Array | null,
 *   outputs: Float32Array | null }} EditedRule
 */
/** @typedef {{ layer: number, length: number, h: number, dK: number, isCausal: boolean }} EditedSite */

/** @type {Record<string, string[]>} each kind with its fields in a link */
const EDIT_FIELDS = {
  cut: ["layer", "head", "from", "to"],
  off: ["layer", "head"],
  even: ["layer", "head", "from"],
  mask: ["layer", "head", "mask"],
  position: ["code"],
  divisor: ["layer", "by"],
  temperature: ["layer", "by"],
  concatenated: ["layer"],
  row: ["layer", "head", "from", "weights"],
};
const MIN_BY = 0.001; // of a temperature
const MAX_BY = 1_000_000;
const ROW_ROUNDING = 1e-3; // of the sum of a row of given weights
const MAX_PLACE = 10_000;

/** @type {Record<string, (query: number, key: number, size: number, length: number) => boolean>} */
const MASK_RULES = {
  full: () => true,
  causal: (query, key) => key <= query,
  window: (query, key, size) => Math.abs(key - query) <= size,
  prefix: (query, key, size) => key <= query || key < size,
  padding: (_query, key, size, length) => key < length - size,
};
const DEFAULT_MASK_SIZE = 2;

/**
 * The edits that a link names, and those of its parts that this page cannot compute.
 * @param {string} link
 */
export function readEdits(link) {
  const parts = new Set(link.split(";").filter(Boolean));
  const read = Array.from(parts, (part) => readEdit(part === "unordered" ? "position,code=none" : part) ?? part);
  return {
    edits: read.filter((one) => typeof one !== "string"),
    refused: read.filter((one) => typeof one === "string"),
  };
}

// These edits and further ones, as a link writes them.
/** @param {Edit[]} edits @param {string} link */
export const withEdits = (edits, link) => readEdits([linkOfEdits(edits), link].join(";")).edits;

/** @param {Edit[]} edits */
export const linkOfEdits = (edits) => edits.map(({ link }) => link).join(";");

/** @param {string} link @returns {Edit | null} */
function readEdit(link) {
  const [kind, ...pairs] = link.split(",");
  const fields = Object.hasOwn(EDIT_FIELDS, kind) ? EDIT_FIELDS[kind] : null;
  const values = new Map(pairs.map((pair) => /** @type {[string, string]} */ (pair.split("=", 2))));
  if (!fields || [...values.keys()].some((name) => !fields.includes(name))) return null;
  /** @param {string} name @returns {number[] | null | undefined} undefined for what is no place */
  const places = (name) => {
    const text = values.get(name);
    if (text === undefined) return null;
    const [, first, last = first] = text.match(/^(\d{1,8})(?:-(\d{1,8}))?$/) ?? [];
    const count = Number(last) - Number(first) + 1;
    if (!(Number(first) > 0 && count > 0 && count <= MAX_PLACE)) return undefined;
    return Array.from({ length: count }, (_, nth) => Number(first) + nth - 1);
  };
  const [layer, heads, rows, keys] = ["layer", "head", "from", "to"].map(places);
  const by = Number(values.get("by") ?? 1);
  const mask = values.get("mask") ?? "";
  const given = values.get("weights")?.split(" ").map(Number) ?? null;
  const isWrong =
    [layer, heads, rows, keys].includes(undefined) ||
    (layer?.length ?? 1) > 1 ||
    (kind === "cut" && !rows && !keys) ||
    (fields.includes("by") && !(values.has("by") && by > 0 && by < Infinity)) ||
    (kind === "temperature" && !(by >= MIN_BY && by <= MAX_BY)) ||
    (kind === "mask" && !/^(full|(causal|window|prefix|padding)(:\d{1,8})?)$/.test(mask)) ||
    (kind === "position" && values.get("code") !== "none") ||
    (kind === "row" && !(rows?.length === 1 && given && isRowOfWeights(given)));
  if (isWrong) return null;
  const place = { layer: layer?.[0] ?? null, heads: heads ?? null, rows: rows ?? null, keys: keys ?? null };
  return { link, kind, ...place, by, mask, values: given };
}

/** @param {number[]} values */
const isRowOfWeights = (values) =>
  values.every((one) => one >= 0) && values.reduce((sum, one) => sum + one, 0) <= 1 + ROW_ROUNDING;

/**
 * Does an edit name only layers, heads and tokens that are there, and no weight on a hidden cell?
 * @param {Edit} edit
 * @param {{ length: number, h: number, layers: number }} site
 */
export const isEditHere = ({ layer, heads, rows, keys, values }, { length, h, layers }) =>
  (layer ?? 0) < layers &&
  (heads ?? []).every((head) => head < h) &&
  [...(rows ?? []), ...(keys ?? [])].every((token) => token < length) &&
  (values?.length ?? length) === length;

/**
 * The edits without those that name words which another text does not have at the same positions.
 * @param {Edit[]} edits
 * @param {string[]} before the pieces of their text
 * @param {string[]} after
 */
export const fittingEdits = (edits, before, after) =>
  edits.filter(({ rows, keys, values }) => {
    const named = values ? [...before.keys(), before.length] : [...(rows ?? []), ...(keys ?? [])];
    return named.every((at) => before[at] === after[at]);
  });

/**
 * The score rule of one layer: scores first, in the order given, then weights, then outputs.
 * @param {Edit[]} edits
 * @param {EditedSite} site
 * @returns {EditedRule}
 */
export function editRule(edits, { layer, length, h, dK, isCausal }) {
  const every = isCausal ? [...readEdits("mask,mask=causal").edits, ...edits] : edits;
  const here = every.filter((edit) => (edit.layer ?? layer) === layer);
  const bytes = Math.ceil(length / 8); // of a row of cells
  /** @type {EditedRule} */
  const rule = { scale: dK ** -0.5, temperature: 1, visible: null, weights: null, outputs: null };
  /** @type {(edit: Edit, act: (at: number, query: number, head: number) => void) => void} each row that an edit names */
  const rowsOf = ({ heads, rows }, act) => {
    for (const head of heads ?? Array(h).keys())
      for (const query of rows ?? Array(length).keys()) act(head * length + query, query, head);
  };
  for (const edit of here) {
    if (edit.kind === "divisor") rule.scale = 1 / edit.by;
    if (edit.kind === "temperature") rule.temperature *= edit.by;
    if (edit.kind !== "cut" && edit.kind !== "mask") continue;
    const [name, size = DEFAULT_MASK_SIZE] = edit.mask.split(":");
    const keys = edit.keys && new Set(edit.keys);
    rule.visible ??= new Uint8Array(h * length * bytes).fill(255);
    const { visible } = rule;
    rowsOf(edit, (at, query) => {
      for (let key = 0; key < length; key++) {
        const isHidden =
          edit.kind === "cut" ? (keys?.has(key) ?? true) : !MASK_RULES[name](query, key, Number(size), length);
        if (isHidden) visible[at * bytes + (key >> 3)] &= ~(128 >> (key & 7));
      }
    });
  }
  for (const edit of here.filter(({ kind }) => kind === "even" || kind === "row")) {
    rule.weights ??= new Float32Array(h * length * length).fill(Infinity);
    const { weights, visible } = rule;
    rowsOf(edit, (at) => {
      const row = Array.from({ length }, (_, key) =>
        !visible || visible[at * bytes + (key >> 3)] & (128 >> (key & 7)) ? 1 : 0,
      );
      const seen = Math.max(1, row.filter(Boolean).length);
      weights.set(edit.values ?? row.map((one) => one / seen), at * length);
    });
  }
  for (const edit of here.filter(({ kind }) => kind === "off")) {
    rule.outputs ??= new Float32Array(h * length * dK).fill(Infinity);
    const { outputs } = rule;
    rowsOf(edit, (at) => outputs.fill(0, at * dK, (at + 1) * dK));
  }
  return rule;
}
