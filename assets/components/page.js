// Start of a page on its own: its numbers are inside, and nobody is asked.
const root = document.querySelector(".view");
const header = JSON.parse(document.getElementById("view").textContent);
const bytes = fromBase85(document.getElementById("blob").textContent);
const draw = async () => showView(root, header, await openBlob(bytes), { open: null, page: null, bytes });
document.title = `${header.file} · Headscope`;
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
draw();
