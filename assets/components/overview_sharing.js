// Which heads share keys and values: a bracket over their columns, and its number among the words.
const ARM = 4; // pixels that a bracket reaches down at both ends

// As the path of a drawing; empty for no brackets.
function brackets(plan, size) {
  const starts = size ? Array.from({ length: Math.ceil(plan.columns / size) }, (_, group) => group * size) : [];
  return starts
    .map((head) => {
      const last = Math.min(head + size, plan.columns) - 1;
      const [left] = corner(plan, head);
      const right = corner(plan, last)[0] + plan.size;
      return `M${left + 0.5} ${plan.top}v${0.5 - ARM}H${right - 0.5}v${ARM - 0.5}`;
    })
    .join("");
}

// What a head is called, with the key/value head that it shares with others.
function named(texts, shared, layer, head) {
  const name = texts.name.replace("{layer}", layer + 1).replace("{head}", head + 1);
  const size = shared[layer];
  return size > 1 ? `${name} · ${texts.shared.replace("{head}", Math.floor(head / size) + 1)}` : name;
}

// How many columns each bracket covers, if that is the same in all layers; 0 for no brackets.
function bracketed(shared) {
  return new Set(shared).size === 1 && shared[0] > 1 ? shared[0] : 0;
}
