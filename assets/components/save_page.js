// The head view as a page that goes on working without a server: what `HeadView.save` makes in Python.

// Bytes as the characters of a UTF-16 text, as mha_core/utf16.py writes them.
export function toLetters(bytes) {
  const odd = bytes.length % 2;
  const whole = new Uint8Array(bytes.length + 2 - odd);
  whole.set(bytes);
  whole[whole.length - 1] = 2 - odd;
  const units = new Uint16Array(whole.buffer);
  const found = new Uint16Array(2 * units.length);
  let count = 0;
  for (const unit of units) {
    const marked = (unit >= 0xd800 && unit < 0xe000) || unit === 0x21 || unit === 0x3c || unit === 0 || unit === 13;
    if (marked) found[count++] = 0x21;
    found[count++] = marked ? unit ^ 0x8000 : unit;
  }
  return new TextDecoder("utf-16le", { ignoreBOM: true }).decode(found.subarray(0, count));
}

// The page with these bytes and this view inside.
export async function pageOf(template, header, bytes) {
  const stream = new Blob([JSON.stringify(header)]).stream().pipeThrough(new CompressionStream("deflate"));
  const said = new Uint8Array(await new Response(stream).arrayBuffer());
  const inside = new Uint8Array(4 + said.length + bytes.length);
  new DataView(inside.buffer).setUint32(0, said.length, true);
  inside.set(said, 4);
  inside.set(bytes, 4 + said.length);
  return template.replace("__NUMBERS__", () => toLetters(inside));
}

// The text as a file that every reader knows to be UTF-16.
export function utf16(text) {
  const units = new Uint16Array(text.length + 1);
  units[0] = 0xfeff;
  for (let i = 0; i < text.length; i++) units[i + 1] = text.charCodeAt(i);
  return new Blob([units], { type: "text/html" });
}
