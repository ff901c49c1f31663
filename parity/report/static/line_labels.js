// The names of lines at their ends, none over another.
import { css } from "./chart_parts.js";

const LINE_PIXELS = 15;
const SAMPLE_PIXELS = 22;
const LONGEST = 30; // characters; the middle of a longer name is left out
const FONT_PIXELS = 12.5;
export const WIDE = 600; // of a chart: a narrower one has its legend alone
const RIGHT = 1; // a side of uPlot's
const MOST = 9; // lines: a baseline and eight candidates

/** Whether a chart of this width names so many lines at their ends; else its legend does. */
export const isLabelled = (width, lines) => lines > 1 && lines <= MOST && width >= WIDE;

/** The room for the names to the right of the lines, in pixels. */
export function roomFor(names) {
  const ctx = document.createElement("canvas").getContext("2d");
  ctx.font = font(1);
  return SAMPLE_PIXELS + 12 + Math.ceil(Math.max(...names.map((name) => ctx.measureText(cut(name)).width)));
}

/**
 * Draw names next to the ends of lines (`x`, `y` in pixels of the canvas, colour and dash as the line has them): to the right of an end where
 * there is room, else above it. A sample of the line stands before each, because a name that gave way to others is not at the line's height.
 */
export function drawLabels(plot, ends) {
  const { ctx, bbox } = plot;
  const ratio = devicePixelRatio;
  const line = LINE_PIXELS * ratio;
  const edge = plot.axes.some(({ side }) => side === RIGHT) ? bbox.left + bbox.width : ctx.canvas.width;
  ctx.save();
  ctx.font = font(ratio);
  ctx.textBaseline = "middle";
  ctx.textAlign = "left";
  ctx.lineJoin = "round";
  const labels = ends.map((end) => {
    const text = cut(end.name);
    const width = SAMPLE_PIXELS * ratio + ctx.measureText(text).width;
    const isRight = end.x + width + 8 * ratio < edge;
    return { ...end, text, left: isRight ? end.x + 6 * ratio : end.x - width - 6 * ratio, wish: isRight ? end.y : end.y - 9 * ratio };
  });
  labels.sort((a, b) => a.wish - b.wish);
  const places = apart(labels.map(({ wish }) => wish), line, bbox.top + line / 2, bbox.top + bbox.height - line / 2);
  labels.forEach(({ text, left, colour, dash }, i) => {
    // A halo in the page's colour keeps a name readable above lines.
    ctx.strokeStyle = css("--paper");
    ctx.lineWidth = 4 * ratio;
    ctx.setLineDash([]);
    ctx.strokeText(text, left + SAMPLE_PIXELS * ratio, places[i]);
    ctx.beginPath();
    ctx.moveTo(left, places[i]);
    ctx.lineTo(left + (SAMPLE_PIXELS - 5) * ratio, places[i]);
    ctx.stroke();
    ctx.strokeStyle = css(colour);
    ctx.lineWidth = 2 * ratio;
    ctx.setLineDash((dash ?? []).map((part) => (part * ratio) / 2));
    ctx.stroke();
    ctx.fillStyle = css("--ink");
    ctx.fillText(text, left + SAMPLE_PIXELS * ratio, places[i]);
  });
  ctx.restore();
}

const font = (ratio) => `${FONT_PIXELS * ratio}px system-ui, sans-serif`;

/** A name without its middle, where it is long: what tells names apart often stands at the end. */
function cut(name) {
  if (name.length <= LONGEST) return name;
  const kept = LONGEST - 1;
  return `${name.slice(0, Math.ceil(kept / 2))}…${name.slice(-Math.floor(kept / 2))}`;
}

/** Places between two ends that are a gap apart and as near to the wished ones (ascending) as that allows. */
function apart(wished, gap, low, high) {
  const groups = [];
  wished.forEach((wish, i) => {
    let group = { mean: wish - i * gap, count: 1 };
    while (groups.length && groups.at(-1).mean > group.mean) {
      const before = groups.pop();
      const count = before.count + group.count;
      group = { mean: (before.mean * before.count + group.mean * group.count) / count, count };
    }
    groups.push(group);
  });
  const most = high - (wished.length - 1) * gap;
  const firsts = groups.flatMap(({ mean, count }) => Array(count).fill(mean));
  return firsts.map((first, i) => Math.max(low, Math.min(most, first)) + i * gap);
}
