// The menu that shares the scene of the page: it copies its link, or the code of a frame that shows it in another site. The
// address has all that the page looks at; a page that may not write its address says it otherwise.
import { elementIn, make, makeButton, makeMenu, makeSvg } from "./elements.js";

/** @typedef {{ texts: Record<string, string>, note: string, language: string | null }} SharePage the language if chosen */

const FRAME_HEIGHT = 720; // pixels of a frame: sentences, drawing and the first matrices on a slide
const SHARE_ICON = "M12 15V3m0 0L8 7m4-4 4 4M5 11v9h14v-9"; // an arrow out of a box

/** @param {HTMLElement} root @param {SharePage} data @param {() => string} addressOf */
export function showShareMenu(root, data, addressOf = () => location.href) {
  const { texts, note } = data;
  const now = JSON.stringify(data);
  if (root.dataset.now === now) return; // it stays open while the page runs
  root.dataset.now = now;
  const byHand = Object.assign(make("div", "by-hand"), { hidden: true });
  /** @param {"link" | "frame"} name @param {(link: URL) => string} written */
  const item = (name, written) => {
    const button = makeButton(texts[name], "", async () => {
      const text = written(sharedLink(addressOf(), data.language));
      try {
        await navigator.clipboard.writeText(text);
        button.textContent = texts[`${name}_copied`];
      } catch {
        showByHand(byHand, texts.by_hand, text); // a page that may not write there shows what to copy
      }
    });
    button.dataset.name = name;
    button.ariaLive = "polite";
    return button;
  };
  const inside = make(
    "div",
    "inside",
    item("link", ({ href }) => href),
    item("frame", (link) => frameCode(root, link)),
    make("p", "", texts.frame_help),
    note && make("p", "note", note),
    byHand,
  );
  const icon = makeSvg("svg", { viewBox: "0 0 24 24", "aria-hidden": "true" }, makeSvg("path", { d: SHARE_ICON }));
  const box = makeMenu("", [icon, make("span", "", texts.title)], inside);
  elementIn(box, "summary").ariaLabel = texts.title;
  box.ontoggle = () => {
    if (box.open) return;
    byHand.hidden = true;
    for (const button of inside.querySelectorAll("button")) button.textContent = texts[button.dataset.name ?? ""];
  };
  root.replaceChildren(box);
}

// Shows a text that cannot be written to the clipboard, selected, so that the reader can copy it.
/** @param {HTMLElement} box @param {string} label @param {string} text */
function showByHand(box, label, text) {
  const field = Object.assign(make("textarea"), { value: text, readOnly: true, rows: 4, ariaLabel: label });
  box.replaceChildren(make("p", "", label), field);
  box.hidden = false;
  field.focus();
  field.select();
  field.scrollTop = 0;
}

// The address of this page; in a language that was chosen it says so.
/** @param {string} address @param {string | null} language */
function sharedLink(address, language) {
  const url = new URL(address);
  if (language && !url.searchParams.has("lang")) url.searchParams.set("lang", language);
  return url;
}

// The code of a frame with this page, for another site: in the theme of this page, with its ground, since dark letters
// cannot be read on a dark slide.
/** @param {Element} root @param {URL} url */
function frameCode(root, url) {
  const schemes = getComputedStyle(root).colorScheme; // of a page that has both the system decides
  const isDark = schemes === "dark" || (schemes.includes("dark") && matchMedia("(prefers-color-scheme: dark)").matches);
  url.searchParams.set("embed", "true");
  url.searchParams.set("embed_options", isDark ? "dark_theme" : "light_theme");
  const frame = make("iframe");
  const attributes = {
    src: url.href,
    width: "100%",
    height: String(FRAME_HEIGHT),
    title: document.title,
    allow: "clipboard-write",
    loading: "lazy",
    style: `border: 0; background: ${getComputedStyle(root).getPropertyValue("--st-background-color").trim()}`,
  };
  for (const [name, value] of Object.entries(attributes)) frame.setAttribute(name, value);
  return frame.outerHTML;
}
