// Typed text as tokens with their labels and their names in a link (mha_core/traces/tokens.py, focus/token_names.py).

/** @typedef {[start: number, end: number]} Span of a text, in UTF-16 units */

const BETWEEN_SEPARATORS = /[^\s\p{Cc}\p{Bidi_Control}\u200b\u2060\ufeff]+/gu;
// Characters of scripts without spaces between words: each becomes a token.
const UNSPACED =
  /^[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}ー\p{Script=Thai}\p{Script=Lao}\p{Script=Khmer}\p{Script=Myanmar}]/u;
const NUMERIC = /^\p{N}/u;
const WORD_PART = /^[\p{L}\p{N}_]/u;
const INVISIBLE = /^\p{Default_Ignorable_Code_Point}+$/u;
const BRACKETED = /<[^\s<>]{1,20}>|\[[A-Z]{2,12}\]/uy; // special tokens of other tokenizers
const IN_NUMBERS = ".,:";
const IN_WORDS = "'’-‑";
const REPEATED = ".!?…-";
const SPACE_MARKS = /^[Ġ▁]+/u; // a tokenizer's mark of a space before a piece
const GRAPHEMES = new Intl.Segmenter("en", { granularity: "grapheme" });

/** @typedef {{ text: string, at: number, isAlone: boolean, isNumeric: boolean, isWord: boolean }} Grapheme */

/** @param {string} chunk @returns {Grapheme[]} */
const graphemesOf = (chunk) =>
  Array.from(GRAPHEMES.segment(chunk), ({ segment: text, index: at }) => {
    const isAlone = UNSPACED.test(text);
    return { text, at, isAlone, isNumeric: NUMERIC.test(text), isWord: !isAlone && WORD_PART.test(text) };
  });

/**
 * Where the words, numbers and punctuation marks of a text are.
 * @param {string} text
 * @returns {Span[]}
 */
export function spansOf(text) {
  /** @type {Span[]} */
  const spans = [];
  for (const { 0: chunk, index: from } of text.matchAll(BETWEEN_SEPARATORS)) {
    const graphemes = graphemesOf(chunk);
    for (let first = 0, end = 0; first < graphemes.length; first = end) {
      end = endOfPiece(graphemes, first, chunk);
      const [start, stop] = [graphemes[first].at, graphemes[end]?.at ?? chunk.length];
      if (!INVISIBLE.test(chunk.slice(start, stop))) spans.push([from + start, from + stop]);
    }
  }
  return spans;
}

/** @param {Grapheme[]} graphemes @param {number} first @param {string} chunk */
function endOfPiece(graphemes, first, chunk) {
  /** @type {(at: number, kind: "isNumeric" | "isWord") => number} */
  const after = (at, kind) => {
    while (graphemes[at]?.[kind]) at += 1;
    return at;
  };
  // Parts of one kind, joined by single characters: 3.14, didn't.
  /** @type {(kind: "isNumeric" | "isWord", between: string) => { end: number, parts: number }} */
  const joined = (kind, between) => {
    let [end, parts] = [after(first, kind), 1];
    while (end > first && graphemes[end]?.text.length === 1 && between.includes(graphemes[end].text)) {
      const next = after(end + 1, kind);
      if (next === end + 1) break;
      [end, parts] = [next, parts + 1];
    }
    return { end, parts };
  };
  const { text, at, isAlone } = graphemes[first];
  if (isAlone) return first + 1;
  BRACKETED.lastIndex = at;
  const bracketed = BRACKETED.exec(chunk);
  if (bracketed) {
    const stop = at + bracketed[0].length;
    const end = stop === chunk.length ? graphemes.length : graphemes.findIndex((one) => one.at === stop);
    if (end > 0) return end;
  }
  const number = joined("isNumeric", IN_NUMBERS);
  if (number.parts > 1) return number.end;
  const word = joined("isWord", IN_WORDS).end;
  if (word > first) return word;
  let end = first + 1;
  if (REPEATED.includes(text)) while (graphemes[end]?.text === text) end += 1;
  return end;
}

/** @param {number} number */
const lowered = (number) => String(number).replace(/\d/g, (digit) => "₀₁₂₃₄₅₆₇₈₉"[Number(digit)]);

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
 * @param {string[]} pieces
 * @param {string[]} labels
 * @param {string} word
 */
function placeOfWord(pieces, labels, word) {
  const form = word.normalize("NFC");
  const labelled = labels.indexOf(form);
  if (labelled >= 0) return labelled;
  const [, stem = "", nth = ""] = form.match(/^(.+)~(\p{Nd}+)$/su) ?? [];
  const forms = pieces.map((piece) => piece.normalize("NFC"));
  for (const every of [forms, forms.map((piece) => piece.replace(SPACE_MARKS, ""))]) {
    /** @param {string} name */
    const places = (name) => [...every.keys()].filter((at) => every[at] === name);
    const found = places(form);
    if (found.length) return found.length === 1 ? found[0] : -1;
    const numbered = stem ? places(stem) : [];
    if (numbered.length)
      return (nth.length <= 9 && numbered[Number(nth) - 1]) || (numbered[0] === 0 && Number(nth) === 1 ? 0 : -1);
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
  /** @type {Map<string, number>} */
  const count = new Map();
  /** @param {string} name */
  const isName = (name) => name !== "" && !/^\p{Nd}+$/u.test(name) && !/\s/.test(name);
  /** @param {string} name */
  const named = (name) => (isName(name) ? placeOfWord(pieces, labels, name) : -1);
  return pieces.map((piece, at) => {
    const form = piece.normalize("NFC").replace(SPACE_MARKS, "");
    const nth = (count.get(form) ?? 0) + 1;
    count.set(form, nth);
    return [form, `${form}~${nth}`].find((name) => named(name) === at) ?? String(at + 1);
  });
}
