"use strict";

// The report, and small helpers. Tokens are shown as text only.

const report = JSON.parse(document.getElementById("report").textContent);
const byId = (id) => document.getElementById(id);

/** A new element with text, and nothing but text, inside. */
function element(name, text, className) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  return made;
}

/** A new SVG element with attributes. */
function drawn(name, attributes, text) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

/** A table row of cells, each text or an element; the first one names the row. */
function row(cells, className) {
  const made = element("tr", undefined, className);
  cells.forEach((cell, index) => {
    const holder = element(index === 0 ? "th" : "td");
    if (index === 0) holder.scope = "row";
    holder.append(cell);
    made.append(holder);
  });
  return made;
}

function heading(names) {
  const line = element("tr");
  for (const name of names) {
    const cell = element("th", name);
    cell.scope = "col";
    line.append(cell);
  }
  const made = element("thead");
  made.append(line);
  return made;
}

function fill(table, names, rows) {
  const body = element("tbody");
  body.append(...rows);
  table.replaceChildren(heading(names), body);
}

const headName = (head) => `${head.layer}.${head.head}`;
const shown = (value, digits = 3) => (value === null || value === undefined ? "–" : value.toFixed(digits));

/** What can be drawn and sorted by: a name, what it is called, and its value for a head. */
const measures = [
  ...report.scores.map(([key, label]) => ({ key, label, digits: key === "mean_distance" ? 2 : 3, value: (head) => head[key] })),
  { key: "mean", label: "loss without it (mean)", digits: 4, value: (head) => head.mean && head.mean.increase },
  { key: "zero", label: "loss without it (zero)", digits: 4, value: (head) => head.zero && head.zero.increase },
].filter((measure) => report.heads.some((head) => measure.value(head) !== null && measure.value(head) !== undefined));

/** The colour of a layer: hues far apart, alike in light and dark. */
function colour(layer) {
  return `hsl(${(250 + (layer * 137.5)) % 360} 58% 52%)`;
}
