// Where one number of a layer comes from, computed from what the browser has: the steps to a score, to a weight and to
// a number of a head's output, as mha_core/analysis/explanation.py has them, and code for torch that prints it.
import { required } from "../page/elements.js";
import { MAX_KEY_NUMBERS } from "../scene/schema.js";

/** @typedef {import("./payload.js").Layer} Layer */
/** @typedef {{ head: number, row: number, column: number }} Place of a number in the matrices of a head */
/** @typedef {[step: string, by: number]} Change of a score */

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
 */

/**
 * @typedef {object} Explanation
 * @property {string} symbol of its matrix
 * @property {string} [from] the token of its row
 * @property {string | number} [to] that of its column, or the number of a dimension
 * @property {string} [id] of what the server was asked
 * @property {number} [value]
 * @property {Step[]} [steps]
 * @property {string} [code]
 * @property {string} [latex]
 * @property {string[]} [edits] in words
 * @property {{ text: string, href: string } | null} [without] where it is computed without the edge
 * @property {string} [refusal] why there is none
 */

const MAX_SHORTFALL = 1e-5; // by which rounding lets a row sum to less than 1
const MAX_FORMULA = 6; // terms that a formula writes out

/**
 * The steps to a number, its code and its formula; null where the browser does not have what it is made of.
 * @param {Layer} layer
 * @param {string} name
 * @param {Place} place
 * @param {string[]} keys the tokens that are looked at
 * @param {string[]} queries those that look
 * @param {string[]} edits of the attention, in words
 * @param {string} sink the word for a sink among the keys
 * @returns {{ value: number, steps: Step[], code: string, latex: string, edits: string[] } | null}
 */
export function explanationOf(layer, name, place, keys, queries, edits = [], sink = "sink") {
  const { head, row, column } = place;
  const isPair = name === "scores" || name === "weights";
  if (!layer.q || !(isPair || (name === "output" && layer.v))) return null;
  const width = layer.vector("q", head, row).length;
  const found = isPair ? pair(layer, name, place, keys, sink) : mixture(layer, place, keys);
  const symbol = isPair ? `q_{${latexText(queries[row])}} \\cdot k_{${latexText(keys[column])}}` : "\\sum_n a_n v_n";
  const lines = found.steps.map((step) => formulaOf(step, symbol, width, isPair));
  const to = isPair ? JSON.stringify(keys[column]) : `dimension ${column + 1}`;
  const where = [`layer ${layer.number + 1}`, `head ${head + 1}`, JSON.stringify(queries[row]), to];
  const about = [`# ${name}: ${where.join(", ")}`, ...edits.map((edit) => `# edited: ${JSON.stringify(edit)}`), ""];
  const latex = `\\begin{gathered}${lines.join(" \\\\ ")}\\end{gathered}`;
  return { ...found, code: about.join("\n") + found.code, latex, edits };
}

/**
 * @param {Layer} layer
 * @param {string} name
 * @param {Place} place
 * @param {string[]} keys
 * @param {string} sink
 * @returns {{ value: number, steps: Step[], code: string }}
 */
function pair(layer, name, { head, row, column }, keys, sink) {
  const [q, k] = [layer.vector("q", head, row), layer.vector("k", head, column)];
  /** @type {Step[]} */
  const steps = [];
  /** @type {Change[]} */
  const changes = [];
  layer.logit(head, row, column, (step, value, by) => {
    changes.push([step, by]);
    const before = steps.at(-1)?.value ?? value;
    const products = { labels: numbers(q.length), factors: [q, k], terms: Array.from(q, (one, at) => one * k[at]) };
    const changed = { labels: [], factors: [[before], [by]], terms: [] };
    steps.push({ name: step, value, ...(step === "score" ? products : changed) });
  });
  if (name === "scores") {
    const [score] = steps;
    return {
      value: score.value,
      steps: [score],
      code: codeOf([`q = ${tensor(q)}`, `k = ${tensor(k)}`, "value = k @ q"]),
    };
  }
  if (layer.range || layer.visible) hide(steps, layer.sees(head, row, column));
  const softmax = shares(layer, { head, row, column }, keys, sink);
  steps.push(softmax);
  const value = layer.weight(head, row, column);
  if (layer.isPatched(head, row, column))
    steps.push({ name: "patch", value, labels: [], factors: [[softmax.value], [value]], terms: [] });
  return { value, steps, code: weightCode(layer, { head, row, column }, steps, changes) };
}

