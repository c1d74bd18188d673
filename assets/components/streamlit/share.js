// The menu in the header that shares the scene of the page.
import { elementIn } from "../page/elements.js";
import { showShareMenu } from "../page/share_menu.js";

/** @param {import("./adapter.js").Mounted<import("../page/share_menu.js").SharePage>} mounted */
export default function ({ data, parentElement }) {
  showShareMenu(elementIn(parentElement, ".share"), data);
}
