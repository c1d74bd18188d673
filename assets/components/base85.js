// Bytes as letters, five for four, as mha_core/base85.py writes them.
const LETTERS =
  "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%[()*+-;,=.?@^]`{|}~";

export function toBase85(bytes) {
  const count = Math.ceil(bytes.length / 4);
  const padded = new Uint8Array(4 * count);
  padded.set(bytes);
  const words = new DataView(padded.buffer);
  const found = new Uint8Array(5 * count);
  for (let i = 0; i < count; i++) {
    let word = words.getUint32(4 * i);
    for (let place = 4; place >= 0; place--) {
      found[5 * i + place] = LETTERS.charCodeAt(word % 85);
      word = Math.floor(word / 85);
    }
  }
  return new TextDecoder().decode(found.subarray(0, found.length - (padded.length - bytes.length)));
}

export function fromBase85(text) {
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
