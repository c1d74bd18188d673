// Large bytes that several runs share: read once, found by their name. The view and its bytes are two
// components, so that a change of the scene sends only the scene.
const kept = (globalThis.headscope ??= { blobs: new Map(), waiting: new Set() });

export function keep(name, digest, bytes, panels) {
  kept.blobs.set(name, { digest, bytes, panels });
  for (const ready of [...kept.waiting]) ready();
}

// The panels under a name once they have this digest.
export function find(name, digest) {
  return new Promise((resolve) => {
    const ready = () => {
      const found = kept.blobs.get(name);
      if (found?.digest !== digest) return;
      kept.waiting.delete(ready);
      resolve(found);
    };
    kept.waiting.add(ready);
    ready();
  });
}
