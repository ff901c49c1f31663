// The gaps of all candidates against the baseline in bins, for a look at any part of the run; what is judged stands in the picture above it.
import { candidates, labelOf, many, styleOf, swatch } from "./arms.js";
import { Chart } from "./chart.js";
import { axisColours, css, element, faint, finite, fitsFrom, json, level, padded, signed, spread, stepAxis, triangle, whole, xScale } from "./chart_parts.js";
import { drawLabels, isLabelled, roomFor } from "./line_labels.js";
import { view } from "./view.js";

const HEIGHT = 320;
const PIXELS_A_BIN = 8;
const SAME_LEVEL = 1.01;
const BINS_A_STEP = 50; // so that windows of similar widths share the server's cached answers

export class GapChart extends Chart {
  constructor(figure, jobId, tokensAStep) {
    super(figure, HEIGHT, figure.dataset.name);
    this.readout = figure.querySelector(".readout");
    this.tip = figure.querySelector(".tip");
    this.address = `/api/v1/jobs/${jobId}/gaps`;
    this.tokensAStep = tokensAStep;
  }

  /** What of the view needs other numbers from the server. */
  static needsData(changes) {
    return ["from", "to", "logx"].some((name) => changes.includes(name));
  }

  /** The steps that the verdict reads. */
  get window() {
    return this.gaps?.candidates.find((one) => one.window)?.window ?? null;
  }

  /** What is asked for, whatever the candidates are. */
  query() {
    const query = new URLSearchParams();
    // Without a number of bins the server answers for the whole run from a chart that it has stored.
    if (view.zoomed || view.logx) query.set("bins", Math.min(many ? 150 : 400, BINS_A_STEP * Math.ceil(this.holder.clientWidth / PIXELS_A_BIN / BINS_A_STEP)));
    if (view.zoomed) for (const name of ["from", "to"]) query.set(name, view[name]);
    if (view.logx) query.set("spacing", "log");
    return query;
  }

  /** Load the current gaps and draw them; `status` is the job's. */
  async load(status) {
    this.status = status;
    const query = this.query();
    const all = `${this.address}?${query}`;
    const lit = candidates.filter((name) => view.lit.has(name));
    query.set("candidates", lit.join(","));
    // Without a stored chart, reading all curves of many candidates takes the server seconds: the highlighted ones come first.
    const isLong = many && !("stored" in this.figure.dataset && !view.zoomed && !view.logx);
    const steps = [...(isLong && lit.length && all !== this.shown ? [`${this.address}?${query}`] : []), all];
    for (const one of steps) {
      const gaps = await this.latest(json(one));
      if (!gaps) return;
      this.gaps = gaps;
      this.shown = one;
      await this.draw();
    }
  }

  async draw() {
    const { gaps } = this;
    if (!gaps) return;
    this.choose();
    if (!gaps.first_step.length) {
      this.note.textContent = this.emptyNote();
      this.plot?.setData(this.plot.series.map(() => []));
      if (this.plot) this.describe("Gap chart without a value");
      else this.reserve(false);
      this.fillTable();
      return;
    }
    const x = gaps.first_step.map((first, i) => this.xOf((first + gaps.last_step[i]) / 2));
    const data = [x, ...this.lines.map((one) => one.mean)];
    const shape = this.lines.map((one) => [one.candidate, one.lit, one.colour, one.dash, one.wide]);
    if (!(await this.show(data, shape, () => this.options()))) return;
    this.describe(`Gap chart; ${this.lit.map((one) => `${candidates.length > 1 ? `${labelOf(one.candidate)}: ` : ""}${this.lastWords(one)}`).join("; ") || "no candidate is chosen"}`);
    this.note.textContent = this.summary();
  }

  /** Why there is nothing to draw. */
  emptyNote() {
    if (view.zoomed) return "No gap: the arms have no common step in this range.";
    return ["queued", "running"].includes(this.status)
      ? "No gap yet. It begins with the first common step of a baseline run and a candidate run."
      : "No gap: the job ended before a baseline run and a candidate run had a common step.";
  }

  /** The lines in the order of drawing: those in grey first, the selected candidate last. A missing value is passed over. */
  choose() {
    const known = (values) => values.map((value) => value ?? undefined);
    const focus = this.gaps.candidates.find((one) => one.candidate === view.candidate && view.lit.has(one.candidate));
    const lit = this.gaps.candidates.filter((one) => view.lit.has(one.candidate));
    // Without a choice it is the one that ends worst, which comes first.
    this.focus = focus ?? [...view.lit].map((name) => lit.find((one) => one.candidate === name)).find(Boolean);
    this.lines = this.gaps.candidates.flatMap((one) => {
      const isLit = view.lit.has(one.candidate);
      if (!isLit && !(many && view.others)) return [];
      const style = isLit ? styleOf(one.candidate) : { colour: "--chart-margin", dash: undefined };
      return [{ ...one, ...style, lit: isLit, wide: one === focus && lit.length > 1, mean: known(one.mean) }];
    });
    const rank = (one) => (one.wide ? 2 : one.lit ? 1 : 0);
    this.lines.sort((a, b) => rank(a) - rank(b));
    this.lit = this.lines.filter((one) => one.lit);
    const levels = this.gaps.candidates.map((one) => one.level_nats).filter(Boolean);
    // One axis of percent needs one loss that they are percents of.
    this.level = Math.max(...levels) <= SAME_LEVEL * Math.min(...levels) ? levels[0] : null;
  }

