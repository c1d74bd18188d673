// The head view inside Streamlit: the scene comes as JSON, the numbers and the scripts through the registry.
export default async function ({ data, parentElement, setTriggerValue }) {
  const root = parentElement.querySelector(".view");
  root.turn = (root.turn ?? 0) + 1;
  const { turn } = root;
  const [{ panels, bytes }, { showView }] = await Promise.all([find(data.name, data.digest), find("head_view_code", "")]);
  if (root.turn !== turn) return; // a newer scene has come meanwhile
  const page = globalThis.headscope.page ?? null;
  const open = data.opens ? (chosen) => setTriggerValue("opened", chosen) : null;
  showView(root, data, panels, { open, page, bytes });
}
