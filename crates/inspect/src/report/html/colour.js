
// From weights to colours, by day and by night.

const darkScheme = matchMedia("(prefers-color-scheme: dark)");
let printing = false;

/** Whether dark colours are in use; paper is always light. */
function isNight() {
  return darkScheme.matches && !printing;
}

const RAMP_STEPS = 256;
const ramps = { day: ramp(report.day), night: ramp(report.night) };

/** The colour map between its anchors, as RAMP_STEPS triples. */
function ramp(anchors) {
  return Array.from({ length: RAMP_STEPS }, (_, step) => {
    const place = (step / (RAMP_STEPS - 1)) * (anchors.length - 1);
    const lower = Math.min(Math.floor(place), anchors.length - 2);
    return anchors[lower].map((from, channel) =>
      Math.round(from + (anchors[lower + 1][channel] - from) * (place - lower)));
  });
}

/** How far along the colour map a weight is, 0 to 1. */
function shade(weight, scale, rowMax) {
  if (scale === "linear") return weight;
  if (scale === "row") return rowMax > 0 ? weight / rowMax : 0;
  return Math.sqrt(weight);
}

function rampInUse() {
  return isNight() ? ramps.night : ramps.day;
}

function rampStep(place) {
  return Math.max(0, Math.min(RAMP_STEPS - 1, Math.round(place * (RAMP_STEPS - 1))));
}

/** The colour at a place along the map, as a triple. */
function colour(place) {
  return rampInUse()[rampStep(place)];
}

/** The colour of forbidden pairs. */
function maskedColour() {
  return isNight() ? [17, 20, 27] : report.masked[0];
}

function css([red, green, blue]) {
  return `rgb(${red} ${green} ${blue})`;
}

/** Black or white, whichever reads better on a colour. */
function inkOn([red, green, blue]) {
  return 0.299 * red + 0.587 * green + 0.114 * blue > 140 ? "#14121c" : "#ffffff";
}

/** The value of one of the style sheet's colours. */
function themed(name) {
  return printing && darkScheme.matches
    ? { "--ink": "#1f1c2b", "--paper": "#ffffff", "--accent": "#4a3aa7", "--generated": "#b3431f" }[name]
    : getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

/** Draws a map with one pixel a cell, or with the strongest cell of each square where it is larger than limit. */
function mapImage(map, scale, limit) {
  const side = Math.min(tokenCount, limit);
  const most = new Float32Array(side * side).fill(-1);
  const squeeze = side / tokenCount;
  for (let query = 0; query < tokenCount; query++) {
    const row = Math.floor(query * squeeze) * side;
    const allowed = report.causal ? Math.floor(query * squeeze) : side - 1;
    const rest = shade(map.rest[query], scale, map.rowMax[query]);
    for (let column = 0; column <= allowed; column++) most[row + column] = Math.max(most[row + column], rest);
    for (let at = map.start[query]; at < map.start[query + 1]; at++) {
      const cell = row + Math.floor(map.keys[at] * squeeze);
      most[cell] = Math.max(most[cell], shade(map.weights[at], scale, map.rowMax[query]));
    }
  }
  const image = new ImageData(side, side);
  const [steps, forbidden] = [rampInUse(), maskedColour()];
  for (let cell = 0; cell < most.length; cell++) {
    const shown = most[cell] < 0 ? forbidden : steps[rampStep(most[cell])];
    for (let channel = 0; channel < 3; channel++) image.data[cell * 4 + channel] = shown[channel];
    image.data[cell * 4 + 3] = 255;
  }
  const canvas = document.createElement("canvas");
  canvas.width = canvas.height = side;
  canvas.getContext("2d").putImageData(image, 0, 0);
  return canvas;
}

/** Draws the colour map with the weights at their places. */
function drawLegend(scale) {
  const canvas = document.getElementById("legend");
  const context = canvas.getContext("2d");
  for (let x = 0; x < canvas.width; x++) {
    context.fillStyle = css(colour(x / (canvas.width - 1)));
    context.fillRect(x, 0, 1, canvas.height);
  }
  const weights = { root: [0, 0.05, 0.25, 0.5, 1], linear: [0, 0.25, 0.5, 0.75, 1], row: [0, 1] }[scale];
  const ticks = weights.map((weight) => {
    const tick = element("span", scale === "row" && weight === 1 ? "row’s most" : String(weight));
    tick.style.left = `${shade(weight, scale, 1) * 100}%`;
    return tick;
  });
  document.getElementById("legend-ticks").replaceChildren(...ticks);
}
