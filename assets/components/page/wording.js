// Words and digits: which way a text runs, sentences with their blanks filled in, weights as they are written.
const RTL = /[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc\u{10800}-\u{10fff}\u{1e800}-\u{1efff}]/u;
const NO_WORD = /^(\[[A-Z]+\]|<[^\s<>]+>)$/; // [CLS], </s>: not of the text

// A token in a sentence keeps to itself the direction it is written in: two Arabic words would turn the
// numbers between them round.
/** @param {string} token */
export const isolated = (token) => (RTL.test(token) ? `\u2068${token}\u2069` : token);

// Does the text run from right to left? The first letter that has a direction decides (Unicode, UAX 9).
/** @param {string[]} tokens */
export function isRtl(tokens) {
  const text = tokens.filter((token) => !NO_WORD.test(token)).join(" ");
  return RTL.test(text.match(/\p{L}/u)?.[0] ?? "");
}

// The language by which a browser draws the characters of a token, such as 直, in the Chinese way; "" for others.
/** @param {string} token */
export const drawnAs = (token) => (/\p{Script=Han}/u.test(token) ? "zh-Hans" : "");

// A template with {names} filled in. What is filled in is never a template itself.
/** @param {string} template @param {Record<string, string | number>} values */
export function fill(template, values) {
  return template.replace(/\{(\w+)\}/g, (whole, name) => (name in values ? String(values[name]) : whole));
}

// The texts where a finger points: each that has one of its own for that (`…_touch`) is replaced by it.
/** @param {Record<string, string>} texts @param {boolean} isTouched */
export function byPointer(texts, isTouched = matchMedia("(hover: none)").matches) {
  const own = Object.keys(texts).filter((key) => isTouched && `${key}_touch` in texts);
  return { ...texts, ...Object.fromEntries(own.map((key) => [key, texts[`${key}_touch`]])) };
}

// Sentences in a row; a language without spaces has none between them.
/** @param {(string | false | null | undefined)[]} sentences @param {Record<string, string>} texts @returns {string} */
export function paragraph(sentences, texts) {
  let first = "";
  for (const last of sentences) if (last) first = first ? fill(texts.two_sentences, { first, last }) : last;
  return first;
}

// Digits of a weight: two beside a token, four where it is asked for.
/** @param {number} weight */
export const short = (weight) => (weight >= 0.005 || weight === 0 ? weight.toFixed(2) : "<0.01");
/** @param {number} weight */
export const exact = (weight) => (weight >= 0.0001 || weight === 0 ? weight.toFixed(4) : weight.toExponential(1));

// A number of any size with four digits.
/** @param {number | null} value */
export const written = (value) =>
  value === -Infinity || value === null ? "−∞" : Number(value).toPrecision(4).replace("-", "−");

// A number as a subscript.
/** @param {number} number */
export const lowered = (number) => String(number).replace(/\d/g, (digit) => "₀₁₂₃₄₅₆₇₈₉"[Number(digit)]);

// Titles without the words that all of them begin with, except the last such word. A single title stays as it is.
/** @param {string[]} titles */
export function apart(titles) {
  // Chinese has no spaces: there each character is a word.
  const gap = titles.some((title) => title.includes(" ")) ? " " : "";
  const words = titles.map((title) => (gap ? title.split(gap) : [...title]));
  const limit = Math.min(...words.map(({ length }) => length)) - 1;
  let same = 0;
  while (same < limit && words.every((title) => title[same] === words[0][same])) same += 1;
  return titles.length < 2 || same < 2 ? titles : words.map((title) => `… ${title.slice(same - 1).join(gap)}`);
}

// Characters that XML forbids (control characters and halves of surrogate pairs) are replaced.
const NOT_XML = /[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\u{10000}-\u{10ffff}]/gu;
/** @param {string} text */
export const cleaned = (text) => text.replace(NOT_XML, "\ufffd");

// A name for a question to the server, which no other has.
export const questionId = () => `${Date.now()}-${Math.random()}`;
