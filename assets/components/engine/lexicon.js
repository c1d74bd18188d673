// The words of a small language, and typed text as their numbers (mha_core/training/lexicon.py).
import { labelsOf, namesOfTokens, spansOf } from "./tokens.js";

/**
 * The words as `mha_core.static.parts.words` writes them. `marks` has for each known word the kinds that it belongs to,
 * a letter from "@" on: the bits of `MARKS`.
 * @typedef {object} PackedWords
 * @property {string} code
 * @property {string} known
 * @property {string} marks
 * @property {Record<string, number>} spares how many vectors there are for unknown words of each form
 * @property {string} numbers words that unknown numbers are read as
 * @property {Record<string, string>} fitting for each pronoun the nouns that it can stand for
 * @property {string} unlisted words that a text without spaces is not cut through
 * @property {number} limit of tokens
 */
/** @typedef {import("./tokens.js").Span} Span */
/**
 * A cut text. Positions count from 0, and [CLS] is the first.
 * @typedef {{ text: string, pieces: string[], spans: Span[], ids: number[], unknown: number[], labels: string[],
 *   names: string[] }} CutText
 */
/** @typedef {keyof typeof MARKS} WordKind */

export const START = "[CLS]";
export const HIDDEN_MARK = "[MASK]";
const SPECIAL_WORDS = ["[PAD]", START, HIDDEN_MARK];
const MARKS = { noun: 1, verb: 2, shownVerb: 4, adjective: 8, pronoun: 16, be: 32 };
const ENDINGS = ["ing", "ed", "ly", "s"];
const MIN_STEM = 3; // letters before an ending
const KNOWN_COST = 10; // of a word: the cheapest way to cut a text is taken
const UNKNOWN_COST = 11;
// Lower case for comparison ("Straße" and "STRASSE" are one word), as Python's `casefold` has it.
const IS_PLAIN = /^[\p{ASCII}\p{Script=Han}]*$/u;
const AS_TYPED = /[ı\u13a0-\u13f5]/u;
const CHEROKEE = /[\u13f8-\u13fd\uab70-\uabbf]/u;

/** @param {string} text */
const folded = (text) =>
  IS_PLAIN.test(text)
    ? text.toLowerCase()
    : Array.from(text, (one) => {
        if (AS_TYPED.test(one)) return one;
        return CHEROKEE.test(one) ? one.toUpperCase() : one.toLowerCase().toUpperCase().toLowerCase();
      }).join("");

/** @param {string} piece in the spelling of the vocabulary */
export const normalized = (piece) => (piece === HIDDEN_MARK ? piece : folded(piece).replaceAll("’", "'"));

// The checksum CRC-32 of a text, by which an unknown word finds its spare.
/** @param {string} text */
function checksum(text) {
  let crc = -1;
  for (const byte of new TextEncoder().encode(text)) {
    crc ^= byte;
    for (let bit = 0; bit < 8; bit++) crc = (crc >>> 1) ^ (crc & 1 ? 0xedb88320 : 0);
  }
  return ~crc >>> 0;
}

export class Lexicon {
  /** @param {PackedWords} packed */
  constructor(packed) {
    const { code, known, marks, spares, numbers, fitting, unlisted, limit } = packed;
    const words = known.split(" ");
    this.code = code;
    this.limit = limit;
    this.known = words;
    /** @type {string[]} by their numbers: special tokens, known words, then the spares, which nobody can type */
    this.vocabulary = [...SPECIAL_WORDS, ...words];
    /** @type {Map<string, number>} */
    this.number = new Map(this.vocabulary.map((word, at) => [word, at]));
    this.marks = new Map(words.map((word, at) => [word, marks.charCodeAt(at) - 64]));
    this.unlisted = new Set(unlisted.split(" "));
    this.longest = [...words, ...this.unlisted].reduce((most, { length }) => Math.max(most, length), 0);
    this.fitting = new Map(Object.entries(fitting).map(([pronoun, nouns]) => [pronoun, new Set(nouns.split(" "))]));
    let next = this.vocabulary.length;
    /** @type {Map<string, number[]>} the numbers that unknown words of each form are read as */
    this.standIns = new Map([["number", numbers.split(" ").map((word) => this.number.get(word) ?? 0)]]);
    for (const [kind, count] of Object.entries(spares)) {
      this.standIns.set(
        kind,
        Array.from({ length: count }, (_, nth) => next + nth),
      );
      next += count;
    }
  }

