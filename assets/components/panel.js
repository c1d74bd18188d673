// The place of one sentence in the view: its title, the stage of its drawing, and what is said about it.
function panelOf(view, panel, words) {
  const box = make("div", "panel");
  const stage = make("div", `stage ${view.state.drawing}`);
  const said = make("p", "said");
  said.setAttribute("aria-live", "polite");
  Object.assign(stage, { tabIndex: 0 });
  stage.dataset.panel = panel.nth;
  stage.setAttribute("role", "listbox");
  stage.setAttribute("aria-multiselectable", "true");
  stage.setAttribute("aria-label", fill(view.texts.panel, { text: panel.title }));
  if (view.data.length > 1 || panel.two) box.append(Object.assign(make("p", "title", words), { title: panel.title, dir: "auto" }));
  box.append(stage, said);
  return { panel, box, stage, said };
}
