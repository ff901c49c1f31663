// The verdict's page: keys, the choice of a candidate, and the cursor. The picture is drawn without this; nothing here moves its box.
const signs = (value, decimals) => `${value < 0 ? "\u2212" : "+"}${Math.abs(value).toFixed(decimals)}`;
let figure = null;
let data = null;
let selected = 0;
let at = null;

/** Take the picture that is there now: the page of a job in training draws it again and again. What was chosen stays chosen. */
function take() {
  const before = data?.candidates[selected]?.name;
  figure = document.querySelector(".v .screen > .pic");
  const told = figure?.querySelector("script.points");
  data = told ? JSON.parse(told.textContent) : null;
  selected = Number(figure?.querySelector("[data-c].on")?.dataset.c ?? 0);
  const place = data?.candidates.findIndex((one) => one.name === before) ?? -1;
  const cursor = at;
  at = null;
  if (place >= 0 && place !== selected) choose(place);
  if (cursor !== null) read(cursor);
}

/** Show the candidate of this place; the others stay as thin lines. */
function choose(place) {
  if (!data?.candidates[place]) return;
  read(null);
  selected = place;
  for (const part of document.querySelectorAll(".v .screen > .pic [data-c], .v .cand tr[data-c]")) {
    const isOn = Number(part.dataset.c) === place;
    part.classList.toggle("on", isOn);
    if (part.matches("tr")) part.setAttribute("aria-selected", isOn);
  }
  for (const label of figure.querySelectorAll("[data-judged]")) label.removeAttribute("data-judged");
  figure.querySelector(`.jl[data-c="${place}"] .num tspan`)?.setAttribute("data-judged", "1");
  const line = figure.querySelector(`.cv[data-c="${place}"]`);
  line?.parentNode.insertBefore(line, line.parentNode.querySelector(":scope > .zero"));
  const { name, state, line: words } = data.candidates[place];
  const head = figure.querySelector("figcaption .name");
  if (head) {
    head.textContent = name;
    head.className = `c-${state} tinted name`;
  }
  const note = figure.querySelector(".note.says");
  if (note) note.textContent = words;
}

/** The cursor at a point of the path, its reading in the caption's fixed place; null takes it away. */
function read(index) {
  const { path, decimals } = data?.candidates[selected] ?? { path: [] };
  const cursor = figure?.querySelector(".cursor");
  const place = figure?.querySelector("figcaption .r");
  if (!cursor || !place) return;
  place.dataset.legend ??= place.textContent;
  if (index === null || !path.length) {
    at = null;
    cursor.classList.remove("on");
    place.textContent = place.dataset.legend;
    return;
  }
  at = Math.max(0, Math.min(path.length - 1, index));
  const [step, mean, low, high] = path[at];
  const { x, unit, scale } = data;
  const [gap, from, to] = [mean, low, high].map((value) => signs(value / 10 ** decimals, decimals));
  const where = unit === "step" ? `step ${step.toLocaleString("en")}` : `${(step * scale).toFixed(2)} ${unit}`;
  for (const end of ["x1", "x2"]) cursor.setAttribute(end, `${(100 * (step - x[0])) / (x[1] - x[0])}%`);
  cursor.classList.add("on");
  place.textContent = `${where}: ${gap} (${from} to ${to})`;
}

function follow(event, area) {
  const box = area.getBoundingClientRect();
  const step = data.x[0] + ((event.clientX - box.left) / box.width) * (data.x[1] - data.x[0]);
  const path = data.candidates[selected].path;
  let nearest = null;
  path.forEach((point, index) => {
    if (nearest === null || Math.abs(point[0] - step) < Math.abs(path[nearest][0] - step)) nearest = index;
  });
  read(nearest);
}

function onKey(event) {
  const typing = /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName);
  if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
  const { key } = event;
  const help = document.querySelector(".v .keys");
  const detail = [...document.querySelectorAll(".v .more details")].find((one) => one.dataset.key === key);
  if (detail) {
    detail.open = !detail.open;
    detail.querySelector("summary").focus();
  } else if (key === "j" || key === "k") {
    choose(Math.max(0, Math.min((data?.candidates.length ?? 1) - 1, selected + (key === "j" ? 1 : -1))));
  } else if (key === "?" && help) {
    help.hidden = !help.hidden;
  } else if (key === "Escape") {
    read(null);
    if (help) help.hidden = true;
  } else if (key === "Enter" && !event.target.closest("a, button, summary, [role=button]")) {
    document.querySelector(".v .acts .btn:has(kbd)")?.click();
  } else if ((key === "ArrowLeft" || key === "ArrowRight") && event.target.closest(".plot")) {
    const end = (data?.candidates[selected].path.length ?? 0) - 1;
    read(at === null ? end : at + (key === "ArrowLeft" ? -1 : 1));
  } else {
    return;
  }
  event.preventDefault();
}

/** The detail that the address names, or that holds what it names, is open. */
function openNamed() {
  const named = location.hash.length > 1 ? document.getElementById(decodeURIComponent(location.hash.slice(1))) : null;
  const detail = named?.closest(".v .more > details");
  if (!detail || detail.open) return;
  detail.open = true;
  named.scrollIntoView();
}

document.addEventListener("keydown", onKey);
document.addEventListener("click", (event) => {
  const row = event.target.closest(".v .cand tr[data-c]");
  if (row) choose(Number(row.dataset.c));
});
document.addEventListener("pointermove", (event) => {
  const area = event.target.closest?.(".v .screen > .pic .area");
  if (area && data) follow(event, area);
  else if (at !== null && event.pointerType === "mouse" && !figure?.contains(document.activeElement)) read(null);
});
document.addEventListener("parity:drawn", take);
addEventListener("hashchange", openNamed);
take();
openNamed();
