
// The text: every token a button, shaded by the weights of the one in focus.

const ARCS = 12;
const STRONGEST = 8;
const tokenButtons = [];

/** Builds the text; look(token) follows the pointer, keep(token) stays, leave() returns to what is kept. */
function buildTokens({ look, keep, leave }) {
  const list = document.getElementById("token-list");
  report.labels.forEach((label, token) => {
    const button = element("button", label, token >= report.prompt ? "token generated" : "token");
    button.type = "button";
    button.title = `place ${token}, id ${report.ids[token]}${token >= report.prompt ? ", generated" : ""}`;
    button.addEventListener("pointerenter", () => look(token));
    button.addEventListener("focus", () => { if (button.matches(":focus-visible")) keep(token); });
    button.addEventListener("click", () => keep(token));
    tokenButtons.push(button);
    list.append(button);
    // the text breaks where it broke
    if (label.includes("⏎")) list.append(element("br"));
  });
  list.addEventListener("pointerleave", leave);
  list.addEventListener("keydown", (event) => {
    const from = tokenButtons.indexOf(document.activeElement);
    const to = { ArrowLeft: from - 1, ArrowRight: from + 1, Home: 0, End: tokenCount - 1 }[event.key];
    if (from < 0 || to === undefined || !tokenButtons[to]) return;
    event.preventDefault();
    tokenButtons[to].focus();
  });
}

/** Shades the text for the token in focus, draws its arcs and lists what is strongest. */
function drawTokens(state) {
  const map = unpack(state.map);
  const found = partners(map, state.query, state.forward);
  const most = found.reduce((most, [, weight]) => Math.max(most, weight), 0);
  const weights = new Map(found);
  tokenButtons.forEach((button, token) => {
    const weight = weights.get(token) || 0;
    const shading = colour(shade(weight, state.scale, most));
    button.style.backgroundColor = weight > 0 ? css(shading) : "";
    button.style.color = weight > 0 ? inkOn(shading) : "";
    button.classList.toggle("focus", token === state.query);
    button.tabIndex = token === state.kept ? 0 : -1;
    button.setAttribute("aria-pressed", String(token === state.kept));
    const relation = state.forward ? "looked at with" : "looks with";
    button.setAttribute("aria-label", `${report.labels[token]}, place ${token}, ${relation} weight ${shown(weight, map, state.forward ? state.query : token)}`);
  });
  drawArcs(state, found);
  drawStrongest(state, found);
}

/** Scrolls the text, and only the text, to a token. */
function revealToken(token) {
  const text = document.getElementById("tokens");
  const [box, place] = [text.getBoundingClientRect(), tokenButtons[token].getBoundingClientRect()];
  if (place.top < box.top || place.bottom > box.bottom) {
    text.scrollTop += place.top + place.height / 2 - box.top - box.height / 2;
  }
}

/** Arcs from the token in focus to the strongest others, above the line they are on. */
function drawArcs(state, found) {
  const drawing = document.getElementById("arcs");
  const box = drawing.getBoundingClientRect();
  const place = (token) => {
    const rectangle = tokenButtons[token].getBoundingClientRect();
    return { x: rectangle.left + rectangle.width / 2 - box.left, y: rectangle.top - box.top + 1 };
  };
  const from = place(state.query);
  const model = drawing.firstElementChild;
  const arcs = strongest(found.filter(([token]) => token !== state.query), ARCS).map(([token, weight]) => {
    const to = place(token);
    const lift = Math.min(26, 8 + Math.abs(to.x - from.x) * 0.09);
    const sameLine = Math.abs(to.y - from.y) < 4;
    const [leave, arrive] = sameLine ? [from.y - lift, from.y - lift] : [from.y - lift, to.y - lift];
    const path = model.cloneNode();
    path.setAttribute("d", `M${from.x} ${from.y}C${from.x} ${leave} ${to.x} ${arrive} ${to.x} ${to.y}`);
    path.style.strokeWidth = String(0.6 + 3.4 * Math.sqrt(weight));
    path.style.opacity = String(0.25 + 0.7 * Math.sqrt(weight));
    return path;
  });
  // the first path is the model of the others
  drawing.replaceChildren(model, ...arcs);
}

/** The strongest partners as a list with bars. */
function drawStrongest(state, found) {
  const verb = state.forward ? "looks at" : "is looked at by";
  document.getElementById("strongest-title").textContent = `${report.labels[state.query]} ${verb}`;
  const best = strongest(found, STRONGEST);
  const rows = best.map(([token, weight]) => {
    const row = element("li");
    const bar = element("span", undefined, "meter");
    bar.style.setProperty("--part", weight);
    row.append(element("span", String(token), "place"), element("span", report.labels[token], "name"),
      element("span", weight.toFixed(3), "weight"), bar);
    return row;
  });
  if (rows.length === 0) rows.push(element("li", "nothing that is kept"));
  document.getElementById("strongest").replaceChildren(...rows);
}
