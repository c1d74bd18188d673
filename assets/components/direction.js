// Which way a text runs.
const RTL = /[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc\u{10800}-\u{10fff}\u{1e800}-\u{1efff}]/u;
const NO_WORD = /^(\[[A-Z]+\]|<[^\s<>]+>)$/; // [CLS], </s>: not of the text

// A token in a sentence keeps to itself the direction it is written in: two Arabic words would turn the
// numbers between them round.
export const isolated = (token) => (RTL.test(token) ? `\u2068${token}\u2069` : token);

// Does the text run from right to left? The first letter that has a direction decides (Unicode, UAX 9).
export function isRtl(tokens) {
  const letter = tokens.filter((token) => !NO_WORD.test(token)).join(" ").match(/\p{L}/u)?.[0] ?? "";
  return RTL.test(letter);
}
