// Large arrays of bytes. A component of its own is sent each once (`deliver`); others wait for it by its name and digest
// (`arrival`). In the data of a picture they would be sent again with every change of it.
/** @typedef {Uint8Array<ArrayBuffer>} Bytes */

/** @type {Map<string, { digest: string, bytes: Bytes }>} by name, the last one */
const latest = new Map();
/** @type {Map<string, { promise: Promise<Bytes>, resolve: (bytes: Bytes) => void }>} by name and digest */
const awaited = new Map();

/** @type {(name: string, digest: string) => string} */
const keyOf = (name, digest) => `${name} ${digest}`;

/** @param {string} name @param {string} digest @param {Bytes} bytes */
function deliver(name, digest, bytes) {
  latest.set(name, { digest, bytes });
  awaited.get(keyOf(name, digest))?.resolve(bytes);
  awaited.delete(keyOf(name, digest));
}

/**
 * The bytes under a name once they have this digest.
 * @param {string} name
 * @param {string} digest
 * @returns {Promise<Bytes>}
 */
export function arrival(name, digest) {
  const here = latest.get(name);
  if (here?.digest === digest) return Promise.resolve(here.bytes);
  const key = keyOf(name, digest);
  const waiting = awaited.get(key);
  if (waiting) return waiting.promise;
  /** @type {(bytes: Bytes) => void} */
  let resolve = () => {};
  /** @type {Promise<Bytes>} */
  const promise = new Promise((done) => {
    resolve = done;
  });
  awaited.set(key, { promise, resolve });
  return promise;
}

// Mounted by Streamlit: a line of JSON (name, digest), then the bytes, which are to stand alone in memory.
/** @param {import("../streamlit/adapter.js").Mounted<Bytes>} mounted */
export default function ({ data }) {
  const end = data.indexOf(10);
  const { name, digest } = JSON.parse(new TextDecoder().decode(data.subarray(0, end)));
  deliver(name, digest, data.slice(end + 1));
}
