// Parts of the charts: the chart library, colours, axes, number formats, tables and downloads.

import { view } from "./view.js";

export const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
/** A number with its sign; what rounds to zero is +0.0000 (as `signed` in parity/wording.py). */
export function signed(value, places = 4) {
  const text = Math.abs(value).toFixed(places);
  return (value < 0 && Number(text) !== 0 ? "−" : "+") + text;
}
export const whole = (value) => value.toLocaleString("en");
export const finite = (value) => (typeof value === "number" ? value : null);

/** The server's answer as JSON; an error that names its status otherwise. */
export async function json(address) {
  const answer = await fetch(address);
  if (!answer.ok) throw new Error(`the server returned ${answer.status}`);
  return answer.json();
}

let library;
/** The chart library, loaded once; the page reports if it is missing. */
export function uPlot() {
  library ??= import("/static/vendor/uplot/uPlot.esm.js").then((module) => module.default);
  return library;
}
export const NO_LIBRARY = "The chart library is not installed: run `make node_modules/.installed` on the server. The numbers are below.";

/** Where the values that the y axis fits begin, of ascending steps: by default at the second half of what is there. */
export function fitsFrom(steps) {
  if (view.zoomed || view.y === "whole" || !steps.length) return 0;
  const middle = (steps[0] + steps.at(-1)) / 2;
  return steps.findIndex((step) => step >= middle);
}

/** The ends of finite values without a share of them at each end; infinite and in the wrong order without any. */
export function spread(values, share) {
  const sorted = Float64Array.from(values.filter((value) => finite(value) !== null)).sort();
  if (!sorted.length) return [Infinity, -Infinity];
  const cut = Math.floor(share * (sorted.length - 1));
  return [sorted[cut], sorted[sorted.length - 1 - cut]];
}

/** A range with some room, also where its ends are equal or differ by rounding alone. */
export function padded(low, high, share) {
  const isConstant = high - low <= 1e-9 * Math.max(Math.abs(low), Math.abs(high)); // up to rounding, as after smoothing
  const room = isConstant ? Math.max(1e-6, 0.05 * Math.abs(low)) : share * (high - low);
  return [low - room, high + room];
}

/** A colour property with some alpha. */
export function faint(name, share) {
  const [r, g, b] = css(name).match(/\w\w/g).map((part) => parseInt(part, 16));
  return `rgb(${r} ${g} ${b} / ${share}%)`;
}

/** A number of tokens or seconds on an axis: 1.5M tokens, 2 h. */
export function tokens(value) {
  for (const [unit, scale] of [["T", 1e12], ["B", 1e9], ["M", 1e6], ["k", 1e3]]) {
    if (value >= scale) return `${Number((value / scale).toPrecision(4))}${unit}`;
  }
  return whole(Math.round(value));
}
export function elapsed(seconds) {
  if (seconds < 120) return `${Number(seconds.toFixed(1))} s`;
  if (seconds < 7200) return `${Number((seconds / 60).toFixed(1))} min`;
  return `${Number((seconds / 3600).toFixed(2))} h`;
}

/** Round positions between two values, about `count` of them; none if the values are equal. */
export function ticks(low, high, wanted) {
  if (!(high > low)) return [];
  const rough = (high - low) / Math.max(1, wanted);
  const decade = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * decade).find((size) => size >= rough);
  const positions = [];
  for (let at = Math.ceil(low / step) * step; at <= high; at += step) positions.push(at);
  return positions;
}

/** Positions 1, 2 and 5 times the powers of ten between two values above 0; only the powers if there are many. */
function logTicks(low, high) {
  const decades = Math.log10(high / low);
  const positions = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power++) {
    for (const factor of decades > 4 ? [1] : [1, 2, 5]) positions.push(factor * 10 ** power);
  }
  return positions.filter((at) => at >= low && at <= high);
}

/** The range of a logarithmic axis of values, with some room; none if no value above zero is drawn. */
export const logRange = (_plot, low, high) => (low === null ? [null, null] : [low / 1.03, high * 1.03]);

