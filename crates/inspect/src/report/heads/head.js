// One head: its scores, what the model loses without it, its dictionary, and passages of the text.

function spread(key, head) {
  const found = head.spread[key];
  const most = key === "mean_distance" ? report.window : 1;
  const at = (value) => 1 + 148 * Math.min(1, Math.max(0, value / most));
  const svg = drawn("svg", { class: "spread", viewBox: "0 0 150 12", role: "img",
    "aria-label": found ? `10 % of rows up to ${shown(found.p10)}, half up to ${shown(found.p50)}, 90 % up to ${shown(found.p90)}` : "no row" });
  svg.append(drawn("rect", { class: "rail", x: 0, y: 5, width: 150, height: 2 }));
  if (found) svg.append(drawn("rect", { class: "middle", x: at(found.p10), y: 3, width: Math.max(1, at(found.p90) - at(found.p10)), height: 6 }));
  const untrained = head.untrained[key];
  if (Number.isFinite(untrained)) svg.append(drawn("rect", { class: "fresh", x: at(untrained) - 1, y: 0, width: 2, height: 12 }));
  if (Number.isFinite(head[key])) svg.append(drawn("rect", { class: "mean", x: at(head[key]) - 1.5, y: 1, width: 3, height: 10 }));
  return svg;
}

function drawHead(index) {
  const head = report.heads[index];
  byId("head-title").textContent = `Head ${headName(head)}: ${head.name}`;
  byId("head-name").textContent = head.name === "unclear"
    ? "No score is high enough, far enough above an untrained head, and proven by what the model loses: so no name."
    : "Most of its attention goes there, an untrained head's does not, and the model is worse without it.";
  fill(byId("scores"), ["score", "mean", "rows", "untrained"], report.scores.map(([key, label]) => {
    const digits = key === "mean_distance" ? 2 : 3;
    return row([label, shown(head[key], digits), spread(key, head), shown(head.untrained[key], digits)]);
  }));
  drawGrowth(head);
  const cost = (label, effect) => row([label, effect ? shown(effect.increase, 4) : "–",
    effect && effect.interval ? `${shown(effect.interval[0], 4)} to ${shown(effect.interval[1], 4)}` : "–"]);
  fill(byId("costs"), ["replaced by", "rise", "95 %"], [cost("its mean over the text", head.mean), cost("zero", head.zero)]);
  fill(byId("used"), ["looks", "at", "share", "rows", "raises"], head.used.map((line) =>
    row([element("code", line.query), element("code", line.key), `${(100 * line.attention).toFixed(1)} %`,
      `${line.finds} of ${line.rows}`, element("code", line.raises)])));
  fill(byId("written"), ["token", "finds", "promotes"], head.written.map((entry) =>
    row([element("code", entry.token), list(entry.finds), list(entry.promotes)])));
  byId("passages").replaceChildren(...head.passages.map((passage) => drawPassage(passage)));
}

function list(tokens) {
  const holder = element("span", undefined, "words");
  tokens.forEach(([token, score], index) => {
    if (index) holder.append("  ");
    holder.append(element("code", token), ` ${score.toFixed(2)}`);
  });
  return holder;
}

function drawPassage(passage) {
  const holder = element("div", undefined, "passage");
  const line = element("div", undefined, "line");
  const svg = drawn("svg", { "aria-hidden": "true" });
  const said = element("output");
  const labels = report.windows[passage.window].slice(passage.first, passage.end);
  const words = labels.map((label, index) => {
    const word = element("button", label, "word");
    word.type = "button";
    const look = () => show(index);
    word.addEventListener("mouseenter", look);
    word.addEventListener("focus", look);
    return word;
  });
  line.append(svg, ...words);
  holder.append(line, said);
  function show(at) {
    const arcs = passage.arcs.filter(([query]) => query === passage.first + at);
    words.forEach((word, index) => {
      const arc = arcs.find(([, key]) => key === passage.first + index);
      word.style.background = arc ? `color-mix(in srgb, var(--accent) ${Math.round(70 * arc[2])}%, transparent)` : "";
      word.classList.toggle("looks", index === at);
      word.title = arc ? arc[2].toFixed(2) : "";
    });
    const centre = (index) => words[index].offsetLeft + words[index].offsetWidth / 2;
    svg.replaceChildren(...arcs.filter(([, key]) => key >= passage.first).map(([, key, weight]) => {
      const [from, to] = [centre(at), centre(key - passage.first)];
      const rise = Math.min(44, 8 + Math.abs(from - to) / 6);
      return drawn("path", { d: `M ${from} 48 C ${from} ${48 - rise}, ${to} ${48 - rise}, ${to} 48`, "stroke-width": 1 + 3 * weight, "stroke-opacity": 0.25 + 0.75 * weight });
    }));
    const parts = [...arcs].sort((a, b) => b[2] - a[2]).slice(0, 6);
    said.replaceChildren(element("b", labels[at]), arcs.length ? " looks at " : " looks at nothing above 0.05");
    parts.forEach(([, key, weight], index) => {
      const before = passage.first - key;
      said.append(index ? ", " : "", element("b", key < passage.first ? `a token ${before} before this passage` : labels[key - passage.first]), ` ${weight.toFixed(2)}`);
    });
  }
  // places are known once the passage is on the page
  requestAnimationFrame(() => {
    const at = passage.row - passage.first;
    show(at);
    holder.scrollLeft = Math.max(0, words[at].offsetLeft - holder.clientWidth / 2);
  });
  return holder;
}
