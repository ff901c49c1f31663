// The verdict's page: keys, the choice of a candidate, the cursor and the zoom. The picture is drawn without this; nothing here moves its box.
const LEAST_SHARE = 0.02; // of the run: a zoom shows no less, because the picture's points are rounded for about this
const ZOOM_OF_A_KEY = 0.5;
const ZOOM_OF_A_PIXEL = 1.002;
const STEP_OF_A_KEY = 0.25;
const SIDEWAYS_PIXELS = 8; // a drag that is shorter is a click
const [NARROW_PLOT, LETTER] = [190, 6.6]; // px: a plot on a telephone, and a letter of its axis
const TOGETHER = 0.04; // of the width: nearer marks become one, as in picture.py
const EDGE = 0.08; // of the width, where a label in the middle would stand out
const BINS = 150;
const SETTLED_MS = 150;
const NEAR_PIXELS = 12; // so near to a line the pointer reads it
const LONG = 80; // characters of a lead, as in screen.py
const whole = (value) => Math.round(value).toLocaleString("en");
const signs = (value, decimals) => `${value < 0 ? "\u2212" : "+"}${Math.abs(value).toFixed(decimals)}`;
let figure = null;
let data = null;
let selected = 0;
let at = null;
let range = null; // the steps that are shown, where it is not the whole run
let rest = null; // what zooming changes, as the server drew it
let turn = 0;
let settling;
const pointers = new Map(); // each pressed pointer: where it began and where it is, as shares of the plot's width
let held = null; // of two fingers: their ids from left to right, and the steps that lay under them

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
  keepRest();
  keepRoom();
  if (place >= 0 && place !== selected && data.candidates[place].answer) mark(place);
  if (range) zoomTo(...range);
  if (cursor !== null) read(cursor);
}

/** Show the candidate of this place: answer, next step, table, picture, strip and address; the others stay as thin lines. */
function choose(place) {
  const candidate = data?.candidates[place];
  if (!candidate) return;
  const { name, full = name, answer } = candidate;
  const live = document.querySelector(`a[data-select="${CSS.escape(full)}"]`);
  if (!answer && live) return live.click(); // a forecast's words are the server's
  if (answer) tell(answer, name);
  mark(place);
  document.dispatchEvent(new CustomEvent("parity:chosen", { detail: full }));
}

/** Show the answer of all candidates again; the picture shows the one that decides. */
function chooseAll() {
  if (!data?.answer) return;
  tell(data.answer, null);
  const decides = data.candidates.findIndex(({ name, full = name }) => full === document.querySelector(".v .cand")?.dataset.decides);
  if (decides >= 0) mark(decides);
  document.dispatchEvent(new CustomEvent("parity:chosen", { detail: null }));
}

/** Say an answer: of the candidate with this name, or, without one, of all. */
function tell([state, chip, lead, measure, interval, next], name) {
  const screen = document.querySelector(".v .screen");
  const place = screen.querySelector(".ans");
  place.className = `ans c-${state}`;
  const head = place.querySelector(".chip");
  head.replaceChildren(Object.assign(document.createElement("span"), { textContent: name === null ? chip : `${chip} · ${name}` }));
  if (name !== null) head.append(Object.assign(document.createElement("a"), { className: "of-all", href: "?", textContent: `${data.answer[1]} in all` }));
  sayAnswer(place, lead, measure, interval);
  sayStep(screen.querySelector(".next .steps"), next, name !== null);
}

