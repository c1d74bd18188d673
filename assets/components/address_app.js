// Mounted once for all pages, without anything to see: the focus of the page in its address (address.js).
import { connect } from "./address.js";

export default function ({ data, setStateValue }) {
  connect(data, (state) => setStateValue("focus", state));
}
