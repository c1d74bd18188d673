// Query heads that share keys and values (GQA, MQA): their switches stand in one frame, named after what they share.
const BRIEF = 12; // heads from which on only their numbers are written in the frames

function sharing(view, chips) {
  const { header, texts } = view;
  const size = header.heads / header.kv;
  if (!header.kv || size === 1) return chips;
  if (header.heads > BRIEF) {
    chips.forEach((chip, head) => {
      chip.setAttribute("aria-label", chip.textContent);
      chip.textContent = head + 1;
    });
  }
  return Array.from({ length: header.kv }, (_, kv) => {
    const [first, last] = [kv * size, (kv + 1) * size];
    const name = make("span", "label", fill(texts.shared, { head: kv + 1 }));
    name.setAttribute("aria-hidden", true); // the frame says it in full
    const said = fill(texts.shared_heads, { heads: `${first + 1}–${last}`, head: kv + 1 });
    const box = group(said, [name, ...chips.slice(first, last)], "shared");
    box.title = said;
    return box;
  });
}
