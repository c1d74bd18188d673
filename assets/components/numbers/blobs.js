// Large arrays of bytes. A component of its own is sent each once (`deliver`); others wait for it by its name and digest
// (`arrival`). In the data of a picture they would be sent again with every change of it.
const latest = new Map(); // by name, the last one: { digest, bytes }
const awaited = new Map(); // by name and digest: { promise, resolve }

const keyOf = (name, digest) => `${name} ${digest}`;

/** @param {Uint8Array} bytes */
function deliver(name, digest, bytes) {
  latest.set(name, { digest, bytes });
  awaited.get(keyOf(name, digest))?.resolve(bytes);
  awaited.delete(keyOf(name, digest));
}

/**
 * The bytes under a name once they have this digest.
 * @returns {Promise<Uint8Array>}
 */
export function arrival(name, digest) {
  const here = latest.get(name);
  if (here?.digest === digest) return Promise.resolve(here.bytes);
  const key = keyOf(name, digest);
  if (!awaited.has(key)) {
    const waiting = { promise: null, resolve: null };
    waiting.promise = new Promise((resolve) => {
      waiting.resolve = resolve;
    });
    awaited.set(key, waiting);
  }
  return awaited.get(key).promise;
}

// Mounted by Streamlit: a line of JSON (name, digest), then the bytes, which are to stand alone in memory.
export default function ({ data }) {
  const end = data.indexOf(10);
  const { name, digest } = JSON.parse(new TextDecoder().decode(data.subarray(0, end)));
  deliver(name, digest, data.slice(end + 1));
}
