
// The same numbers without a picture: each token with what it looks at most.

const TABLE_KEYS = 5;

/** Fills the table for a map. */
function drawTable(index) {
  const map = unpack(index);
  const table = document.getElementById("table");
  const heading = element("tr");
  for (const name of ["place", "token", "id", "looks at most (weight)"]) {
    const cell = element("th", name);
    cell.scope = "col";
    heading.append(cell);
  }
  heading.lastElementChild.colSpan = TABLE_KEYS;
  const rows = report.labels.map((label, query) => {
    const row = element("tr", undefined, query >= report.prompt ? "generated" : undefined);
    const name = element("th", label);
    name.scope = "row";
    row.append(element("td", String(query)), name, element("td", String(report.ids[query])));
    for (const [key, weight] of strongest(partners(map, query, true), TABLE_KEYS)) {
      const cell = element("td", `${key} ${report.labels[key]} `);
      cell.append(element("b", weight.toFixed(3)));
      row.append(cell);
    }
    return row;
  });
  const caption = element("caption", `What each token looks at most in ${headName(index)}`);
  const [head, body] = [element("thead"), element("tbody")];
  head.append(heading);
  body.append(...rows);
  table.replaceChildren(caption, head, body);
}
