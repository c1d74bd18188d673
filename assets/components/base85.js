// Bytes that were written as letters of ASCII, five for four, as mha_core/base85.py writes them.
const LETTERS =
  "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%[()*+-;,=.?@^]`{|}~";

function fromLetters(text) {
  const digits = new Map([...LETTERS].map((letter, digit) => [letter.charCodeAt(0), digit]));
  const table = Uint8Array.from({ length: 128 }, (_, code) => digits.get(code) ?? 255);
  const count = Math.ceil(text.length / 5);
  const found = new DataView(new ArrayBuffer(4 * count));
  for (let i = 0; i < count; i++) {
    let word = 0;
    for (let at = 5 * i; at < 5 * i + 5; at++) {
      const digit = at < text.length ? (table[text.charCodeAt(at)] ?? 255) : 84;
      if (digit === 255) throw new Error(`not base85: ${text[at]}`);
      word = 85 * word + digit;
    }
    found.setUint32(4 * i, word);
  }
  return new Uint8Array(found.buffer, 0, 4 * count - (5 * count - text.length));
}
