// Typed text as tokens with their labels and their names in a link (mha_core/traces/tokens.py, focus/token_names.py).
import { lowered } from "../page/wording.js";

/** @typedef {[start: number, end: number]} Span of a text, in UTF-16 units */

const BETWEEN_SEPARATORS = /[^\s\p{Cc}\p{Bidi_Control}\u200b\u2060\ufeff]+/gu;
const INVISIBLE = /^\p{Default_Ignorable_Code_Point}+$/u;
const SPACE_MARKS = /^[Ġ▁]+/u; // a tokenizer's mark of a space before a piece
const GRAPHEMES = new Intl.Segmenter("en", { granularity: "grapheme" });
// A piece of a text in which each grapheme, a letter with its accents, ends with \n.
const ANY = "[^\\n]+\\n";
// Characters of scripts without spaces between words: each becomes a token.
const UNSPACED =
  "[\\p{Script=Han}\\p{Script=Hiragana}\\p{Script=Katakana}ー\\p{Script=Thai}\\p{Script=Lao}\\p{Script=Khmer}\\p{Script=Myanmar}]";
const NUMERALS = `(?:(?=\\p{N})${ANY})+`;
const WORD_LETTERS = `(?:(?!${UNSPACED})(?=[\\p{L}\\p{N}_])${ANY})+`;
const PIECE = new RegExp(
  [
    `(?=${UNSPACED})${ANY}`, // 动 物
    "(?:<\\n?(?:[^\\s<>]\\n?){1,20}>|\\[\\n(?:[A-Z]\\n){2,12}\\])\\n", // <s> [MASK]: other tokenizers' special tokens
    `${NUMERALS}(?:[.,:]\\n${NUMERALS})+`, // 3.14 1,000 12:30
    `${WORD_LETTERS}(?:['’‑-]\\n${WORD_LETTERS})*`, // didn't l’eau well-known
    "([.!?…-])\\n(?:\\1\\n)+", // ... !! --
    ANY, // punctuation, emoji
  ].join("|"),
  "gu",
);

/**
 * Where the words, numbers and punctuation marks of a text are.
 * @param {string} text
 */
export function spansOf(text) {
  /** @type {Span[]} */
  const spans = [];
  for (const { 0: chunk, index } of text.matchAll(BETWEEN_SEPARATORS)) {
    const ended = Array.from(GRAPHEMES.segment(chunk), ({ segment }) => `${segment}\n`).join("");
    let from = index;
    for (const [piece] of ended.matchAll(PIECE)) {
      const to = from + piece.replaceAll("\n", "").length;
      if (!INVISIBLE.test(text.slice(from, to))) spans.push([from, to]);
      from = to;
    }
  }
  return spans;
}

/**
 * A label for each piece, which no other has: one that occurs several times gets a subscript 1, 2, 3 …
 * @param {string[]} pieces
 */
export function labelsOf(pieces) {
  const forms = pieces.map((piece) => piece.normalize("NFC"));
  /** @type {Map<string, number>} */
  const seen = new Map();
  return forms.map((form) => {
    if (forms.indexOf(form) === forms.lastIndexOf(form)) return form;
    seen.set(form, (seen.get(form) ?? 0) + 1);
    return `${form}\u2009${lowered(seen.get(form) ?? 0)}`;
  });
}

/**
 * The position of the one token that a word names, else -1.
 * @param {string[][]} spellings of the pieces: as they are, and without a tokenizer's marks
 * @param {string[]} labels
 * @param {string} word
 */
function placeOfWord(spellings, labels, word) {
  const labelled = labels.indexOf(word);
  if (labelled >= 0) return labelled;
  const [, stem = "", nth = ""] = word.match(/^(.+)~(\p{Nd}+)$/su) ?? [];
  for (const every of spellings) {
    /** @param {string} name */
    const places = (name) => [...every.keys()].filter((at) => every[at] === name);
    const found = places(word);
    if (found.length) return found.length === 1 ? found[0] : -1;
    const numbered = stem ? places(stem) : [];
    if (numbered.length) return nth.length <= 9 ? (numbered[Number(nth) - 1] ?? -1) : -1;
  }
  return -1;
}

/**
 * The name of each token in a link: its word, `the~2` for the second "the", or its number from 1 where no word leads
 * back to it.
 * @param {string[]} pieces
 * @param {string[]} labels
 */
export function namesOfTokens(pieces, labels) {
  const forms = pieces.map((piece) => piece.normalize("NFC"));
  const bare = forms.map((form) => form.replace(SPACE_MARKS, ""));
  /** @param {string} name */
  const isName = (name) => !/^\p{Nd}*$|\s/u.test(name);
  return bare.map((form, at) => {
    const nth = bare.slice(0, at + 1).filter((one) => one === form).length;
    const names = [form, `${form}~${nth}`].filter(isName);
    return names.find((name) => placeOfWord([forms, bare], labels, name) === at) ?? String(at + 1);
  });
}
