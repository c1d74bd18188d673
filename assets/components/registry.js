// What the components of a page share, found by its name: large bytes, and scripts. With every change of its
// data a component is sent its own scripts again, so that long ones are components by themselves.
const kept = (globalThis.headscope ??= { shared: new Map(), waiting: new Set() });

export function keep(name, digest, what) {
  kept.shared.set(name, { digest, what });
  for (const ready of [...kept.waiting]) ready();
}

// What is under a name once it has this digest.
export function find(name, digest) {
  return new Promise((resolve) => {
    const ready = () => {
      const found = kept.shared.get(name);
      if (found?.digest !== digest) return;
      kept.waiting.delete(ready);
      resolve(found.what);
    };
    kept.waiting.add(ready);
    ready();
  });
}

// A line of JSON (name, digest), then bytes, which stand alone in memory: { name, digest, bytes }.
export function labelled(data) {
  const end = data.indexOf(10);
  return { ...JSON.parse(new TextDecoder().decode(data.subarray(0, end))), bytes: data.slice(end + 1) };
}
