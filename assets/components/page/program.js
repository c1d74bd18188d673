// The script of a saved page, which holds its numbers itself and needs no server.

import { openPayload } from "../numbers/payload.js";
import { showView } from "../view/head_view.js";
import { elementIn } from "./elements.js";
import { bytesOfPart } from "./parts.js";

const inside = await bytesOfPart("numbers"); // 4 bytes with the length of the header, the header, the payload
const start = 4 + new DataView(inside.buffer).getUint32(0, true);
/** @type {import("../view/head_view.js").Header} */
const header = JSON.parse(new TextDecoder().decode(inside.subarray(4, start)));
const panels = openPayload(inside.slice(start));
const root = elementIn(document, ".view");
const draw = () => showView(root, header, panels, { open: null, moved: null, page: null });
document.documentElement.lang = header.texts.lang;
document.title = `${header.file} · Headscope`;
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
draw();
