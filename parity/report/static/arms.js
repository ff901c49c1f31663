// The arms of a comparison: which of them the charts highlight, and the colour and line style of each. Colour is the verdict, never the candidate.
import { STYLED, view } from "./view.js";

export const [baseline, ...candidates] = view.arms;
export const many = candidates.length > STYLED;

// As the picture's lines (verdict.css): a candidate has the line of its place in the job on every chart.
const DASHES = [undefined, [7, 4], [2, 3], [12, 3, 2, 3], [14, 5], [5, 2, 1, 2, 1, 2], [3, 6], [18, 3]];
const verdicts = JSON.parse(document.querySelector("[data-arms]").dataset.verdicts ?? "{}");

/** Colour (a property) and line of an arm: the baseline blue and solid, a candidate in the colour of its verdict, by its line told from others. */
export function styleOf(name) {
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
