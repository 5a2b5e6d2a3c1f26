
// The table of thumbnails: one button for each head.

/** Pixels that a row of thumbnails should take on the page. */
const ROW_WIDTH = 440;
const thumbnailSide = Math.round(Math.max(34, Math.min(76, ROW_WIDTH / report.heads.length - 15)));
const thumbnails = [];

/** Builds the table; choose is called with a map's number. */
function buildHeads(choose) {
  const table = document.getElementById("heads");
  const columns = report.heads.length;
  table.style.setProperty("--thumbnail", `${thumbnailSide}px`);
  const top = element("tr");
  top.append(element("td"));
  for (const head of report.heads) {
    const cell = element("th", thumbnailSide < 50 ? `H${head}` : `head ${head}`);
    cell.scope = "col";
    top.append(cell);
  }
  table.append(element("thead"), element("tbody"));
  table.tHead.append(top);
  report.layers.forEach((layer, row) => {
    const line = element("tr");
    const name = element("th", thumbnailSide < 50 ? `L${layer}` : `layer ${layer}`);
    name.scope = "row";
    line.append(name);
    for (let column = 0; column < columns; column++) {
      const index = row * columns + column;
      const button = element("button");
      button.type = "button";
      button.setAttribute("aria-label", headLabel(index));
      button.append(element("canvas"));
      button.addEventListener("click", () => choose(index));
      thumbnails.push(button);
      const cell = element("td");
      cell.append(button);
      line.append(cell);
    }
    table.tBodies[0].append(line);
  });
  table.addEventListener("keydown", (event) => {
    const from = thumbnails.indexOf(document.activeElement);
    const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns }[event.key];
    let to = step === undefined ? { Home: 0, End: mapCount - 1 }[event.key] : from + step;
    if (from < 0 || to === undefined) return;
    event.preventDefault();
    to = Math.max(0, Math.min(mapCount - 1, to));
    thumbnails[to].focus();
    choose(to);
  });
}

/** What a screen reader says for a thumbnail. */
function headLabel(index) {
  if (!report.scores) return headName(index);
  const [previous, first, current] = report.scores[index].map((score) => score.toFixed(2));
  return `${headName(index)}: previous token ${previous}, first token ${first}, itself ${current}`;
}

/** Marks the chosen head; only it is in the tab order. */
function markHead(index) {
  thumbnails.forEach((button, place) => {
    button.setAttribute("aria-pressed", String(place === index));
    button.tabIndex = place === index ? 0 : -1;
  });
}

let drawing = 0;

/** Draws all thumbnails: a few at a time, so that the page answers meanwhile, or for paper, which does not wait, at once. */
function drawHeads(scale) {
  const mine = ++drawing;
  const limit = Math.round(thumbnailSide * (window.devicePixelRatio || 1));
  const from = (index) => {
    const until = printing ? Infinity : performance.now() + 12;
    while (index < mapCount && performance.now() < until) {
      const image = mapImage(unpack(index), scale, limit);
      const canvas = thumbnails[index].firstElementChild;
      canvas.width = canvas.height = image.width;
      canvas.getContext("2d").drawImage(image, 0, 0);
      index++;
    }
    if (index < mapCount && mine === drawing) setTimeout(from, 0, index);
  };
  from(0);
}

/** Shows the numbers of the chosen head. */
function drawFacts(index) {
  const facts = document.getElementById("facts");
  if (!report.scores) {
    facts.replaceChildren();
    return;
  }
  const [previous, first, current, entropy, distance] = report.scores[index];
  const rows = [
    ["previous token", previous.toFixed(2), previous, "mean weight on the token before"],
    ["first token", first.toFixed(2), first, "mean weight on the very first token"],
    ["itself", current.toFixed(2), current, "mean weight on the token itself"],
    ["spread", entropy.toFixed(2), entropy, "entropy over its maximum: 0 one token, 1 all alike"],
    ["distance, tokens", distance.toFixed(1), distance / (tokenCount / 2), "mean distance of what is looked at"],
  ];
  facts.replaceChildren(...rows.map(([name, text, part, meaning]) => {
    const fact = element("div");
    fact.title = meaning;
    const bar = element("span", undefined, "meter");
    bar.style.setProperty("--part", Math.max(0, Math.min(1, part)));
    fact.append(element("dt", name), element("dd", text), bar);
    return fact;
  }));
}
