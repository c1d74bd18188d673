// Starts a saved page: unpacks its numbers, its style and its script, which reads the numbers.
(async () => {
  /** @param {string} id */
  const unpacked = async (id) => {
    const letters = atob(document.getElementById(id)?.textContent ?? "");
    const bytes = Uint8Array.from({ length: letters.length }, (_, i) => letters.charCodeAt(i));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
    return new Uint8Array(await new Response(stream).arrayBuffer());
  };
  const [program, numbers] = await Promise.all([unpacked("program"), unpacked("numbers")]);
  const [style, script] = new TextDecoder().decode(program).split("\0");
  /** @type {(name: string, how: Record<string, string>) => void} */
  const add = (name, how) => document.head.append(Object.assign(document.createElement(name), how));
  Object.assign(globalThis, { headscopeNumbers: numbers });
  add("style", { textContent: style });
  add("script", { type: "module", textContent: script });
})().catch(() => {
  document.querySelector("main p")?.removeAttribute("hidden");
});
