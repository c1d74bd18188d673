// Large arrays of bytes. A component of its own is sent each once; others wait for it by its name and digest
// (`arrival`). In the data of a picture they would be sent again with every change of it.
/** @typedef {Uint8Array<ArrayBuffer>} Bytes */

/** @type {Map<string, { digest: string, bytes: Bytes }>} by name, the last one */
const latest = new Map();
/** @type {Map<string, ((bytes: Bytes) => void)[]>} who waits, by name and digest */
const waiting = new Map();

/**
 * The bytes under a name once they have this digest.
 * @param {string} name
 * @param {string} digest
 * @returns {Promise<Bytes>}
 */
export function arrival(name, digest) {
  const here = latest.get(name);
  if (here?.digest === digest) return Promise.resolve(here.bytes);
  const key = `${name} ${digest}`;
  return new Promise((resolve) => waiting.set(key, [...(waiting.get(key) ?? []), resolve]));
}

// Mounted by Streamlit: a line of JSON (name, digest), then the bytes, which are to stand alone in memory.
/** @param {import("../streamlit/adapter.js").Mounted<Bytes>} mounted */
export default function ({ data }) {
  const end = data.indexOf(10);
  const { name, digest } = JSON.parse(new TextDecoder().decode(data.subarray(0, end)));
  const bytes = data.slice(end + 1);
  latest.set(name, { digest, bytes });
  for (const resolve of waiting.get(`${name} ${digest}`) ?? []) resolve(bytes);
  waiting.delete(`${name} ${digest}`);
}
