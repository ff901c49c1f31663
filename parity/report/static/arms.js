// The arms of a comparison: which of them the charts highlight, and the colour and line style of each. Colour is the verdict, never the candidate.
import { STYLED, view } from "./view.js";

export const [baseline, ...candidates] = view.arms;
export const many = candidates.length > STYLED;

const slots = new Map(); // of many candidates, those that are highlighted -> the style that each got

/** The style of a candidate: its place among up to eight, or the first that is free. */
function slotOf(name) {
  if (!many) return candidates.indexOf(name);
  for (const other of slots.keys()) if (!view.lit.has(other)) slots.delete(other);
  if (!slots.has(name)) {
    const taken = new Set(slots.values());
    slots.set(name, [...Array(STYLED).keys()].find((slot) => !taken.has(slot)) ?? 0);
  }
  return slots.get(name);
}

const DASHES = [["solid", undefined], ["dashed", [7, 4]], ["dotted", [2, 4]], ["double", [12, 3, 2, 3]]];
const verdicts = JSON.parse(document.querySelector("[data-arms]").dataset.verdicts ?? "{}");

/** Colour (a property) and line of an arm: the baseline blue and solid, a candidate in the colour of its verdict, by its line told from others. */
export function styleOf(name, { besideBaseline = false } = {}) {
  if (name === baseline) return { colour: "--chart-line-0", line: "solid", dash: undefined };
  const [line, dash] = DASHES[(slotOf(name) + (besideBaseline ? 1 : 0)) % DASHES.length];
  return { colour: `--chart-${verdicts[name] ?? "open"}`, line, dash };
}

/** Paint the key of an arm; one that is not highlighted is grey. */
export function paintSwatch(swatch, name, options) {
  const { colour, line } = view.lit.has(name) ? styleOf(name, options) : { colour: "--chart-margin", line: "solid" };
  swatch.style.borderTopColor = `var(${colour})`;
  swatch.style.borderTopStyle = line;
  return swatch;
}

export function swatch(name, options) {
  return paintSwatch(Object.assign(document.createElement("span"), { className: "swatch" }), name, options);
}
