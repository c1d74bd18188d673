// Mounted once for all pages, without anything to see: Back undoes a change of a control.
import { undoByBack } from "./streamlit.js";

export default function () {
  undoByBack();
}