const FEW_TICKS = 4;
/** What a logarithmic axis of values adds to its options: round positions, also where it spans less than a decade. */
export const logAxis = {
  splits: (_plot, _axis, low, high) => {
    const positions = logTicks(low, high);
    return positions.length > 2 ? positions : ticks(low, high, FEW_TICKS);
  },
  filter: (_, splits) => splits,
  values: (_, at) => at.map((value) => String(Number(value.toPrecision(4)))),
};

const PIXELS_A_TICK = 90;
/** The axis of steps, in steps, in tokens, or (`seconds`) in time, linear or logarithmic. */
export function stepAxis(axis, view, tokensAStep, { seconds = false } = {}) {
  const inTokens = view.x === "tokens" && tokensAStep > 0 && !seconds;
  const [unit, words] = seconds ? [1, elapsed] : inTokens ? [tokensAStep, tokens] : [1, (step) => whole(Math.round(step))];
  const own = { ...axis, label: seconds ? "training time" : inTokens ? "tokens" : "step", labelSize: 20, size: 34, space: PIXELS_A_TICK, values: (_, at) => at.map((x) => words(x * unit)) };
  if (!inTokens && !view.logx) return own;
  const places = (plot, low, high) => (view.logx ? logTicks(low * unit, high * unit) : ticks(low * unit, high * unit, plot.width / PIXELS_A_TICK));
  return { ...own, splits: (plot, _axis, low, high) => places(plot, low, high).map((at) => at / unit), filter: (_, splits) => splits };
}

/** Options of the x scale: a log axis begins at 1. */
export const xScale = (view, range) => ({ time: false, distr: view.logx ? 3 : 1, range });

/** Colors of an axis, read at each drawing, so that they follow a change from light to dark. */
export const axisColours = () => ({ stroke: () => css("--quiet"), grid: { stroke: () => css("--chart-grid"), width: 1 }, ticks: { stroke: () => css("--chart-grid") } });

/** A horizontal line at a value of the y scale. */
export function level(plot, value, colour, dash = []) {
  const { ctx, bbox } = plot;
  const y = plot.valToPos(value, "y", true);
  ctx.save();
  ctx.lineWidth = devicePixelRatio;
  ctx.setLineDash(dash.map((part) => part * devicePixelRatio));
  ctx.strokeStyle = css(colour);
  ctx.beginPath();
  ctx.moveTo(bbox.left, y);
  ctx.lineTo(bbox.left + bbox.width, y);
  ctx.stroke();
  ctx.restore();
}

/** A triangle at the upper or lower edge: a value off the scale, or (hollow) one that is not finite. */
export function triangle(plot, x, { down = false, hollow = false } = {}) {
  const { ctx, bbox } = plot;
  const size = 5 * devicePixelRatio;
  const at = plot.valToPos(x, "x", true);
  if (at < bbox.left || at > bbox.left + bbox.width) return;
  const tip = down ? bbox.top + bbox.height : bbox.top;
  const base = down ? tip - 1.6 * size : tip + 1.6 * size;
  ctx.beginPath();
  ctx.moveTo(at, tip);
  ctx.lineTo(at - size, base);
  ctx.lineTo(at + size, base);
  ctx.closePath();
  if (hollow) ctx.stroke();
  else ctx.fill();
}

/** Save some text as a file. */
export function save(blob, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

/** Save what a canvas shows, on the page's colour, as a PNG. */
export function savePng(canvas, name) {
  const copy = document.createElement("canvas");
  copy.width = canvas.width;
  copy.height = canvas.height;
  const ctx = copy.getContext("2d");
  ctx.fillStyle = css("--paper");
  ctx.fillRect(0, 0, copy.width, copy.height);
  ctx.drawImage(canvas, 0, 0);
  copy.toBlob((blob) => save(blob, `${name}.png`));
}

/** An element with a text. */
export function element(tag, text, className = "") {
  return Object.assign(document.createElement(tag), { textContent: text, className });
}

/** Fill a table of numbers: headings, then rows of texts; all columns but the first are numbers. */
export function fillNumbers(table, headings, rows) {
  const cells = (tag, texts) => {
    const row = document.createElement("tr");
    row.append(...texts.map((text, at) => element(tag, text, at ? "number" : "")));
    return row;
  };
  table.replaceChildren(document.createElement("thead"), document.createElement("tbody"));
  table.tHead.append(cells("th", headings));
  table.tBodies[0].append(...rows.map((row) => cells("td", row)));
}
