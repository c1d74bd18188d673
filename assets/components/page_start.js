// Start of a page on its own: its style and its script are unpacked, and the script reads the numbers.
const bytesOf = (id) => fromLetters(document.getElementById(id).textContent);
const unpacked = async (bytes) => {
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new TextDecoder().decode(await new Response(stream).arrayBuffer());
};
(async () => {
  const [style, script] = (await unpacked(bytesOf("program"))).split("\0");
  const add = (name, how) => document.head.append(Object.assign(document.createElement(name), how));
  add("style", { textContent: style });
  add("script", { type: "module", textContent: script });
})().catch(() => (document.querySelector("main p").hidden = false));
