// Starts a page of one's own: unpacks its style and its script, which unpacks the other parts (page/parts.js).
(async () => {
  /** @param {string} text */
  const unpacked = async (text) => {
    const letters = atob(text);
    const bytes = Uint8Array.from({ length: letters.length }, (_, i) => letters.charCodeAt(i));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
    return new Uint8Array(await new Response(stream).arrayBuffer());
  };
  const program = await unpacked(document.getElementById("program")?.textContent ?? "");
  const [style, script] = new TextDecoder().decode(program).split("\0");
  /** @type {(name: string, how: Record<string, string>) => void} */
  const add = (name, how) => document.head.append(Object.assign(document.createElement(name), how));
  Object.assign(globalThis, { headscopeUnpacked: unpacked, headscopeFiles: {} });
  add("style", { textContent: style });
  add("script", { type: "module", textContent: script });
})().catch(() => {
  document.querySelector("main p")?.removeAttribute("hidden");
});
