// The gap of one candidate against the baseline: bins with their interval, margin, window, and the last value labelled.
import { Chart } from "./chart.js";
import { axisColours, bound, css, faint, finite, level, lineOf, signed, stepAxis, triangle, whole, xScale } from "./chart_parts.js";
import { view } from "./view.js";

const HEIGHT = 280;
const PIXELS_A_BIN = 8;

export class GapChart extends Chart {
  constructor(figure, jobId, tokensAStep) {
    super(figure, HEIGHT, `${figure.dataset.name}-gap-${figure.dataset.candidate}`);
    this.readout = figure.querySelector(".readout");
    this.address = `/api/v1/jobs/${jobId}/gap?candidate=${encodeURIComponent(figure.dataset.candidate)}`;
    this.line = lineOf(Number(figure.dataset.colour));
    this.tokensAStep = tokensAStep;
  }

  /** What of the view needs other numbers from the server. */
  static needsData(changes) {
    return ["from", "to", "logx"].some((name) => changes.includes(name));
  }

  /** Load the current gap and draw it; `status` is the job's. */
  async load(status) {
    this.status = status;
    const bins = Math.max(50, Math.min(400, Math.floor(this.holder.clientWidth / PIXELS_A_BIN)));
    const range = view.zoomed ? `&from=${view.from}&to=${view.to}` : "";
    const gap = await this.fetchLatest(`${this.address}&bins=${bins}${range}${view.logx ? "&spacing=log" : ""}`);
    if (!gap) return;
    this.gap = gap;
    await this.draw();
  }

  async draw() {
    const gap = this.gap;
    if (!gap) return;
    if (!gap.first_step.length) {
      this.note.textContent = view.zoomed
        ? "No gap: the arms have no common step in this range."
        : ["queued", "running"].includes(this.status)
          ? "No gap yet. It begins with the first common step of a baseline run and a candidate run."
          : "No gap: the job ended before a baseline run and a candidate run had a common step.";
      this.plot?.setData([[], [], [], []]);
      if (this.plot) this.describe("Gap chart without a value");
      this.fillTable();
      return;
    }
    const x = gap.first_step.map((first, i) => this.xOf((first + gap.last_step[i]) / 2));
    const data = [x, gap.mean.map(finite), gap.low.map(finite), gap.high.map(finite)];
    if (!(await this.show(data, null, () => this.options()))) return;
    const last = data[1].findLastIndex((value) => value !== null);
    this.describe(last < 0 ? "Gap chart without a finite value" : `Gap chart; last bin ${signed(data[1][last])} nats at step ${whole(gap.last_step[last])}`);
    this.note.textContent = `Showing ${whole(x.length)} bins of ${whole(gap.common_steps)} common steps.${this.clippedNote()}${view.x === "time" ? " The x axis shows steps, because the gap compares equal steps." : ""}`;
  }

  clippedNote() {
    const [low, high] = this.range();
    const out = this.gap.mean.filter((value) => value < low || value > high).length;
    const bad = this.gap.nonfinite_count;
    const [own, base] = [this.gap.spikes_candidate, this.gap.spikes_baseline].map((steps) => steps.length);
    const spikes = own + base ? ` Spikes in the whole run (triangles): ${whole(own)} of the candidate (top), ${whole(base)} of the baseline (bottom).` : "";
    const outside = out ? ` ${out === 1 ? "1 bin lies" : `${whole(out)} bins lie`} outside the scale (triangles at the edge).` : "";
    return spikes + outside + (bad ? ` ${bad === 1 ? "1 step is" : `${whole(bad)} steps are`} NaN or infinite, first ${whole(Math.min(...this.gap.nonfinite_candidate, ...this.gap.nonfinite_baseline))}: hollow triangles.` : "");
  }

  /** Room for the margin on both sides and for the data; the wild first tenth of training must not flatten the rest. */
  range() {
    const { gap } = this;
    const begin = gap.planned_steps / 10;
    const late = gap.first_step.findIndex((step) => step >= begin);
    const from = late < 0 ? 0 : late;
    const reach = (bounds, sign) => {
      const distances = bounds.slice(from).filter((v) => typeof v === "number").map((v) => sign * v);
      distances.sort((a, b) => a - b);
      const typical = distances.length ? distances[Math.floor(0.98 * (distances.length - 1))] : 0;
      return 1.15 * Math.max(typical, 1.2 * (gap.margin_nats ?? 0), 1e-6);
    };
    return [-reach(gap.low, -1), reach(gap.high, 1)];
  }

