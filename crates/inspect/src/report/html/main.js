
// What is chosen, and what follows from a choice.

/** From so many tokens on, map and text stand one below the other. */
const LONG_TEXT = 100;

const state = {
  map: 0, scale: "root", forward: true,
  // the row in focus, the one it returns to, and the marked column if any
  query: tokenCount - 1, kept: tokenCount - 1, key: null,
};

function showToken() {
  drawMap(state);
  describeCell(state);
  drawTokens(state);
}

function showMap() {
  markHead(state.map);
  const name = headName(state.map);
  document.getElementById("detail-title").textContent = name[0].toUpperCase() + name.slice(1);
  drawFacts(state.map);
  layoutMap(state);
  describeCell(state);
  drawTokens(state);
  if (document.getElementById("table-panel").open) drawTable(state.map);
}

function showAll() {
  drawLegend(state.scale);
  drawHeads(state.scale);
  showMap();
}

function chooseMap(index) {
  state.map = index;
  const heads = report.heads.length;
  const place = `#L${report.layers[Math.floor(index / heads)]}H${report.heads[index % heads]}`;
  // an address that can be kept; not a step in the history
  if (location.hash !== place) location.replace(place);
  showMap();
}

/** The map that the address names, else the first. */
function mapFromAddress() {
  const named = /^#L(\d+)H(\d+)$/.exec(location.hash);
  if (!named) return 0;
  const [layer, head] = [report.layers.indexOf(Number(named[1])), report.heads.indexOf(Number(named[2]))];
  return layer < 0 || head < 0 ? 0 : layer * report.heads.length + head;
}

/** Puts a row in focus, with a column where the map says so; keep makes it the one to return to. */
function focusToken(token, key, keep) {
  const moved = token !== state.query;
  state.query = token;
  state.key = key;
  if (keep) state.kept = token;
  showToken();
  if (moved && key !== null) revealToken(token);
}

function setDirection(forward) {
  state.forward = forward;
  document.getElementById("forward").setAttribute("aria-pressed", String(forward));
  document.getElementById("backward").setAttribute("aria-pressed", String(!forward));
  drawTokens(state);
}

buildHeads(chooseMap);
buildTokens({
  look: (token) => focusToken(token, null, false),
  keep: (token) => focusToken(token, null, true),
  leave: () => focusToken(state.kept, null, false),
});

mapCanvas.addEventListener("pointermove", (event) => {
  const cell = cellAt(event);
  if (cell && (cell.query !== state.query || cell.key !== state.key)) focusToken(cell.query, cell.key, false);
});
mapCanvas.addEventListener("pointerleave", () => focusToken(state.kept, null, false));
mapCanvas.addEventListener("click", (event) => {
  const cell = cellAt(event);
  if (cell) focusToken(cell.query, cell.key, true);
});
mapCanvas.addEventListener("keydown", (event) => {
  const cell = steppedCell(event, state);
  if (!cell) return;
  event.preventDefault();
  focusToken(cell.query, cell.key, true);
});

document.getElementById("forward").addEventListener("click", () => setDirection(true));
document.getElementById("backward").addEventListener("click", () => setDirection(false));
document.getElementById("scale").addEventListener("change", (event) => {
  state.scale = event.target.value;
  showAll();
});
document.getElementById("table-panel").addEventListener("toggle", (event) => {
  if (event.target.open) drawTable(state.map);
});

addEventListener("hashchange", () => { if (mapFromAddress() !== state.map) chooseMap(mapFromAddress()); });
darkScheme.addEventListener("change", showAll);
addEventListener("beforeprint", () => { printing = true; showAll(); });
addEventListener("afterprint", () => { printing = false; showAll(); });

const panels = document.querySelector(".panels");
panels.classList.toggle("long", tokenCount > LONG_TEXT);
let panelWidth = panels.clientWidth;
new ResizeObserver(() => {
  // the map changes its own height; only a new width is news
  if (panels.clientWidth === panelWidth) return;
  panelWidth = panels.clientWidth;
  requestAnimationFrame(() => { layoutMap(state); drawTokens(state); });
}).observe(panels);

state.map = mapFromAddress();
showAll();
revealToken(state.query);
