// The link of a scene, as the app writes it (mha_core/scene/link.py), as far as a page with small models can show it.
import { focusOfLink, namesHeads, numberOf } from "../scene/focus_link.js";
import { OF_HEADS } from "../scene/schema.js";
import { linkOfEdits, readEdits } from "./edits.js";
import { HIDDEN_MARK } from "./lexicon.js";

/** @typedef {{ text: string, twin?: string, token: string }} Example */
/** @typedef {{ name: string, language: string, architecture: string, h: number, d_model: number }} ModelName */
/**
 * The scene on screen, as far as a page with small models has one.
 * @typedef {object} PageScene
 * @property {string} text
 * @property {string} twin
 * @property {string} architecture
 * @property {number} h
 * @property {number} d_model
 * @property {import("./edits.js").Edit[]} edits
 * @property {import("../scene/focus_link.js").LinkFocus} focus
 */
/** @typedef {[key: string, values: Record<string, string | number>]} LinkNote a text on what a link has and this page lacks */

const COMPUTED_ELSEWHERE = ["random", "run", "file", "model"]; // sources
const REPLACEABLE = /** @type {const} */ (["layer", "head", "token", "sentence", "drawing", "matrix"]);
const ELSEWHERE = ["against", "ask_model"]; // fields that only pages of the app have

/** @param {string} file "glass-box-en-h4-d64" @returns {ModelName} */
export function modelNamed(file) {
  const [, architecture = "", language = "", h = 0, width = 0] = file.match(/^(.+)-(\w+)-h(\d+)-d(\d+)$/) ?? [];
  return { name: file, language, architecture, h: Number(h), d_model: Number(width) };
}

/**
 * The model that is nearest to what is asked for, in that language; undefined where the page has none for it.
 * @param {ModelName[]} models
 * @param {string} language
 * @param {{ architecture: string, h: number, d_model: number }} asked
 */
export function nearestModel(models, language, { architecture, h, d_model: width }) {
  const here = models.filter((model) => model.language === language);
  const same = here.filter((model) => model.architecture === architecture);
  /** @param {ModelName} model */
  const away = (model) => Math.abs(Math.log(model.d_model / width)) + Math.abs(Math.log(model.h / h));
  return (same.length ? same : here).toSorted((a, b) => away(a) - away(b))[0];
}

/**
 * The second sentence where a link names none: that of the first example beside its own first one, with or without
 * hidden words.
 * @param {string} text
 * @param {Example} first
 */
export function twinOf(text, first) {
  const [words, others] = [text, first.text].map((one) => one.trim().split(/\s+/));
  const same =
    words.length === others.length && words.every((word, at) => word.includes(HIDDEN_MARK) || word === others[at]);
  return same ? (first.twin ?? "") : "";
}

/**
 * The scene of a link, and what in it the page does not understand.
 * @param {string} query what follows the "?"
 * @param {{ example: Example, english: Example, edition: string }} here the sentences with which a visit begins, in the
 *   language of the page and in the app's own defaults, and the edition of the trained weights
 */
export function readScene(query, { example, english, edition }) {
  const link = new URLSearchParams(query);
  /** @type {LinkNote[]} */
  const notes = [];
  const command = { command: `headscope open "${link}"` }; // in which no mark means anything to a shell
  const source = link.get("source") || "mini";
  if (COMPUTED_ELSEWHERE.includes(source)) notes.push([`static.source_${source}`, command]);
  for (const name of ELSEWHERE) if (link.get(name)) notes.push(["static.elsewhere", { name, ...command }]);
  const { edits, refused } = readEdits(link.get("edits") ?? "");
  const [h, width] = ["h", "d_model"].map((name) => numberOf(link.get(name) ?? ""));
  const understood = { source: ["mini", ...COMPUTED_ELSEWHERE].includes(source), h, d_model: width };
  for (const [name, value] of Object.entries(understood))
    if (!value && link.get(name)) refused.push(`${name}=${link.get(name)}`);
  if (refused.length) notes.push(["static.edits", { changes: refused.join("; "), ...command }]);
  const text = link.get("text") || example.text;
  const isOther = source !== "mini" || (link.get("weights") ?? edition) !== edition;
  if (isOther && namesHeads(link)) notes.push(["static.weights", {}]);
  if (isOther) for (const name of OF_HEADS) link.delete(name);
  const focus = focusOfLink(link);
  if (!link.has("token") && text === example.text) focus.token = example.token;
  /** @type {PageScene} */
  const scene = {
    text,
    twin: link.get("twin") ?? (link.get("text") ? twinOf(text, english) : (example.twin ?? "")),
    architecture: link.get("architecture") || "glass-box",
    h: h || 4,
    d_model: width || 64,
    edits: isOther ? edits.filter(({ heads }) => heads === null) : edits,
    focus,
  };
  return { scene, notes };
}

/**
 * The fields of a link that the page has replaced, since its models or its sentence lack what they name.
 * @param {string} query
 * @param {import("../scene/focus_link.js").LinkFocus} asked as it was read from the link
 * @param {import("../scene/focus_link.js").LinkFocus} taken
 * @param {string[]} names of the tokens
 */
export function replacedIn(query, asked, taken, names) {
  const link = new URLSearchParams(query);
  /** @param {string} name */
  const isToken = (name) => names.includes(/^\d+$/.test(name) ? (names[Number(name) - 1] ?? "") : name);
  return REPLACEABLE.filter((field) => {
    const value = link.get(field);
    if (!value || value !== asked[field]) return false;
    return field === "token" ? !isToken(value) : value !== taken[field];
  });
}

/**
 * The fields of a scene in its link, besides those of its focus, which `queryOf` of scene/focus_link.js adds.
 * @param {PageScene} scene
 * @param {Example} english the sentence of the app's own defaults
 * @param {string} language that was chosen, "" where the browser decides
 */
export function sceneQuery({ text, twin, architecture, h, d_model: width, edits }, english, language) {
  const link = new URLSearchParams({ text });
  if (twin !== twinOf(text, english)) link.set("twin", twin);
  if (architecture !== "glass-box") link.set("architecture", architecture);
  if (h !== 4) link.set("h", String(h));
  if (width !== 64) link.set("d_model", String(width));
  if (edits.length) link.set("edits", linkOfEdits(edits));
  if (language) link.set("lang", language);
  return link.toString();
}
