// The page on its own, to be filled with what is in view when somebody saves it.
export default function ({ data }) {
  globalThis.headscope.page = new TextDecoder("utf-16le").decode(data);
}