  summary() {
    const counts = [...new Set(this.gaps.candidates.map((one) => one.common_steps))].sort((a, b) => a - b);
    const steps = counts.length > 1 ? `${whole(counts[0])} to ${whole(counts.at(-1))}` : whole(counts[0]);
    return [
      `Showing ${whole(this.gaps.first_step.length)} bins of ${steps} common steps.`,
      this.lit.length ? this.clippedNote() : "No candidate is chosen in the legend.",
      view.x === "time" ? "The x axis shows steps, because the gap compares equal steps." : "",
      this.gaps.candidates.length < candidates.length ? "The other candidates are loading." : "",
    ].filter(Boolean).join(" ");
  }

  clippedNote() {
    const [low, high] = this.range();
    const out = this.lit.flatMap((one) => one.mean).filter((value) => value < low || value > high).length;
    const total = (name) => this.lit.reduce((sum, one) => sum + one[name].length, 0);
    const [own, base] = [total("spikes_candidate"), this.lit[0].spikes_baseline.length];
    const bad = this.lit.filter((one) => one.nonfinite_count);
    const words = (one) => `${one.nonfinite_count === 1 ? "1 step is" : `${whole(one.nonfinite_count)} steps are`} NaN or infinite, first ${whole(Math.min(...one.nonfinite_candidate, ...one.nonfinite_baseline))}`;
    return [
      own + base ? `Spikes in the whole run (triangles): ${whole(own)} of the ${candidates.length > 1 ? "candidates" : "candidate"} (top), ${whole(base)} of the baseline (bottom).` : "",
      out ? `${out === 1 ? "1 bin lies" : `${whole(out)} bins lie`} outside the scale (triangles at the edge).` : "",
      bad.length ? `${bad.map((one) => (candidates.length > 1 ? `${labelOf(one.candidate)}: ${words(one)}` : words(one))).join("; ")}: hollow triangles.` : "",
    ].filter(Boolean).join(" ");
  }

  /** Room for the margin on both sides and for the data that is fitted. */
  range() {
    const from = fitsFrom(this.gaps.first_step);
    const margin = Math.max(0, ...this.gaps.candidates.map((one) => one.margin_nats ?? 0));
    const shown = this.lit.length ? this.lit : this.lines;
    const ends = shown.map((one) => spread(one.mean.slice(from), view.y === "whole" ? 0 : 0.01));
    const [low, high] = [Math.min(-1.2 * margin, ...ends.map(([least]) => least)), Math.max(1.2 * margin, ...ends.map(([, most]) => most))];
    return padded(low, high, 0.04);
  }