/** A sentence with its commands, which stand between backticks, as code. */
const withCode = (sentence) => sentence.split(/`([^`]+)`/).map((part, i) => (i % 2 ? Object.assign(document.createElement("code"), { textContent: part }) : part));

/** Lead, measure with its number of nats bold, and interval. */
function sayAnswer(place, lead, measure, interval) {
  const title = place.querySelector("h1");
  title.textContent = lead;
  title.classList.toggle("long", lead.length > LONG);
  const [before, nats, ...after] = measure.split(/(\d+\.\d+ nats)(.*)/s);
  const bold = nats ? [Object.assign(document.createElement("strong"), { textContent: nats }), ...after] : [];
  place.querySelector(".meas").replaceChildren(before, ...bold);
  const told = place.querySelector(".int");
  if (told) told.textContent = interval;
}

/** Say a next step; that of the open candidates is not said while one is selected. */
function sayStep(steps, next, isOfOne) {
  steps?.querySelector("p:not(.also)")?.replaceChildren(...withCode(next));
  steps?.querySelector(".also")?.classList.toggle("unsaid", isOfOne);
}

/** Room for the longest answer, so that another choice moves nothing below it. */
function keepRoom() {
  const place = document.querySelector(".v .ans");
  if (!data?.answer || !place) return;
  place.style.minHeight = "";
  const like = place.cloneNode(true);
  place.after(like);
  let most = place.offsetHeight;
  for (const { answer } of data.candidates) {
    if (answer) sayAnswer(like, answer[2], answer[3], answer[4]);
    most = Math.max(most, like.offsetHeight);
  }
  like.remove();
  place.style.minHeight = `${most}px`;
  const steps = document.querySelector(".v .screen .next .steps");
  if (!steps) return;
  steps.style.minHeight = "";
  const trial = steps.cloneNode(true);
  steps.after(trial);
  sayStep(trial, data.answer[5], false);
  const heights = [trial.offsetHeight, ...data.candidates.map(({ answer }) => {
    sayStep(trial, answer?.[5] ?? "", true);
    return trial.offsetHeight;
  })];
  trial.remove();
  steps.style.minHeight = `${Math.max(...heights)}px`;
}

/** Mark the candidate of this place in table and picture. */
function mark(place) {
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
  if (line) complete(line, place);
  const { name, state } = data.candidates[place];
  const head = figure.querySelector("figcaption .name");
  if (head) {
    head.textContent = name;
    head.className = `c-${state} tinted name`;
  }
  tellFacts(data.candidates[place]);
  if (range) askForDots();
}

/** Band and dots of one of many candidates, which the server draws for the selected one alone. */
function complete(line, place) {
  const { path, decimals } = data.candidates[place];
  if (line.querySelector(".band") || path.length < 2) return;
  const [low, high] = data.y;
  const point = (step, gap) => `${inPlot(step, data.x)} ${(1000 * (high - gap / 10 ** decimals)) / (high - low)}`;
  const edge = [...path.map(([step, , , most]) => point(step, most)), ...path.toReversed().map(([step, , least]) => point(step, least))];
  line.prepend(svgElement("path", { class: "band", d: `M${edge.join("L")}Z` }), svgElement("path", { class: "dots", d: "" }));
  fetchDots(place, data.x).then((dots) => {
    if (!dots) return;
    const drawn = line.querySelector(".dots");
    rest.dots.set(drawn, dots.points.map(dotAt).join(""));
    if (!range) drawn.setAttribute("d", rest.dots.get(drawn));
  });
}

/** Where a step stands in the whole picture, of 1,000; where a dot does. */
const inPlot = (step, [first, last]) => (1000 * (step - first)) / (last - first);
const dotAt = ([step, gap]) => `M${inPlot(step, data.x)} ${(1000 * (data.y[1] - gap)) / (data.y[1] - data.y[0])}h0`;

/** The strip's facts of a candidate. The strip keeps its height, so that what is below it stays. */
function tellFacts({ name, facts }) {
  const strip = document.querySelector(".v .screen > .strip");
  const own = [...(strip?.querySelectorAll(".own") ?? [])];
  if (!facts.length || own.length !== facts.length) return;
  strip.style.minHeight = `${strip.getBoundingClientRect().height}px`;
  own.forEach((part, i) => {
    const [value, why] = data.facts[facts[i]];
    part.querySelector(".of").textContent = ` · ${name}`;
    part.querySelector("dd").replaceChildren(value);
    if (why) part.querySelector("dd").append(Object.assign(document.createElement("small"), { textContent: why }));
  });
}

/** The cursor at a point of the path, its reading in the caption's fixed place; null takes it away. */
function read(index, of = selected) {
  const { path, decimals, name } = data?.candidates[of] ?? { path: [] };
  const cursor = figure?.querySelector(".cursor");
  const place = figure?.querySelector("figcaption .r");
  if (!cursor || !place) return;
  if (index === null || !path.length) {
    at = null;
    cursor.classList.remove("on");
    place.textContent = legend();
    return;
  }
  at = Math.max(0, Math.min(path.length - 1, index));
  const [step, mean, low, high] = path[at];
  const [gap, from, to] = [mean, low, high].map((value) => signs(value / 10 ** decimals, decimals));
  for (const end of ["x1", "x2"]) cursor.setAttribute(end, percent(shareOf(step)));
  cursor.classList.toggle("on", isSeen(shareOf(step)));
  const who = data.candidates.length > 1 ? `${name} · ` : "";
  place.textContent = `${who}${spoken(step)}: ${gap} (${from} to ${to})`;
}

/** A step in words, in the unit of the axis. */
const spoken = (step) => (data.unit === "step" ? `step ${whole(step)}` : `${(step * data.scale).toFixed(2)} ${data.unit}`);

/** What stands in the caption while nobody reads a point: what line, band and dots are, or which steps are shown. */
function legend() {
  if (!range) return rest.legend;
  const dots = rest.blocks === null ? rest.legend.match(/dots: [\d,]+ steps?/)?.[0] : `dots: ${whole(rest.blocks)} step${Math.round(rest.blocks) === 1 ? "" : "s"}`;
  return [`${spoken(range[0])} to ${spoken(range[1]).replace("step ", "")}`, dots].filter(Boolean).join(" · ");
}

// Zoom. Line and band are functions of the step alone: a zoom moves the window of the stretched SVG, and no point of them. Axis of values,
// judged panel and words stay.

const percent = (share) => `${100 * share}%`;
const isSeen = (share) => share >= -1e-9 && share <= 1 + 1e-9;
const shown = () => range ?? data.x;
/** Where a step stands, as a share of the width that is shown. */
const shareOf = (step) => (step - shown()[0]) / (shown()[1] - shown()[0]);
const stepAt = (share) => shown()[0] + share * (shown()[1] - shown()[0]);
const part = (selector) => figure.querySelector(selector);

/** Keep what zooming changes. */
function keepRest() {
  turn += 1;
  rest = null;
  if (!data) return;
  rest = { axis: part(".xax").innerHTML, legend: part("figcaption .r")?.textContent ?? "", blocks: null, dots: new Map(), marks: new Map(), places: new Map() };
  for (const moving of figure.querySelectorAll(".area .moves")) rest.places.set(moving, parseFloat(moving.getAttribute(moving.hasAttribute("x1") ? "x1" : "x")) / 100);
  for (const marks of figure.querySelectorAll(".marks")) rest.marks.set(marks, [...marks.children]);
}

/** Show these steps, as far as there is a run, and not fewer than its least share; null and null show the whole run. */
function zoomTo(from, to) {
  if (!data) return;
  const [first, last] = data.x;
  const least = LEAST_SHARE * (last - first);
  let low = from ?? first;
  let high = to ?? last;
  if (high - low < least) [low, high] = [(low + high - least) / 2, (low + high + least) / 2];
  const over = Math.max(0, first - low) - Math.max(0, high - last); // what would lie outside moves inside
  [low, high] = [Math.max(first, low + over), Math.min(last, high + over)];
  const isWhole = high - low > 0.999 * (last - first);
  range = isWhole ? null : [low, high].map((end) => (data.unit === "step" && least > 1 ? Math.round(end) : end));
  draw();
}

/** Show `factor` times as many steps around what lies at a share of the width. */
function zoomAt(share, factor) {
  const middle = stepAt(share);
  const [low, high] = shown();
  zoomTo(middle - factor * (middle - low), middle + factor * (high - middle));
}

/** Move by a share of the width. */
function pan(share) {
  if (!range) return;
  const [low, high] = range;
  const by = Math.max(data.x[0] - low, Math.min(data.x[1] - high, share * (high - low)));
  zoomTo(low + by, high + by);
}

/** Draw what depends on the steps that are shown. */
function draw() {
  const [first, last] = data.x;
  const [low, high] = shown().map((step) => (step - first) / (last - first));
  part(".area svg.s").setAttribute("viewBox", `${1000 * low} 0 ${1000 * (high - low)} 1000`);
  for (const [moving, place] of rest.places) {
    let now = (place - low) / (high - low);
    if (moving.classList.contains("stays") && now < 0 && high > place) now = 0; // the label of a window that is seen
    moving.classList.toggle("out", !isSeen(now));
    for (const name of ["x", "x1", "x2"]) if (moving.hasAttribute(name)) moving.setAttribute(name, percent(now));
    if (moving.matches("text:not(.stays)")) {
      for (const [look, from, to] of [["start", 0, EDGE], ["middle", EDGE, 1 - EDGE], ["end", 1 - EDGE, Infinity]]) moving.classList.toggle(look, now >= from && now < to);
    }
  }
  for (const [marks, drawn] of rest.marks) marks.replaceChildren(...(range ? marksOf(marks, drawn) : drawn));
  part(".xax").innerHTML = range ? axis() : rest.axis;
  offerWhole();
  if (range) {
    askForDots();
  } else {
    turn += 1; // dots that are on their way come too late
    clearTimeout(settling);
    putDots(new Map());
  }
  read(at);
}

/** Marks of what is shown, each drawn as the server drew one of its kind; near ones become one with a count. */
function marksOf(marks, drawn) {
  const made = [];
  for (const [kind, all] of Object.entries(data.candidates[Number(marks.dataset.c)].marks)) {
    const like = drawn.find((one) => one.querySelector(`.tri.${kind}`));
    const groups = [];
    for (const [first, last, count] of all.filter(([from, to]) => shareOf(to) >= 0 && shareOf(from) <= 1)) {
      const group = groups.at(-1);
      if (group && shareOf(first) - shareOf(group.last) < TOGETHER) Object.assign(group, { last, count: group.count + count });
      else groups.push({ first, last, count });
    }
    for (const { first, last, count } of groups) {
      const mark = like.cloneNode(true);
      mark.setAttribute("x", percent(Math.max(0, shareOf(first))));
      const [word, words] = kind.startsWith("spike") ? ["spike", "spikes"] : ["NaN", "NaN"];
      mark.querySelector("title").textContent = count === 1 ? `${word} at ${spoken(first)}` : `${whole(count)} ${words} from ${spoken(first)} to ${spoken(last).replace("step ", "")}`;
      mark.querySelector(".count")?.remove();
      if (count > 1) {
        const edge = kind.endsWith("own") ? 9 : -1;
        const text = svgElement("text", { class: "count", x: 7, y: kind.startsWith("bad") ? edge + Math.sign(edge) * 10 : edge });
        text.textContent = whole(count);
        mark.append(text);
      }
      made.push(mark);
    }
  }
  return made;
}

function svgElement(name, attributes) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  return element;
}

/** The x axis of what is shown: both ends, and round steps between them where these leave room. */
function axis() {
  const [low, high] = shown().map((step) => step * data.scale);
  const rough = (high - low) / 6;
  const decade = 10 ** Math.floor(Math.log10(rough));
  const inSteps = data.unit === "step";
  const stride = Math.max(inSteps ? 1 : 0, [1, 2, 5, 10].map((factor) => factor * decade).find((size) => size >= rough * (1 - 1e-9)));
  const places = inSteps ? 0 : Math.max(2, -Math.floor(Math.log10(stride) + 1e-9));
  const words = (value) => value.toLocaleString("en", { minimumFractionDigits: places, maximumFractionDigits: places });
  const [first, last] = [`${inSteps ? "step " : ""}${words(low)}`, `${words(high)}${inSteps ? "" : ` ${data.unit}`}`];
  const texts = [`<text class="start" x="0" y="15">${first}</text>`, `<text class="end" x="100%" y="15">${last}</text>`];
  const between = [];
  for (let value = Math.ceil(low / stride) * stride; value <= high; value += stride) between.push([(value - low) / (high - low), value]);
  const room = inSteps ? 0.13 : 0.22;
  const seen = between.filter(([share]) => share > 0.13 && share < 1 - room);
  const hasNarrowRoom = ([share, value]) => { // on a narrow screen, as in axes.py
    const [at, half] = [share * NARROW_PLOT, (LETTER * words(value).length) / 2];
    return at - half > LETTER * (first.length + 1) && at + half < NARROW_PLOT - LETTER * (last.length + 1);
  };
  const middle = Math.min(...seen.filter(hasNarrowRoom).map(([share]) => Math.abs(share - 0.5)));
  for (const [share, value] of seen) texts.push(`<text${Math.abs(share - 0.5) === middle ? "" : ' class="minor"'} x="${percent(share)}" y="15">${words(value)}</text>`);
  return texts.join("");
}

/** A button that shows the whole run again, below the judged panel, where nothing moves for it. */
function offerWhole() {
  const place = part(".jx");
  let button = place.querySelector("button");
  figure.classList.toggle("zoomed", Boolean(range));
  if (!button && range) {
    button = document.createElement("button");
    button.type = "button";
    button.className = "whole";
    button.innerHTML = "whole run <kbd>0</kbd>";
    button.addEventListener("click", () => {
      zoomTo(null, null);
      part(".plot").focus({ preventScroll: true });
    });
    place.append(button);
  }
  if (button) button.hidden = !range;
}

/** Dots of the steps that are shown, once the zoom rests: the server of a job's page has finer ones; a report keeps those it has. */
function askForDots() {
  const now = ++turn;
  clearTimeout(settling);
  settling = setTimeout(async () => {
    const dots = await fetchDots(selected, range);
    if (!dots || now !== turn) return;
    rest.blocks = dots.blocks;
    putDots(new Map([[selected, dots.points]]));
    if (at === null) read(null);
  }, SETTLED_MS);
}

/** The mean gaps of blocks of steps that lie in the picture, from the server of a job's page; null without an answer, so that others stay. */
async function fetchDots(place, [low, high]) {
  const job = document.querySelector("[data-job]")?.dataset.job;
  if (!job || data.unit !== "step") return null;
  const { name, full = name } = data.candidates[place];
  const query = new URLSearchParams({ candidates: full, bins: BINS, from: Math.ceil(low), to: Math.floor(high) });
  try {
    const answer = await fetch(`/api/v1/jobs/${job}/gaps?${query}`);
    if (!answer.ok) return null;
    const { first_step: first, last_step: last, candidates } = await answer.json();
    const points = candidates[0].mean.map((gap, i) => [(first[i] + last[i]) / 2, gap]);
    return {
      blocks: first.length ? (last.at(-1) - first[0] + 1) / first.length : null,
      points: points.filter(([, gap]) => typeof gap === "number" && gap >= data.y[0] && gap <= data.y[1]),
    };
  } catch {
    return null; // the page itself says that the server is away
  }
}

/** Draw these dots of a candidate; all others as the server drew them. */
function putDots(dots) {
  for (const trace of figure.querySelectorAll(".cv[data-c]")) {
    const drawn = trace.querySelector(".dots");
    if (!drawn) continue;
    if (!rest.dots.has(drawn)) rest.dots.set(drawn, drawn.getAttribute("d"));
    const own = dots.get(Number(trace.dataset.c));
    drawn.setAttribute("d", own ? own.map(dotAt).join("") : rest.dots.get(drawn));
  }
  if (!dots.size) rest.blocks = null;
}

/** Where a pointer is, as a share of the plot's width. */
function placeOf(event) {
  const box = part(".area").getBoundingClientRect();
  return Math.max(0, Math.min(1, (event.clientX - box.left) / box.width));
}

/** Mark the steps between two places, or none. */
function select(began, now) {
  part(".area .sel")?.remove();
  if (began === now) return;
  const [x, width] = [percent(Math.min(began, now)), percent(Math.abs(now - began))];
  part(".area svg.o").append(svgElement("rect", { class: "sel", x, width, y: 0, height: "100%" }));
}

const isDrag = ({ began, now }) => Math.abs(now - began) * part(".area").clientWidth >= SIDEWAYS_PIXELS;

function press(event) {
  if (!event.target.closest?.(".v .screen > .pic .area") || !data || event.button !== 0 || pointers.size === 2) return;
  const place = placeOf(event);
  pointers.set(event.pointerId, { began: place, now: place, pans: event.shiftKey });
  if (pointers.size < 2) return;
  const ids = [...pointers.keys()].sort((a, b) => pointers.get(a).now - pointers.get(b).now);
  held = { ids, steps: ids.map((id) => stepAt(pointers.get(id).now)) };
  select(0, 0);
}

function move(event) {
  const pointer = pointers.get(event.pointerId);
  const before = pointer.now;
  pointer.now = placeOf(event);
  if (held) {
    const [left, right] = held.ids.map((id) => pointers.get(id).now);
    const [low, high] = held.steps;
    const span = Math.min(data.x[1] - data.x[0], (high - low) / Math.max(LEAST_SHARE, right - left));
    zoomTo(low - left * span, low - left * span + span);
  } else if (pointer.pans) {
    pan(before - pointer.now);
  } else {
    select(pointer.began, isDrag(pointer) ? pointer.now : pointer.began);
  }
}

/** A pointer is let go: of a drag, what lay under it is shown; what the browser took away to scroll changes nothing. */
function lift(event) {
  const pointer = pointers.get(event.pointerId);
  if (!pointer) return;
  select(0, 0);
  if (event.type === "pointerup" && !held && !pointer.pans && isDrag(pointer)) {
    zoomTo(...[pointer.began, pointer.now].sort((a, b) => a - b).map(stepAt));
  }
  pointers.delete(event.pointerId);
  if (held) pointers.clear(); // the finger that remains selects nothing
  held = null;
}

function follow(event) {
  const step = stepAt(placeOf(event));
  const of = lineAt(step, event.clientY);
  for (const line of figure.querySelectorAll(".cv[data-c]")) line.classList.toggle("near", Number(line.dataset.c) === of && of !== selected);
  const { path } = data.candidates[of];
  let nearest = null;
  path.forEach((point, index) => {
    if (nearest === null || Math.abs(point[0] - step) < Math.abs(path[nearest][0] - step)) nearest = index;
  });
  read(nearest, of);
}

/** The candidate whose line lies under the pointer, else the selected one. */
function lineAt(step, y) {
  const box = part(".area").getBoundingClientRect();
  const [low, high] = data.y;
  let [best, away] = [selected, NEAR_PIXELS];
  data.candidates.forEach(({ path, decimals }, place) => {
    const next = path.findIndex(([at]) => at >= step);
    if (next < 1) return;
    const [[from, before], [to, after]] = [path[next - 1], path[next]];
    const gap = (before + ((after - before) * (step - from)) / (to - from)) / 10 ** decimals;
    const far = Math.abs(box.top + (box.height * (high - gap)) / (high - low) - y);
    if (far < away) [best, away] = [place, far];
  });
  return best;
}

function onKey(event) {
  const typing = /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName);
  if (event.defaultPrevented || typing || event.ctrlKey || event.metaKey || event.altKey) return;
  const { key } = event;
  const help = document.querySelector(".v .keys");
  const detail = [...document.querySelectorAll(".v .more details")].find((one) => one.dataset.key === key);
  if (detail) {
    detail.open = !detail.open;
    detail.querySelector("summary").focus();
  } else if (key === "j" || key === "k") {
    choose(Math.max(0, Math.min((data?.candidates.length ?? 1) - 1, selected + (key === "j" ? 1 : -1))));
  } else if (key === "/" && document.querySelector("[data-job]")) {
    location.assign("/jobs#find");
  } else if (key === "?" && help) {
    help.hidden = !help.hidden;
  } else if (key === "Escape") {
    read(null);
    if (help) help.hidden = true;
    if (document.querySelector(".v .of-all")) chooseAll();
  } else if (key === "Enter" && !event.target.closest("a, button, summary, [role=button]")) {
    document.querySelector(".v .acts .btn:has(kbd)")?.click();
  } else if (data && (key === "+" || key === "=" || key === "-")) {
    zoomAt(0.5, key === "-" ? 1 / ZOOM_OF_A_KEY : ZOOM_OF_A_KEY);
  } else if (data && key === "0") {
    zoomTo(null, null);
  } else if (data && event.shiftKey && (key === "ArrowLeft" || key === "ArrowRight") && event.target.closest(".pic .plot")) {
    pan(key === "ArrowLeft" ? -STEP_OF_A_KEY : STEP_OF_A_KEY);
  } else if ((key === "ArrowLeft" || key === "ArrowRight") && event.target.closest(".pic .plot")) {
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
  const all = event.target.closest(".v .of-all");
  if (!all || event.ctrlKey || event.metaKey || event.shiftKey || !data?.answer) return;
  event.preventDefault();
  chooseAll();
});
document.addEventListener("pointermove", (event) => {
  if (pointers.has(event.pointerId)) move(event);
  const isOver = event.target.closest?.(".v .screen > .pic .area");
  if (isOver && data) follow(event);
  else if (at !== null && event.pointerType === "mouse" && !figure?.contains(document.activeElement)) read(null);
});
document.addEventListener("pointerdown", press);
for (const end of ["pointerup", "pointercancel"]) document.addEventListener(end, lift);
document.addEventListener("dblclick", (event) => {
  if (data && event.target.closest?.(".v .screen > .pic .area")) zoomTo(null, null);
});
// A wheel with Ctrl, or a pinch on a touchpad, which browsers report as that, zooms; without it, the page scrolls.
document.addEventListener("wheel", (event) => {
  if (!data || !(event.ctrlKey || event.metaKey) || !event.target.closest?.(".v .screen > .pic .area")) return;
  event.preventDefault();
  zoomAt(placeOf(event), ZOOM_OF_A_PIXEL ** event.deltaY);
}, { passive: false });
document.addEventListener("parity:drawn", take);
addEventListener("hashchange", openNamed);
addEventListener("resize", keepRoom);
take();
openNamed();