  // Is a word, as `normalized` spells it, of that kind?
  /** @param {string} word @param {WordKind} kind */
  is = (word, kind) => ((this.marks.get(word) ?? 0) & MARKS[kind]) > 0;

  /**
   * Typed text as tokens after [CLS], with their numbers. Neighbouring pieces that form a word are joined.
   * @param {string} text
   * @returns {CutText}
   */
  cut(text) {
    /** @type {Span[]} */
    const spans = [[0, 0], ...this.#bestCut(text, spansOf(text))];
    const pieces = [START, ...spans.slice(1).map(([start, end]) => text.slice(start, end))];
    const found = [this.number.get(START), ...pieces.slice(1).map((piece) => this.number.get(normalized(piece)))];
    const unknown = [...found.keys()].filter((at) => found[at] === undefined);
    const readAs = this.#readAs(pieces, unknown);
    const ids = found.map((number, at) => number ?? readAs.get(normalized(pieces[at])) ?? 0);
    const labels = labelsOf(pieces);
    return { text, pieces, spans, ids, unknown, labels, names: namesOfTokens(pieces, labels) };
  }

  // As few words as possible, and of these as many known ones as possible.
  /** @param {string} text @param {Span[]} parts @returns {Span[]} */
  #bestCut(text, parts) {
    const cheapest = [0];
    const first = [0]; // of the last word up to each part
    for (let end = 1; end <= parts.length; end++) {
      let [cost, at] = [cheapest[end - 1] + UNKNOWN_COST, end - 1];
      for (let start = Math.max(0, end - this.longest); start < end; start++) {
        const word = text.slice(parts[start][0], parts[end - 1][1]);
        if (word.length > this.longest) continue; // typed words are no shorter than the vocabulary's
        const isKnown = this.number.has(normalized(word));
        const all = cheapest[start] + (isKnown ? KNOWN_COST : UNKNOWN_COST);
        if ((isKnown || this.unlisted.has(word)) && all <= cost) [cost, at] = [all, start];
      }
      cheapest.push(cost);
      first.push(at);
    }
    /** @type {Span[]} */
    const spans = [];
    for (let end = parts.length; end; end = first[end]) spans.unshift([parts[first[end]][0], parts[end - 1][1]]);
    return spans;
  }

  // The spare for each unknown word, by its form and its letters: the same in every sentence, unless two words of one
  // sentence would share it.
  /** @param {string[]} pieces @param {number[]} unknown */
  #readAs(pieces, unknown) {
    /** @type {Map<string, number>} */
    const readAs = new Map();
    const taken = new Set();
    for (const at of unknown) {
      const word = normalized(pieces[at]);
      if (readAs.has(word)) continue;
      const spares = this.standIns.get(this.spareKind(pieces[at], at === 1)) ?? [];
      const start = checksum(word) % spares.length;
      const turned = [...spares.slice(start), ...spares.slice(0, start)];
      const spare = turned.find((one) => !taken.has(one)) ?? turned[0];
      readAs.set(word, spare);
      taken.add(spare);
    }
    return readAs;
  }

  // The kind of spare for a word of this form; the first word of a sentence has a capital letter in any case.
  /** @param {string} piece @param {boolean} isFirst */
  spareKind(piece, isFirst) {
    if (/\p{N}/u.test(piece)) return "number";
    if (!/\p{L}/u.test(piece)) return "symbol";
    if (this.code !== "en") return /\p{Script=Han}/u.test(piece) ? "word" : "latin";
    const isCapital = /^\p{Uppercase}/u.test(piece);
    const letters = [...piece].length;
    const ending = ENDINGS.find((one) => piece.endsWith(one) && letters >= MIN_STEM + one.length);
    if (ending && !(isCapital && (!isFirst || ending === "s" || ending === "ed"))) return ending;
    return isCapital ? "name" : "other";
  }
}

// The language of the small model that reads a text: Chinese unless there are more Latin words than Chinese characters.
/** @param {string} text */
export function languageOf(text) {
  const characters = text.match(/\p{Script=Han}/gu)?.length ?? 0;
  return characters && characters >= (text.match(/\p{Script=Latin}+/gu)?.length ?? 0) ? "zh" : "en";
}