  options() {
    const axis = axisColours();
    const moves = this.moving((low, high) => [low, high].map((at) => Math.max(0, Math.round(at))));
    const percent = (value) => (100 * value) / (this.level ?? NaN);
    const axes = [
      stepAxis(axis, view, this.tokensAStep),
      { ...axis, scale: "y", label: "gap, nats", size: 64, labelSize: 20, values: (_, ticks) => ticks.map((v) => (v ? signed(v, 3) : "0")) },
    ];
    const hasPercent = this.holder.clientWidth >= 500 && this.level;
    const named = hasPercent ? [] : this.named();
    if (hasPercent) {
      axes.push({ ...axis, scale: "percent", side: 1, label: "% of the loss", size: 56, labelSize: 20, grid: { show: false }, values: (_, ticks) => ticks.map((v) => (v ? signed(v, 1) : "0")) });
    }
    const series = [{}];
    for (const one of this.lines) {
      const width = one.wide ? 3 : one.lit ? 2 : 1;
      series.push({ scale: "y", stroke: () => (one.lit ? css(one.colour) : faint(one.colour, 45)), width, dash: one.dash, points: { show: false } });
    }
    return {
      ...(named.length ? { padding: [null, roomFor(named.map((one) => labelOf(one.candidate))), null, null] } : {}),
      cursor: moves.cursor,
      scales: {
        x: xScale(view, () => this.stepRange()),
        y: { range: () => this.range() },
        percent: { from: "y", range: (_, low, high) => [percent(low), percent(high)] },
      },
      axes,
      series,
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
    if (!this.window) return;
    const { ctx, bbox } = plot;
    const [left, right] = this.window.map((step) => Math.max(bbox.left, Math.min(bbox.left + bbox.width, plot.valToPos(this.xOf(step), "x", true))));
    ctx.save();
    ctx.fillStyle = css("--chart-window");
    ctx.fillRect(left, bbox.top, right - left, bbox.height);
    ctx.restore();
  }

  /** Above the data: zero, margin, triangles for what is off the scale, and names. */
  drawMarks(plot) {
    const { ctx } = plot;
    ctx.save();
    ctx.lineWidth = devicePixelRatio;
    level(plot, 0, "--quiet");
    const margins = new Set(this.gaps.candidates.filter((one) => one.margin_nats).map((one) => Number(one.margin_nats.toPrecision(3))));
    for (const margin of margins.size > 3 ? [Math.max(...margins)] : margins) for (const side of [1, -1]) level(plot, side * margin, "--chart-margin", [8, 4, 2, 4]);
    const [low, high] = this.range();
    for (const one of this.lit) {
      ctx.fillStyle = css(one.colour);
      one.mean.forEach((value, i) => {
        if (value < low || value > high) triangle(plot, plot.data[0][i], { down: value < low });
      });
      for (const step of one.spikes_candidate) triangle(plot, this.xOf(step));
      ctx.strokeStyle = css("--fail");
      for (const step of [...one.nonfinite_candidate, ...one.nonfinite_baseline]) triangle(plot, this.xOf(step), { hollow: true });
    }
    ctx.fillStyle = css("--chart-line-0");
    for (const step of this.lit[0]?.spikes_baseline ?? []) triangle(plot, this.xOf(step), { down: true });
    this.drawLabels(plot, low, high);
    ctx.restore();
  }

  /** The lines that are named at their ends; on a narrow chart, the one which is read, in the plot. */
  named() {
    return isLabelled(this.holder.clientWidth, this.lit.length) ? this.lit : [];
  }

  drawLabels(plot, low, high) {
    if (candidates.length < 2) return;
    const named = this.named();
    const those = named.length ? named : this.lit.filter((one) => one.candidate === this.focus?.candidate);
    drawLabels(plot, those.flatMap((one) => {
      const last = one.mean.findLastIndex((value) => value !== undefined);
      if (last < 0) return [];
      const y = plot.valToPos(Math.max(low, Math.min(high, one.mean[last])), "y", true);
      return [{ name: labelOf(one.candidate), x: plot.valToPos(plot.data[0][last], "x", true), y, colour: one.colour, dash: one.dash }];
    }));
  }

  showReadout(plot) {
    const { first_step: first, last_step: last } = this.gaps;
    const i = plot.cursor.left >= 0 ? plot.cursor.idx : null;
    const isOutside = i == null || first[i] === undefined;
    this.lead(isOutside ? null : plot.data[0][i]);
    this.tip.hidden = isOutside || this.lit.length < 2 || this.hidesTip;
    if (isOutside) {
      this.readout.textContent = "";
      return;
    }
    const focus = this.lit.find((one) => one.candidate === this.focus?.candidate);
    this.readout.textContent = `steps ${whole(first[i])} to ${whole(last[i])}${focus ? `: ${candidates.length > 1 ? `${labelOf(focus.candidate)} ` : ""}${this.words(focus, i)}` : ""}`;
    if (this.tip.hidden) return;
    const read = this.lit.map((one) => ({ one, value: this.valueAt(one, i) })).filter(({ value }) => value !== null);
    read.sort((a, b) => b.value - a.value);
    this.tip.replaceChildren(element("strong", `steps ${whole(first[i])} to ${whole(last[i])}`), ...read.map(({ one, value }) => {
      const item = element("div", ` ${labelOf(one.candidate)} ${signed(value)}`);
      item.prepend(swatch(one.candidate));
      return item;
    }));
    this.placeTip(plot);
  }

  /** The gap of a candidate in a bin; null without any. */
  valueAt(one, i) {
    return finite(one.mean[i]);
  }

  words(one, i) {
    const value = this.valueAt(one, i);
    if (value === null) return "no common step here";
    return `${signed(value)} nats${one.level_nats ? ` (${signed((100 * value) / one.level_nats, 2)} %)` : ""}`;
  }

  lastWords(one) {
    const last = one.mean.findLastIndex((value) => value !== undefined);
    return last < 0 ? "without a finite value" : `last bin ${signed(one.mean[last])} nats at step ${whole(this.gaps.last_step[last])}`;
  }

  columns() {
    const { gaps } = this;
    if (!gaps?.first_step.length) return null;
    const columns = { first_step: gaps.first_step, last_step: gaps.last_step };
    for (const one of gaps.candidates) {
      const name = gaps.candidates.length > 1 ? `${labelOf(one.candidate)} ` : "";
      columns[`${name}gap_nats`] = one.mean;
    }
    return columns;
  }

  numbers() {
    const { gaps } = this;
    if (!gaps) return null;
    const steps = (i) => `${whole(gaps.first_step[i])} to ${whole(gaps.last_step[i])}`;
    const number = (value) => (finite(value) === null ? "–" : signed(value));
    if (candidates.length === 1 && this.lines.length === 1) {
      const [one] = this.lines;
      return [["Steps", "Gap, nats"], gaps.first_step.map((_, i) => [steps(i), number(one.mean[i])])];
    }
    return [["Steps", ...this.lit.map((one) => `${labelOf(one.candidate)}, nats`)], gaps.first_step.map((_, i) => [steps(i), ...this.lit.map((one) => number(one.mean[i]))])];
  }
}

