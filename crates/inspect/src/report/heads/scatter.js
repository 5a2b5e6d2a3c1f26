// All heads at once: a scatter of any two numbers, and a table that sorts.

const PLOT = { width: 960, height: 420, left: 64, right: 24, top: 20, bottom: 48 };
let sorting = { measure: null, down: true };

/** Round steps that cover a range in about five. */
function ticks(low, high) {
  const rough = (high - low) / 5;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((candidate) => candidate >= rough);
  const found = [];
  for (let tick = Math.ceil(low / step) * step; tick <= high + step / 1e6; tick += step) found.push(tick);
  return { found, digits: Math.max(0, -Math.floor(Math.log10(step) + 1e-9)) };
}

function range(measure) {
  const values = report.heads.map(measure.value).filter(Number.isFinite);
  let [low, high] = [Math.min(0, ...values), Math.max(...values)];
  if (high - low < 1e-9) high = low + 1;
  const air = (high - low) * 0.06;
  return [low < 0 ? low - air : low, high + air];
}

function drawScatter(chosen) {
  const svg = byId("scatter");
  const [across, up] = [byId("across"), byId("up")].map((select) => measures[select.selectedIndex]);
  svg.setAttribute("viewBox", `0 0 ${PLOT.width} ${PLOT.height}`);
  svg.replaceChildren();
  const [xs, ys] = [range(across), range(up)];
  const x = (value) => PLOT.left + ((value - xs[0]) / (xs[1] - xs[0])) * (PLOT.width - PLOT.left - PLOT.right);
  const y = (value) => PLOT.height - PLOT.bottom - ((value - ys[0]) / (ys[1] - ys[0])) * (PLOT.height - PLOT.top - PLOT.bottom);
  for (const [vertical, marks] of [[true, ticks(...xs)], [false, ticks(...ys)]]) {
    for (const tick of marks.found) {
      const at = vertical ? x(tick) : y(tick);
      svg.append(drawn("line", vertical
        ? { class: "grid", x1: at, x2: at, y1: PLOT.top, y2: PLOT.height - PLOT.bottom }
        : { class: "grid", x1: PLOT.left, x2: PLOT.width - PLOT.right, y1: at, y2: at }));
      svg.append(drawn("text", vertical
        ? { x: at, y: PLOT.height - PLOT.bottom + 18, "text-anchor": "middle" }
        : { x: PLOT.left - 8, y: at + 4, "text-anchor": "end" }, tick.toFixed(marks.digits)));
    }
  }
  svg.append(drawn("text", { x: (PLOT.left + PLOT.width - PLOT.right) / 2, y: PLOT.height - 10, "text-anchor": "middle" }, across.label));
  svg.append(drawn("text", { x: 16, y: PLOT.top + 150, "text-anchor": "middle", transform: `rotate(-90 16 ${PLOT.top + 150})` }, up.label));
  report.heads.forEach((head, index) => {
    const [a, b] = [across.value(head), up.value(head)];
    if (!Number.isFinite(a) || !Number.isFinite(b)) return;
    const named = head.name !== "unclear";
    const point = drawn("circle", {
      class: `point${named ? " named" : ""}${index === chosen ? " chosen" : ""}`, cx: x(a), cy: y(b), r: 8,
      fill: colour(head.layer), tabindex: 0, role: "button", "data-head": index,
      "aria-label": `head ${headName(head)}, ${head.name}: ${across.label} ${shown(a)}, ${up.label} ${shown(b)}`,
    });
    point.append(drawn("title", {}, point.getAttribute("aria-label")));
    point.addEventListener("click", () => choose(index, true));
    point.addEventListener("keydown", (event) => {
      if (event.key === "Enter" || event.key === " ") {
        event.preventDefault();
        choose(index, true);
      }
    });
    svg.append(point);
    if (named || index === chosen || report.heads.length <= 16) {
      const label = named ? `${headName(head)} ${head.name}` : headName(head);
      const end = x(a) > PLOT.width - 200;
      svg.append(drawn("text", { class: "label", x: x(a) + (end ? -13 : 13), y: y(b) + 4, "text-anchor": end ? "end" : "start" }, label));
    }
  });
}

function drawAll(chosen) {
  const columns = [...measures];
  const order = report.heads.map((_, index) => index);
  if (sorting.measure) {
    const value = (index) => sorting.measure.value(report.heads[index]) ?? -Infinity;
    order.sort((a, b) => (sorting.down ? value(b) - value(a) : value(a) - value(b)) || a - b);
  }
  const rows = order.map((index) => {
    const head = report.heads[index];
    const open = element("button", headName(head), "plain");
    open.type = "button";
    open.addEventListener("click", () => choose(index));
    return row([open, ...columns.map((measure) => shown(measure.value(head), measure.digits)), head.name], index === chosen ? "chosen" : "");
  });
  fill(byId("all"), ["head", ...columns.map((measure) => measure.label), "name"], rows);
  byId("all").querySelectorAll("thead th").forEach((cell, index) => {
    const measure = columns[index - 1];
    if (!measure) return;
    const button = element("button", cell.textContent);
    button.type = "button";
    button.addEventListener("click", () => {
      sorting = { measure, down: sorting.measure === measure ? !sorting.down : true };
      drawAll(state.head);
      byId("all").querySelectorAll("thead th")[index].firstChild.focus();
    });
    cell.replaceChildren(button);
    if (sorting.measure === measure) cell.setAttribute("aria-sort", sorting.down ? "descending" : "ascending");
  });
}
