// What is chosen, and what follows from a choice.

const state = { head: 0 };

function choose(index, focus = false) {
  state.head = (index + report.heads.length) % report.heads.length;
  const name = headName(report.heads[state.head]);
  if (location.hash !== `#${name}`) history.replaceState(null, "", `#${name}`);
  drawScatter(state.head);
  drawAll(state.head);
  drawHead(state.head);
  if (focus) byId("scatter").querySelector(`[data-head="${state.head}"]`)?.focus();
}

/** The head that the address names, if there is one. */
function named() {
  const found = report.heads.findIndex((head) => `#${headName(head)}` === location.hash);
  return found < 0 ? null : found;
}

/** The most interesting head: the named one that costs most, else the one that costs most. */
function first() {
  const worth = (head) => (head.name === "unclear" ? 0 : 1e6) + (head.mean ? head.mean.increase : 0);
  return report.heads.reduce((best, head, index) => (worth(head) > worth(report.heads[best]) ? index : best), 0);
}

for (const [id, wanted] of [["across", "previous_token"], ["up", "mean"]]) {
  const select = byId(id);
  measures.forEach((measure) => select.append(element("option", measure.label)));
  const found = measures.findIndex((measure) => measure.key === wanted);
  select.selectedIndex = found < 0 ? Math.min(1, measures.length - 1) : found;
  select.addEventListener("change", () => drawScatter(state.head));
}
for (const layer of new Set(report.heads.map((head) => head.layer))) {
  const item = element("li");
  const mark = drawn("svg", { viewBox: "0 0 10 10", "aria-hidden": "true" });
  mark.append(drawn("circle", { cx: 5, cy: 5, r: 5, fill: colour(layer) }));
  item.append(mark, `layer ${layer}`);
  byId("key").append(item);
}
byId("previous").addEventListener("click", () => choose(state.head - 1));
byId("next").addEventListener("click", () => choose(state.head + 1));
byId("scatter").addEventListener("keydown", (event) => {
  const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
  if (step) {
    event.preventDefault();
    choose(state.head + step, true);
  }
});
addEventListener("hashchange", () => {
  const found = named();
  if (found !== null && found !== state.head) choose(found);
});
choose(named() ?? first());
