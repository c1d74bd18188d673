// The parts of a page of one's own: its numbers, its texts, the words of a language, a model. They are in the page, or in
// files beside it, which are loaded as scripts: so it works from a disk and in a frame that has no origin, too.
import { make, required } from "./elements.js";

/**
 * Everything that start.js and the files leave for the page.
 * @typedef {typeof globalThis & { headscopeUnpacked: (text: string) => Promise<Uint8Array<ArrayBuffer>>,
 *   headscopeFiles: Record<string, string> }} PageOfParts
 */

const page = /** @type {PageOfParts} */ (globalThis);
/** @type {Map<string, Promise<Uint8Array<ArrayBuffer>>>} */
const loaded = new Map();
const asText = new TextDecoder();
let isAllowed = false;

// The files with the parts that are not in the page, by their names.
/** @returns {Record<string, string>} */
const fileNames = () => JSON.parse(document.getElementById("files")?.textContent ?? "{}");

// The parts whose names have this form.
/** @param {RegExp} form */
export const partsLike = (form) =>
  [...document.querySelectorAll('script[type="text/plain"]')]
    .map(({ id }) => id)
    .concat(Object.keys(fileNames()))
    .filter((name) => form.test(name));

/** @param {string} name */
export function bytesOfPart(name) {
  const bytes = loaded.get(name) ?? load(name);
  loaded.set(name, bytes);
  bytes.catch(() => loaded.delete(name)); // so that it is tried again
  return bytes;
}

/** @param {string} name */
export const partAsJson = async (name) => JSON.parse(asText.decode(await bytesOfPart(name)));

// From here on scripts come from the folder beside the page alone, wherever that is.
function allowFolder() {
  const folder = new URL("./parts/", location.href).href.replace(/[;,]/g, encodeURIComponent);
  const content = `script-src 'unsafe-inline' ${location.protocol === "file:" ? "file:" : folder}`;
  document.head.append(Object.assign(make("meta"), { httpEquiv: "Content-Security-Policy", content }));
}

/** @param {string} name */
async function load(name) {
  const inside = document.getElementById(name);
  if (inside) return page.headscopeUnpacked(inside.textContent ?? "");
  const src = required(fileNames()[name], `part ${name}`);
  if (!isAllowed) allowFolder();
  isAllowed = true;
  await new Promise((resolve, reject) => {
    const script = Object.assign(make("script"), { src, onload: resolve, onerror: reject });
    document.head.append(script);
  });
  return page.headscopeUnpacked(page.headscopeFiles[name]);
}
