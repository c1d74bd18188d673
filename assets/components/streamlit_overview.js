// The overview inside Streamlit: which head is chosen comes as JSON, all else through the registry.
export default async function ({ data, parentElement, setTriggerValue }) {
  const root = parentElement.querySelector(".overview");
  root.turn = (root.turn ?? 0) + 1;
  const { turn } = root;
  const [seen, { showOverview }] = await Promise.all([find("overview", data.digest), find("overview_code", "")]);
  if (root.turn === turn) showOverview(root, { ...seen, chosen: data.chosen, link: data.link }, (head) => setTriggerValue("picked", head));
}
