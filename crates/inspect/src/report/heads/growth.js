// How the scores of a head grew in training: a small chart for each, and the same numbers as a table.

const CHART = { width: 170, height: 92, left: 16, right: 4, top: 6, bottom: 18 };

function drawGrowth(head) {
  byId("growth").hidden = head.growth.length === 0;
  const label = new Map(report.scores);
  byId("growth-charts").replaceChildren(...head.growth.map((line) => drawChart(label.get(line.score), line.values)));
  fill(byId("growth-table"), ["step", ...head.growth.map((line) => label.get(line.score))],
    report.steps.map((step, index) => row([String(step), ...head.growth.map((line) => shown(line.values[index]))])));
}

/** One score over the steps, from 0 to 1; the caption has where it began and ended, the title also its highest. */
function drawChart(label, values) {
  const points = report.steps.map((step, index) => [step, values[index]]);
  const known = points.filter(([, value]) => value !== null);
  const [first, last] = [known[0], known[known.length - 1]];
  const top = known.reduce((best, point) => (point[1] > best[1] ? point : best), first);
  const [low, high] = [report.steps[0], Math.max(report.steps[report.steps.length - 1], report.steps[0] + 1)];
  const x = (step) => CHART.left + ((step - low) / (high - low)) * (CHART.width - CHART.left - CHART.right);
  const y = (value) => CHART.height - CHART.bottom - value * (CHART.height - CHART.top - CHART.bottom);
  const told = `${label}: ${shown(first[1])} at step ${first[0]}, ${shown(last[1])} at step ${last[0]}, highest ${shown(top[1])} at step ${top[0]}`;
  const svg = drawn("svg", { class: "chart", viewBox: `0 0 ${CHART.width} ${CHART.height}`, role: "img", "aria-label": told });
  svg.append(drawn("title", {}, told));
  for (const value of [0, 0.5, 1]) {
    svg.append(drawn("line", { class: "grid", x1: CHART.left, x2: CHART.width - CHART.right, y1: y(value), y2: y(value) }));
    if (value !== 0.5) svg.append(drawn("text", { x: CHART.left - 5, y: y(value) + 4, "text-anchor": "end" }, String(value)));
  }
  svg.append(drawn("text", { x: CHART.left, y: CHART.height - 4 }, String(low)),
    drawn("text", { x: CHART.width - CHART.right, y: CHART.height - 4, "text-anchor": "end" }, `step ${high}`));
  if (report.checkpoint !== null && report.checkpoint >= low && report.checkpoint <= high) {
    svg.append(drawn("line", { class: "here", x1: x(report.checkpoint), x2: x(report.checkpoint), y1: y(0), y2: y(1) }));
  }
  let path = "";
  points.forEach(([step, value], index) => {
    if (value === null) return;
    const goesOn = index > 0 && points[index - 1][1] !== null;
    // a line of no length with round ends is a dot
    path += `${goesOn ? "L" : `M ${x(step)} ${y(value)} L`} ${x(step)} ${y(value)} `;
  });
  svg.append(drawn("path", { class: "curve", d: path }));
  const holder = element("figure");
  const caption = element("figcaption", `${label} `);
  caption.append(element("b", `${shown(first[1])} → ${shown(last[1])}`));
  holder.append(caption, svg);
  return holder;
}