  options() {
    const axis = axisColours();
    const moves = this.moving((low, high) => [low, high].map((at) => Math.max(0, Math.round(at))));
    const percent = (value) => (100 * value) / (this.gap.level_nats ?? NaN);
    const axes = [
      stepAxis(axis, view, this.tokensAStep),
      { ...axis, scale: "y", label: "gap, nats", size: 64, labelSize: 20, values: (_, ticks) => ticks.map((v) => (v ? signed(v, 3) : "0")) },
    ];
    if (this.holder.clientWidth >= 500 && this.gap.level_nats) {
      axes.push({ ...axis, scale: "percent", side: 1, label: "% of the loss", size: 56, labelSize: 20, grid: { show: false }, values: (_, ticks) => ticks.map((v) => (v ? signed(v, 1) : "0")) });
    }
    const edge = { scale: "y", stroke: "transparent", points: { show: false } };
    return {
      cursor: moves.cursor,
      scales: {
        x: xScale(view, () => this.stepRange()),
        y: { range: () => this.range() },
        percent: { from: "y", range: (_, low, high) => [percent(low), percent(high)] },
      },
      axes,
      series: [{}, { scale: "y", stroke: () => css(this.line), width: 2, points: { show: false } }, edge, edge],
      bands: [{ series: [3, 2], fill: () => faint(this.line, 22) }],
      hooks: {
        setSelect: [moves.setSelect],
        drawClear: [(plot) => this.drawGround(plot)],
        draw: [(plot) => this.drawMarks(plot)],
        setCursor: [(plot) => this.showReadout(plot)],
      },
    };
  }

  /** Below the data: the window that the verdict reads. */
  drawGround(plot) {
    if (!this.gap.window) return;
    const { ctx, bbox } = plot;
    const [left, right] = this.gap.window.map((step) => Math.max(bbox.left, Math.min(bbox.left + bbox.width, plot.valToPos(this.xOf(step), "x", true))));
    ctx.save();
    ctx.fillStyle = css("--chart-window");
    ctx.fillRect(left, bbox.top, right - left, bbox.height);
    ctx.restore();
  }

  /** Above the data: zero, margin, triangles for what is off the scale, and the last value. */
  drawMarks(plot) {
    const { ctx, bbox } = plot;
    const { gap } = this;
    ctx.save();
    ctx.lineWidth = devicePixelRatio;
    level(plot, 0, "--quiet");
    if (gap.margin_nats) for (const side of [1, -1]) level(plot, side * gap.margin_nats, "--chart-margin", [8, 4, 2, 4]);
    ctx.fillStyle = css(this.line);
    const [low, high] = this.range();
    gap.mean.forEach((value, i) => {
      if (value < low || value > high) triangle(plot, plot.data[0][i], { down: value < low });
    });
    for (const step of gap.spikes_candidate) triangle(plot, this.xOf(step));
    ctx.fillStyle = css(lineOf(0));
    for (const step of gap.spikes_baseline) triangle(plot, this.xOf(step), { down: true });
    ctx.fillStyle = css(this.line);
    ctx.strokeStyle = css("--fail");
    for (const step of [...gap.nonfinite_candidate, ...gap.nonfinite_baseline]) triangle(plot, this.xOf(step), { hollow: true });
    const last = plot.data[1].findLastIndex((value) => value !== null);
    if (last >= 0) {
      ctx.font = `600 ${13 * devicePixelRatio}px system-ui, sans-serif`;
      const x = plot.valToPos(plot.data[0][last], "x", true);
      const y = plot.valToPos(Math.max(low, Math.min(high, plot.data[1][last])), "y", true);
      const text = signed(plot.data[1][last]);
      const fits = x + ctx.measureText(text).width + 8 * devicePixelRatio < bbox.left + bbox.width;
      ctx.textAlign = fits ? "left" : "right";
      ctx.textBaseline = "bottom";
      const place = [text, x + (fits ? 6 : -6) * devicePixelRatio, y - 4 * devicePixelRatio];
      // A halo in the page's colour keeps the number readable above the band.
      ctx.lineWidth = 4 * devicePixelRatio;
      ctx.lineJoin = "round";
      ctx.strokeStyle = css("--paper");
      ctx.strokeText(...place);
      ctx.fillText(...place);
    }
    ctx.restore();
  }

  showReadout(plot) {
    const { gap } = this;
    const i = plot.cursor.left >= 0 ? plot.cursor.idx : null;
    const isOutside = i == null || gap.first_step[i] === undefined;
    this.lead(isOutside ? null : plot.data[0][i]);
    if (isOutside) {
      this.readout.textContent = "";
      return;
    }
    const steps = `steps ${whole(gap.first_step[i])} to ${whole(gap.last_step[i])}`;
    const value = gap.mean[i];
    this.readout.textContent =
      typeof value === "number"
        ? `${steps}: ${signed(value)} nats${gap.level_nats ? ` (${signed((100 * value) / gap.level_nats, 2)} %)` : ""}, ${bound(gap.low[i])} to ${bound(gap.high[i])}`
        : `${steps}: ${value}`;
  }

  columns() {
    const { gap } = this;
    return gap && { first_step: gap.first_step, last_step: gap.last_step, gap_nats: gap.mean, low: gap.low, high: gap.high };
  }

  numbers() {
    const { gap } = this;
    if (!gap) return null;
    const rows = gap.first_step.map((first, i) => [`${whole(first)} to ${whole(gap.last_step[i])}`, bound(gap.mean[i]), `${bound(gap.low[i])} to ${bound(gap.high[i])}`]);
    return [["Steps", "Gap, nats", "Interval"], rows];
  }
}
