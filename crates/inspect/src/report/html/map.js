
// The large map of the chosen head.

const LABEL_FONT = "ui-monospace, SFMono-Regular, Menlo, Consolas, monospace";
/** Cells smaller than this have no room for a token's name; then places are numbered. */
const NAMED_CELL = 10;
const MAX_CELL = 30;
/** A map wider than this no longer fits a screen. */
const MAX_SIDE = 900;

const mapCanvas = document.getElementById("map");
const mapView = { image: null, cell: 1, left: 0, top: 0, side: 0 };

/** Cuts a label to fit a gutter. */
function cutLabel(label, length) {
  const characters = [...label];
  return characters.length <= length ? label : `${characters.slice(0, length - 1).join("")}…`;
}

/** Lays the map out for the room there is and draws it. */
function layoutMap(state) {
  const map = unpack(state.map);
  const room = Math.max(160, document.getElementById("map-frame").clientWidth);
  const context = mapCanvas.getContext("2d");
  context.font = `11px ${LABEL_FONT}`;
  const labels = report.labels.map((label) => cutLabel(label, 14));
  const widest = Math.ceil(Math.max(...labels.map((label) => context.measureText(label).width))) + 8;
  const digits = String(tokenCount - 1).length * 7 + 10;
  const named = (room - widest) / tokenCount >= NAMED_CELL;
  const gutter = named ? widest : digits;
  let cell = Math.min(MAX_CELL, Math.min(MAX_SIDE, room - gutter) / tokenCount);
  if (cell >= 1) cell = Math.floor(cell);
  const ratio = window.devicePixelRatio || 1;
  const side = cell * tokenCount;
  // where there are more cells than pixels, the strongest of each pixel, or sharp heads fade away
  Object.assign(mapView, {
    image: mapImage(map, state.scale, Math.floor(side * ratio)), cell, named, labels,
    left: gutter, top: named ? widest : 20, side,
  });
  const [width, height] = [mapView.left + mapView.side, mapView.top + mapView.side];
  mapCanvas.width = Math.round((width + 1) * ratio);
  mapCanvas.height = Math.round((height + 1) * ratio);
  mapCanvas.style.width = `${width + 1}px`;
  mapCanvas.style.height = `${height + 1}px`;
  drawMap(state);
}

/** Draws the map as laid out, with the marked cell. */
function drawMap(state) {
  const { image, cell, left, top, side } = mapView;
  const context = mapCanvas.getContext("2d");
  const ratio = window.devicePixelRatio || 1;
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, mapCanvas.width, mapCanvas.height);
  context.imageSmoothingEnabled = false;
  context.drawImage(image, left, top, side, side);
  if (cell >= 6) {
    context.fillStyle = themed("--paper");
    for (let line = 1; line < tokenCount; line++) {
      context.fillRect(left + line * cell - 1, top, 1, side);
      context.fillRect(left, top + line * cell - 1, side, 1);
    }
  }
  drawMapNames(context, state);
  const { query, key } = state;
  context.strokeStyle = themed("--accent");
  context.lineWidth = 1.5;
  context.strokeRect(left - 0.5, top + query * cell - 0.5, side, cell);
  if (key !== null) {
    context.strokeRect(left + key * cell - 0.5, top - 0.5, cell, side);
    context.lineWidth = 3;
    context.strokeRect(left + key * cell - 0.5, top + query * cell - 0.5, cell, cell);
  }
}

/** Names or numbers along both sides. */
function drawMapNames(context, state) {
  const { cell, left, top, named, labels } = mapView;
  const steps = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000];
  const step = named ? 1 : steps.find((candidate) => candidate * cell >= 34) || tokenCount;
  context.font = `${named && cell < 13 ? 9.5 : 11}px ${LABEL_FONT}`;
  context.textBaseline = "middle";
  const [ink, generated, accent] = ["--ink", "--generated", "--accent"].map(themed);
  for (let token = 0; token < tokenCount; token += step) {
    const text = named ? labels[token] : String(token);
    const middle = (token + 0.5) * cell;
    const plain = token >= report.prompt ? generated : ink;
    context.fillStyle = token === state.query ? accent : plain;
    context.textAlign = "right";
    context.fillText(text, left - 5, top + middle);
    context.fillStyle = token === state.key ? accent : plain;
    context.save();
    context.translate(left + middle, top - 5);
    if (named) context.rotate(-Math.PI / 2);
    context.textAlign = named ? "left" : "center";
    context.fillText(text, 0, named ? 0 : -4);
    context.restore();
  }
}

/** The cell under a mouse event, or nothing. */
function cellAt(event) {
  const box = mapCanvas.getBoundingClientRect();
  const key = Math.floor((event.clientX - box.left - mapView.left) / mapView.cell);
  const query = Math.floor((event.clientY - box.top - mapView.top) / mapView.cell);
  const inside = (place) => place >= 0 && place < tokenCount;
  return inside(key) && inside(query) ? { query, key } : null;
}

/** Says in words what the marked cell holds, or without one what the row looks at most. */
function describeCell(state) {
  const map = unpack(state.map);
  const { query } = state;
  let { key } = state;
  let verb = "looks at";
  if (key === null) {
    const most = strongest(partners(map, query, true), 1)[0];
    key = most ? most[0] : query;
    verb = "looks most at";
  }
  const weight = masked(query, key) ? "not allowed, it comes later" : shown(weightAt(map, query, key), map, query);
  document.getElementById("readout").replaceChildren(
    element("span", `${query} `), element("b", report.labels[query]), element("span", ` ${verb} ${key} `),
    element("b", report.labels[key]), element("span", ": "), element("strong", weight));
}

/** Where the arrow keys lead from the marked cell, or nothing. */
function steppedCell(event, state) {
  const step = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
  if (!step) return null;
  const stay = (place) => Math.max(0, Math.min(tokenCount - 1, place));
  return { query: stay(state.query + step[0]), key: stay((state.key ?? state.query) + step[1]) };
}
