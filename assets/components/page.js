// The script of a page on its own: its numbers are inside, and nobody is asked. 4 bytes say how long the
// deflated header is; the blob follows it.
const root = document.querySelector(".view");
const inside = bytesOf("numbers");
const start = 4 + new DataView(inside.buffer, inside.byteOffset).getUint32(0, true);
const header = JSON.parse(await unpacked(inside.subarray(4, start)));
const bytes = inside.slice(start);
const draw = async () => showView(root, header, await openBlob(bytes), { open: null, page: null, bytes });
document.title = `${header.file} · Headscope`;
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
draw();
