// The head view as a page that works without a server, as `HeadView.save` writes it in Python.
const CHUNK = 0x8000; // bytes that are written as letters at once

/**
 * The page with these numbers and this view inside.
 * @param {string} template a page with `__PARTS__` in place of its numbers
 * @param {import("../view/head_view.js").Header} header
 * @param {import("../numbers/blobs.js").Bytes} payload
 */
export async function pageOf(template, header, payload) {
  const encoded = new TextEncoder().encode(JSON.stringify(header));
  const size = new DataView(new ArrayBuffer(4));
  size.setUint32(0, encoded.length, true);
  const packing = new CompressionStream("deflate");
  const stream = new Blob([size, encoded, payload]).stream().pipeThrough(packing);
  const packed = new Uint8Array(await new Response(stream).arrayBuffer());
  /** @type {Record<string, string>} */
  const parts = {
    FILES: "",
    OLD: escaped(header.texts.old_browser),
    PARTS: `<script type="text/plain" id="numbers">${base64(packed)}</script>`,
  };
  return template.replace(/__([A-Z]+)__/g, (whole, name) => parts[name] ?? whole);
}

// Text in HTML, whatever the encoding of the page.
/** @param {string} text */
const escaped = (text) => text.replace(/[^\w .,:;!?()-]/gu, (character) => `&#${character.codePointAt(0)};`);

/** @param {Uint8Array} bytes */
function base64(bytes) {
  let text = "";
  for (let i = 0; i < bytes.length; i += CHUNK) text += String.fromCharCode(...bytes.subarray(i, i + CHUNK));
  return btoa(text);
}
