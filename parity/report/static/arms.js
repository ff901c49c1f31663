// The lines of the charts: which of them are highlighted, and the colour and line style of each. On a job's page a line is an arm, and its
// colour is the verdict, never the candidate; where jobs stand side by side a line is an arm of a job, and its colour is the job.
import { view } from "./view.js";

export const many = view.isCrowded;
/** The arm that a job's candidates are compared with; null where there are several jobs. */
export const baseline = view.base;
export const candidates = view.arms.filter((name) => (view.lines ? view.lines[name].against !== null : name !== baseline));

// As the picture's lines (verdict.css): a candidate has the line of its place in the job on every chart.
const DASHES = [undefined, [7, 4], [2, 3], [12, 3, 2, 3], [14, 5], [5, 2, 1, 2, 1, 2], [3, 6], [18, 3]];
const verdicts = JSON.parse(document.querySelector("[data-arms]").dataset.verdicts ?? "{}");

/** What a line is called. */
export const labelOf = (name) => view.lines?.[name].label ?? name;

/** The line that a candidate's is compared with; null for a baseline. */
export function baselineOf(name) {
  if (view.lines) return view.lines[name].against;
  return name === baseline ? null : baseline;
}

/** Colour (a property) and line of an arm: the baseline blue and solid, a candidate in the colour of its verdict, by its line told from others. */
export function styleOf(name) {
  if (view.lines) return { colour: `--chart-job-${view.lines[name].colour}`, dash: DASHES[view.lines[name].dash] };
  if (name === baseline) return { colour: "--chart-line-0", dash: undefined };
  return { colour: `--chart-${verdicts[name] ?? "open"}`, dash: DASHES[candidates.indexOf(name) % DASHES.length] };
}

/** Paint the key of an arm; one that is not highlighted is grey. */
export function paintSwatch(swatch, name) {
  const { colour, dash } = view.lit.has(name) ? styleOf(name) : { colour: "--chart-margin", dash: undefined };
  const drawing = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  const line = document.createElementNS("http://www.w3.org/2000/svg", "path");
  line.setAttribute("d", "M0 4H30");
  if (dash) line.setAttribute("stroke-dasharray", dash.join(" "));
  line.style.stroke = `var(${colour})`;
  drawing.append(line);
  swatch.replaceChildren(drawing);
  return swatch;
}

export function swatch(name) {
  return paintSwatch(Object.assign(document.createElement("span"), { className: "swatch" }), name);
}
