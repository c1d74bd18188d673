// The sentence about each stage of the path of one number (cell_path.js), with its numbers.
import { countDone, partialSum } from "../numbers/cell_path.js";
import { exact, fill, written } from "../page/wording.js";

/** @typedef {import("../numbers/cell_path.js").CellPath} CellPath */
/** @typedef {import("../numbers/explanation.js").Step} Step */
/** @typedef {(template: string, values?: Record<string, string | number>) => string} Say a sentence with these values */

const ARRIVES = 0.2; // progress of the exponentials at which the score reaches its line
/** @type {Record<string, string>} */
const SIGNS = { scale: "×", cap: "±", bias: "+", temperature: "÷", gate: "×", clip: "±" };

// How many lines have their exponential at a progress of that stage, and how far the score is on its way to its line.
/** @param {number} part @param {number} count */
export const powersDone = (part, count) => countDone(Math.max(part - ARRIVES, 0) / (1 - ARRIVES), count);
/** @param {number} part */
export const arrivalOf = (part) => Math.min(part / ARRIVES, 1);

/** @param {number} value */
export const inBrackets = (value) => (value < 0 ? `(${written(value)})` : written(value));

// Is it a score? There is more to say about it than about any sum.
/** @param {CellPath} path */
const isPair = ({ products }) => products.name === "score";

// The number of products among the terms of a sum, the last of which may be a bias.
/** @param {Step} step */
export const countProducts = ({ name, labels, terms }) =>
  ["projection", "heads"].includes(name) && ["b", "bᴼ"].includes(labels.at(-1) ?? "") ? terms.length - 1 : terms.length;

// Is a score divided by √d_k?
/** @param {number} by @param {CellPath} path */
const isRoot = (by, { products }) =>
  products.name === "score" && Math.abs(by * Math.sqrt(products.terms.length) - 1) < 1e-5;

// A change above its box: by which number, or what it is.
/** @param {Step} change @param {CellPath} path @param {Record<string, string>} texts */
export function shortNameOf({ name, factors }, path, texts) {
  const by = factors[1]?.[0];
  if (name === "scale" && isRoot(by, path)) return `÷ √${path.products.terms.length}`;
  if (!(name in SIGNS)) return texts[`path_stage_${name}`];
  const size = String(Number((name === "bias" ? Math.abs(by) : by).toPrecision(3))).replace("-", "−");
  return `${name === "bias" && by < 0 ? "−" : SIGNS[name]} ${size}`;
}

// The names of the terms, their factors and their product, as the table of the terms has them.
/** @param {string} name of a step @param {Record<string, string>} texts */
export const columnsOf = (name, texts) => texts[`path_columns_${name}`].split("|");

/**
 * The sentence about a moment of the path.
 * @param {CellPath} path
 * @param {{ at: number, part: number }} moment the stage, and its progress
 * @param {{ query: string, key: string, head: number, heads: number }} names the words, the head and how many share the key
 * @param {Record<string, string>} texts
 */
export function sentenceOf(path, { at, part }, names, texts) {
  const { products, changes, stages } = path;
  const count = countProducts(products);
  const first = stages.indexOf("products");
  /** @type {Say} */
  const say = (template, values = {}) => fill(template, { ...names, width: count, ...values });
  if (at === 0 && part === 0) return say(isPair(path) ? texts.path_start : texts.path_start_number);
  if (at < first) {
    if (isPair(path)) return say(names.heads > 1 ? texts.path_vectors_shared : texts.path_vectors);
    return say(texts[`path_vectors_${products.name}`]);
  }
  if (at === first) {
    const done = countDone(part, products.terms.length);
    if (part < 1) return say(texts.path_products_some, { done, count, sum: written(partialSum(products.terms, done)) });
    return say(count < products.terms.length ? texts.path_products_bias : texts.path_products, {
      symbol: columnsOf(products.name, texts)[3],
      value: written(products.value),
      count,
    });
  }
  const nth = at - first - 1;
  if (nth < changes.length) return changed(path, changes[nth], changes[nth - 1] ?? products, say, texts);
  return ofRow(path, stages[at], part, say, texts);
}

/**
 * @param {CellPath} path
 * @param {Step} change
 * @param {Step} before
 * @param {Say} say
 * @param {Record<string, string>} texts
 */
function changed(path, change, before, say, texts) {
  const { name, value, factors } = change;
  if (name === "mask")
    return say(path.hidden ? texts.path_mask_hides : texts.path_mask_shows, { value: written(value) });
  const template = isPair(path) && texts[`path_${name}`];
  if (!template) return say(texts.path_change, { name: texts[`path_stage_${name}`], line: lineOf(change) });
  const by = factors[1][0];
  const values = { before: written(before.value), value: written(value), by: inBrackets(by) };
  const isOwn = name === "scale" && !isRoot(by, path);
  return say(isOwn ? texts.path_scale_own : template, {
    ...values,
    d_k: path.products.terms.length,
    root: written(1 / by),
  });
}

// A change of one number: what it was, by what it is changed, and what it is then.
/** @param {Step} change */
function lineOf({ name, value, factors, terms }) {
  const before = factors[0]?.[0] ?? terms[0];
  if (["patch", "clip", "rounding"].includes(name)) return `${written(before)} → ${written(value)}`;
  const [one, ...others] = factors;
  const products = Array.from(one, (number, at) =>
    [written(number), ...others.map((factor) => inBrackets(factor[at]))].join(` ${SIGNS[name] ?? "×"} `),
  );
  return `${products.join(" + ")} = ${written(value)}`;
}

// The number of keys, the sink included, in the first lines.
/** @param {CellPath["lines"]} lines @param {number} done */
const countKeys = (lines, done = lines.length) => lines.slice(0, done).reduce((all, { keys }) => all + keys.length, 0);

/**
 * @param {CellPath} path
 * @param {string} name
 * @param {number} part
 * @param {Say} say
 * @param {Record<string, string>} texts
 */
function ofRow({ lines, chosen, largest, after, patchedOutput, ...path }, name, part, say, texts) {
  const { power, share, score } = lines[chosen];
  const sum = written(path.sum);
  switch (name) {
    case "powers": {
      const done = powersDone(part, lines.length);
      const powers = lines.map((line) => line.power);
      const some = { done: countKeys(lines, done), count: countKeys(lines), sum: written(partialSum(powers, done)) };
      if (part < 1) return say(texts.path_powers_some, some);
      return say(texts.path_powers, {
        score: written(score),
        largest: inBrackets(largest),
        power: written(power),
        sum,
      });
    }
    case "shares":
      return say(texts.path_shares, { power: written(power), sum, weight: exact(share) });
    case "mixture": {
      const values = lines.filter(({ kind }) => kind !== "sink");
      const done = countDone(part, lines.length);
      if (part < 1) return say(texts.path_mixture_some, { done: countKeys(values, done), count: countKeys(values) });
      return say(patchedOutput ? texts.path_mixture_patched : texts.path_mixture);
    }
    default: {
      const change = after.find((step) => step.name === name);
      if (!change) return say(texts.path_patch_other);
      if (name !== "patch") return say(texts.path_change, { name: texts[`path_stage_${name}`], line: lineOf(change) });
      return say(texts.path_patch, { before: exact(change.factors[0][0]), value: exact(change.value) });
    }
  }
}
