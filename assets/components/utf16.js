// Bytes that were written as the characters of a UTF-16 text, as mha_core/utf16.py writes them.
function fromLetters(text) {
  const units = new Uint16Array(text.length);
  let count = 0;
  for (let i = 0; i < text.length; i++) {
    const unit = text.charCodeAt(i);
    units[count++] = unit === 0x21 ? text.charCodeAt(++i) ^ 0x8000 : unit;
  }
  const bytes = new Uint8Array(units.buffer, 0, 2 * count);
  return bytes.subarray(0, bytes.length - bytes.at(-1));
}