// The mask stands before the temperature: what it hides is −∞ from there on.
/** @param {Step[]} steps @param {boolean} seen */
function hide(steps, seen) {
  const at = steps.findIndex(({ name }) => name === "temperature");
  const [before, after] = at < 0 ? [steps, []] : [steps.slice(0, at), steps.slice(at)];
  const value = seen ? lastOf(before).value : Number.NEGATIVE_INFINITY;
  const others = after.map((step) => (seen ? step : { ...step, value, factors: [[value], step.factors[1]] }));
  steps.splice(before.length, after.length, { name: "mask", value, labels: [], factors: [], terms: [] }, ...others);
}

// The share of each key in a row, and of a sink if the row sums to less than 1.
/**
 * @param {Layer} layer
 * @param {Place} place
 * @param {string[]} keys
 * @param {string} sink
 */
function shares(layer, { head, row, column }, keys, sink) {
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
  return { name: "softmax", value, labels, factors: [scores], terms, chosen: column };
}

/**
 * @param {Layer} layer
 * @param {Place} place
 * @param {Step[]} steps
 * @param {Change[]} changes
 */
function weightCode(layer, { head, row, column }, steps, changes) {
  const softmax = required(
    steps.find(({ name }) => name === "softmax"),
    "softmax",
  );
  const { name: last, value } = lastOf(steps);
  const q = layer.vector("q", head, row);
  const sums = softmax.factors[0];
  const isHidden = sums[column] === -Infinity;
  if (last === "patch")
    return codeOf([`value = torch.tensor(${digits(value)})  # an edit puts it in place of the computed weight`]);
  if (isHidden) return codeOf(["value = torch.tensor(0.0)  # the key is hidden from the query"]);
  const rule = changes.filter(([step]) => step !== "score");
  if (layer.nKey * q.length > MAX_KEY_NUMBERS || rule.some(([step]) => step === "bias")) {
    const lines = [`q = ${tensor(q)}`, `k = ${tensor(layer.vector("k", head, column))}`, "value = k @ q"];
    lines.push(...rule.map((change) => changeCode("value", change)));
    return codeOf([
      ...lines,
      `value = torch.exp(value - ${layer.logSumExp(head, row)})  # less the log-sum-exp of the row`,
    ]);
  }
  const keys = Array.from({ length: layer.nKey }, (_, key) => tensorList(layer.vector("k", head, key)));
  const lines = [`q = ${tensor(q)}`, `k = torch.tensor([${keys.join(",\n    ")}])`, "s = k @ q"];
  lines.push(...rule.map((change) => changeCode("s", change)));
  const visible = Array.from({ length: layer.nKey }, (_, key) => layer.sees(head, row, key));
  if (!visible.every(Boolean)) {
    const mask = visible.map((one) => (one ? "True" : "False")).join(", ");
    lines.push(`s = s.masked_fill(~torch.tensor([${mask}]), float("-inf"))  # mask`);
  }
  const sink = sums.length > layer.nKey ? `torch.cat([s, torch.tensor([${digits(sums[layer.nKey])}])])` : "s";
  return codeOf([...lines, `value = torch.softmax(${sink}, 0)[${column}]`]);
}

/** @param {string} variable @param {Change} change */
function changeCode(variable, [step, by]) {
  if (step === "cap") return `${variable} = ${by} * torch.tanh(${variable} / ${by})  # soft cap`;
  if (step === "bias") return `${variable} = ${variable} + ${digits(by)}  # bias`;
  return `${variable} = ${variable} ${step === "scale" ? "*" : "/"} ${by}  # ${step}`;
}

/**
 * @param {Layer} layer
 * @param {Place} place
 * @param {string[]} keys
 * @returns {{ value: number, steps: Step[], code: string }}
 */
function mixture(layer, { head, row, column }, keys) {
  const weights = layer.row(head, row);
  const values = Float32Array.from(keys, (_, key) => layer.vector("v", head, key)[column]);
  const terms = Array.from(weights, (weight, key) => weight * values[key]);
  const sum = terms.reduce((all, one) => all + one, 0);
  const value = layer.output(head, row)[column];
  /** @type {Step[]} */
  const steps = [{ name: "mixture", value: sum, labels: keys, factors: [weights, values], terms }];
  let code = [`a = ${tensor(weights)}`, `v = ${tensor(values)}`, "value = a @ v"];
  if (layer.isPatchedOutput(head, row, column)) {
    steps.push({ name: "patch", value, labels: [], factors: [[sum], [value]], terms: [] });
    code = [`value = torch.tensor(${digits(value)})  # an edit puts it in place of the computed output`];
  }
  return { value, steps, code: codeOf(code) };
}

