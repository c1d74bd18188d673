// What the overview is sent, and the orders in which its heads can stand.
// Data: 4 bytes header length (little endian), JSON header, then for each head side × side bytes (0 to 254
// is the root of the weight, 255 is hidden), then for each head its measures as float32.
export function unpackOverview(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const size = view.getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(bytes.subarray(4, 4 + size)));
  const count = header.heads.reduce((sum, heads) => sum + heads, 0);
  const end = 4 + size + count * header.side ** 2;
  const measures = new Float32Array(bytes.slice(end).buffer);
  return { header, thumbs: bytes.subarray(4 + size, end), measures };
}

// The layer and head of each picture, in the order of the data.
export function headsOf(counts) {
  return counts.flatMap((count, layer) => Array.from({ length: count }, (_, head) => ({ layer, head })));
}

// The heads by one of their measures; without a number they come last, and equal ones stay as they are.
export function ranking(values, descending) {
  const way = descending ? -1 : 1;
  return [...values.keys()].sort((a, b) => {
    const [x, y] = [values[a], values[b]];
    if (Number.isNaN(x) || Number.isNaN(y)) return Number(Number.isNaN(x)) - Number(Number.isNaN(y)) || a - b;
    return way * (x - y) || a - b;
  });
}

// The heads by what they do: those that do the same together, the surest first; those without a role last.
export function byRole(roles, scores, backwards) {
  const way = backwards ? -1 : 1;
  return [...roles.keys()].sort((a, b) => {
    if (!roles[a] || !roles[b]) return Number(!roles[a]) - Number(!roles[b]) || a - b;
    if (roles[a] !== roles[b]) return way * (roles[a] < roles[b] ? -1 : 1);
    return scores[b] - scores[a] || a - b;
  });
}
