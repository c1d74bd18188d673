// The banner of the case that opened this page: what to notice, and links to the cases before and after. It stays at the
// top while you explore the scene; other pages have addresses without the case.
import { elementIn, emphasized, make, makeButton, named } from "../page/elements.js";
import { fitHeight, reserveTop } from "./adapter.js";

/**
 * @typedef {object} CasePage
 * @property {string} place the number of the case
 * @property {string[]} title in pieces, every other of which is emphasized
 * @property {string[]} notice the same
 * @property {{ text: string, title: string, href: string }[]} beside links to the cases before and after
 * @property {string} field of the address that names the case
 * @property {string} leave
 */

/** @param {import("./adapter.js").Mounted<CasePage>} mounted */
export default function ({ data, parentElement }) {
  const root = elementIn(parentElement, ".case");
  const name = make("div", "name", make("span", "place", data.place), emphasized("strong", data.title));
  const beside = data.beside.map(({ text, title, href }) => Object.assign(make("a", "", text), { href, title }));
  const leave = makeButton("×", "leave", () => {
    const url = new URL(location.href);
    url.searchParams.delete(data.field);
    history.replaceState(history.state, "", url.pathname + url.search);
    root.replaceChildren();
  });
  const ways = make("nav", "ways", ...beside, named(leave, data.leave));
  root.replaceChildren(make("div", "head", name, ways), emphasized("p", data.notice));
  fitHeight(root);
  return reserveTop(root);
}