/** @param {Step[]} steps */
const lastOf = (steps) => required(steps.at(-1), "step");
/** @param {number} count */
const numbers = (count) => Array.from({ length: count }, (_, at) => String(at + 1));
/** @param {string[]} lines */
const codeOf = (lines) => ["import torch", "", ...lines, "print(value.item())", ""].join("\n");
/** @param {ArrayLike<number>} values */
const tensorList = (values) => `[${Array.from(values, digits).join(", ")}]`;
/** @param {ArrayLike<number>} values */
const tensor = (values) => `torch.tensor(${tensorList(values)})`;

// A number of 32 bits with as few digits as say it.
/** @param {number} value */
function digits(value) {
  for (let count = 6; count < 9; count++) {
    const text = Number(value.toPrecision(count));
    if (Math.fround(text) === Math.fround(value)) return asFloat(text);
  }
  return asFloat(Number(value.toPrecision(9)));
}

// In Python 1 is no float.
/** @param {number} value */
const asFloat = (value) => (Number.isInteger(value) && Math.abs(value) < 1e21 ? `${value}.0` : String(value));

// A step in LaTeX with its numbers.
/**
 * @param {Step} step
 * @param {string} symbol
 * @param {number} width d_k
 * @param {boolean} isPair
 */
function formulaOf({ name, value, factors, terms, chosen = 0 }, symbol, width, isPair) {
  const [before, by] = factors.map((factor) => latexNumber(factor[0]));
  const after = latexNumber(value);
  const root = Math.abs(factors[1]?.[0] - width ** -0.5) < 1e-6;
  /** @param {string[]} written */
  const few = (written) => [...written.slice(0, MAX_FORMULA), ...(terms.length > MAX_FORMULA ? ["\\cdots"] : [])];
  switch (name) {
    case "scale":
      return `s = ${before} \\cdot ${root ? `\\frac{1}{\\sqrt{${width}}}` : by} = ${after}`;
    case "cap":
      return `${by} \\tanh(${before} / ${by}) = ${after}`;
    case "bias":
      return `${before} ${factors[1][0] < 0 ? `- ${latexNumber(-factors[1][0])}` : `+ ${by}`} = ${after}`;
    case "mask":
      return `${after} \\quad \\text{(${Number.isFinite(value) ? "visible" : "hidden"})}`;
    case "temperature":
      return `${before} / ${by} = ${after}`;
    case "patch":
      return isPair ? `a = ${after}` : after;
    case "softmax": {
      const scores = Array.from(factors[0]);
      const most = scores.reduce((one, other) => Math.max(one, other), Number.NEGATIVE_INFINITY);
      if (most === Number.NEGATIVE_INFINITY) return "a = 0 \\quad \\text{(every key is hidden)}";
      const sum = scores.reduce((all, score) => all + Math.exp(score - most), 0);
      /** @param {number} score */
      const power = (score) => `e^{${latexNumber(score - most)}}`;
      const share = `\\frac{${latexNumber(Math.exp(scores[chosen] - most))}}{${latexNumber(sum)}}`;
      return `a = \\frac{${power(scores[chosen])}}{${few(scores.map(power)).join(" + ")}} = ${share} = ${after}`;
    }
    default: {
      const products = Array.from(terms, (_, at) => factors.map((factor) => `(${latexNumber(factor[at])})`).join(""));
      return `${symbol} = ${few(products).join(" + ")} = ${after}`;
    }
  }
}

// Four digits.
/** @param {number} value */
function latexNumber(value) {
  if (!Number.isFinite(value)) return value < 0 ? "-\\infty" : "\\infty";
  const [digits, power] = value.toPrecision(4).split("e");
  const isSmall = power === undefined && value !== 0 && Math.abs(value) < 1e-4;
  const [written, exponent] = isSmall ? value.toExponential(3).split("e") : [digits, power];
  return exponent === undefined ? String(Number(written)) : `${Number(written)} \\cdot 10^{${Number(exponent)}}`;
}

/** @type {Record<string, string>} */
const ESCAPES = { "\\": "∖", "^": "＾", "~": "∼", "\n": "⏎" };
for (const letter of "{}_#$%&") ESCAPES[letter] = `\\${letter}`;
/** @param {string} label */
const latexText = (label) => `\\text{${Array.from(label, (letter) => ESCAPES[letter] ?? letter).join("")}}`;
