// What all charts share: the chart library, colours, the way numbers are written, the cursor, and the picture to save.

export const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
export const signed = (value, places = 4) => (value < 0 ? "−" : "+") + Math.abs(value).toFixed(places);
export const whole = (value) => value.toLocaleString("en");
export const finite = (value) => (typeof value === "number" ? value : null);
export const bound = (value) => (typeof value === "number" ? signed(value) : String(value));

let library;
/** The chart library, once; a missing one is said on the page. */
export function uPlot() {
  library ??= import("/static/vendor/uplot/uPlot.esm.js").then((module) => module.default);
  return library;
}
export const NO_LIBRARY = "The chart library is not installed: run `make node_modules/.installed` on the server. The numbers are below.";

/** The property of the colour of the arm at a position: 0 is the baseline. */
export const lineOf = (position) => `--chart-line-${position === 0 ? 0 : ((position - 1) % 4) + 1}`;

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

/** Round positions between two values, about as many as are wanted. */
export function ticks(low, high, wanted) {
  const rough = (high - low) / Math.max(1, wanted);
  const decade = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * decade).find((size) => size >= rough);
  const found = [];
  for (let at = Math.ceil(low / step) * step; at <= high; at += step) found.push(at);
  return found;
}

const PIXELS_A_TICK = 90;
/** The axis of steps, in steps or in tokens. */
export function stepAxis(axis, view, tokensAStep) {
  if (view.x !== "tokens") return { ...axis, label: "step", labelSize: 20, size: 34, values: (_, at) => at.map(whole) };
  return {
    ...axis, label: "tokens", labelSize: 20, size: 34,
    splits: (plot, _axis, low, high) => ticks(low * tokensAStep, high * tokensAStep, plot.width / PIXELS_A_TICK).map((t) => t / tokensAStep),
    values: (_, at) => at.map((step) => tokens(step * tokensAStep)),
  };
}

/** Colours of an axis, asked for at each drawing, so that they follow a change from light to dark. */
export const axisColours = () => ({ stroke: () => css("--quiet"), grid: { stroke: () => css("--chart-grid"), width: 1 }, ticks: { stroke: () => css("--chart-grid") } });

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

// The cursors of all charts point at the same step.
const followers = new Set();
let leading = false;

/** A chart whose cursor goes along; `pointAt(step)` moves it there, or away for null. */
export const follow = (chart) => followers.add(chart);

/** Called when a chart's own cursor moved to a step (null: it left). */
export function lead(chart, step) {
  if (leading) return;
  leading = true;
  for (const other of followers) if (other !== chart) other.pointAt(step);
  leading = false;
}

/** What a drag and a double click do, for uPlot's options; `stepsOf(left, right)` says which steps two positions stand for. */
export function dragging(view, stepsOf) {
  return {
    cursor: {
      y: false,
      drag: { x: true, y: false, setScale: false },
      points: { size: 6 },
      bind: { dblclick: () => () => { view.set({ from: null, to: null }); return null; } },
    },
    setSelect: (plot) => {
      const { left, width } = plot.select;
      if (width < 4) return;
      const [from, to] = stepsOf(plot, left, left + width);
      plot.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
      if (to > from) view.set({ from, to });
    },
  };
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
  copy.toBlob((blob) => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(blob);
    link.download = `${name}.png`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  });
}
