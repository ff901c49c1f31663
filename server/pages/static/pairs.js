// The matrix of candidates: a cell, or the two fields above it, choose the pair that is shown in full.
import "./refresh.js";

const SAID = { worse: "is worse than", better: "is better than", alike: "cannot be told from" };
const TURNED = { worse: "better", better: "worse", alike: "alike" };
const MINUS = "\u2212";
const negated = (text) => (text.startsWith(MINUS) ? `+${text.slice(1)}` : `${MINUS}${text.slice(1)}`);

/** What the cell of two candidates says, whichever of them comes first. */
function told(table, first, second) {
  const names = [...table.querySelectorAll("thead th")].map((head) => head.textContent);
  const rows = new Map([...table.querySelectorAll("tbody tr")].map((row) => [row.querySelector("th").textContent, row.querySelectorAll("td")]));
  for (const [row, column, isTurned] of [[first, second, false], [second, first, true]]) {
    const cell = rows.get(row)?.[names.indexOf(column)];
    if (!cell?.title) continue;
    const [gap, low, high] = cell.title.match(/[+\u2212][^ )]+/g);
    const state = isTurned ? TURNED[cell.className] : cell.className;
    return [state, isTurned ? `${negated(gap)} (${negated(high)} to ${negated(low)})` : cell.title];
  }
  return null;
}

function show() {
  const form = document.querySelector("form[aria-label='Two candidates']");
  const { first, second } = form.elements;
  const words = told(document.querySelector(".pairs"), first.value, second.value);
  const place = document.getElementById("pair");
  if (words) {
    const [state, numbers] = words;
    const head = Object.assign(document.createElement("strong"), { textContent: `${first.value} ${SAID[state]} ${second.value}:` });
    place.replaceChildren(head, ` ${numbers} nats.`);
  } else {
    place.textContent = "Choose two candidates that were compared.";
  }
  const address = new URL(location.href);
  address.searchParams.set("first", first.value);
  address.searchParams.set("second", second.value);
  history.replaceState(null, "", address);
}

document.addEventListener("change", (event) => { if (event.target.closest("form[aria-label='Two candidates']")) show(); });
document.addEventListener("submit", (event) => {
  if (!event.target.matches("form[aria-label='Two candidates']")) return;
  event.preventDefault();
  show();
});
document.addEventListener("click", (event) => {
  const cell = event.target.closest(".pairs td[title]");
  if (!cell) return;
  const form = document.querySelector("form[aria-label='Two candidates']");
  const table = cell.closest("table");
  form.elements.first.value = cell.parentNode.querySelector("th").textContent;
  form.elements.second.value = table.querySelectorAll("thead th")[cell.cellIndex - 1].textContent;
  show();
});
