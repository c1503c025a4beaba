"use strict";
// Sorts and filters the rows that stand in the page; without it the table is whole and in order of rank.
const table = document.getElementById("board");
const body = table.tBodies[0];
const rows = Array.from(body.rows);
const heads = Array.from(table.tHead.rows[0].cells);
const field = (name) => document.getElementById("f-" + name);
const chosen = (name) => (field(name) ? field(name).value : "");
const textual = new Set(["name", "badge", "kind", "licence", "seen"]);

function compare(key, sign) {
  return (a, b) => {
    const x = a.dataset[key], y = b.dataset[key];
    if (x === y) return rows.indexOf(a) - rows.indexOf(b);
    if (x === "") return 1; // what no one has said comes last, either way
    if (y === "") return -1;
    return sign * (textual.has(key) ? x.localeCompare(y, "en") : Number(x) - Number(y)) || rows.indexOf(a) - rows.indexOf(b);
  };
}

for (const head of heads) {
  head.firstElementChild.addEventListener("click", () => {
    const turned = { ascending: "descending", descending: "ascending" };
    const order = turned[head.getAttribute("aria-sort")] || head.dataset.first;
    heads.forEach((other) => other.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", order);
    body.append(...rows.slice().sort(compare(head.dataset.key, order === "ascending" ? 1 : -1)));
  });
}

function filter() {
  const text = chosen("text").trim().toLowerCase();
  let shown = 0;
  for (const row of rows) {
    const fits =
      row.dataset.name.includes(text) &&
      [["kind", "kind"], ["licence", "licence"], ["size", "sizeclass"], ["badge", "badge"]].every(
        ([name, key]) => chosen(name) === "" || row.dataset[key] === chosen(name)
      ) &&
      (field("baselines").checked || !("baseline" in row.dataset));
    row.hidden = !fits;
    shown += fits;
  }
  document.getElementById("count").textContent = shown === rows.length ? "" : shown + " of " + rows.length + " models";
}

const filters = document.getElementById("filters");
filters.addEventListener("input", filter);
filters.addEventListener("submit", (event) => event.preventDefault());
filters.hidden = false;
filter(); // a browser that goes back fills the fields in again
