// One recorded column of all arms in one chart: mean and range of each bucket, on the same bucket edges.
import { baselineOf, labelOf, many, styleOf, swatch } from "./arms.js";
import { Chart } from "./chart.js";
import { axisColours, css, elapsed, element, faint, finite, fitsFrom, json, logAxis, logRange, padded, signed, spread, stepAxis, tokens, triangle, whole, xScale } from "./chart_parts.js";
import { drawLabels, isLabelled, roomFor } from "./line_labels.js";
import { smoothed } from "./smoothing.js";
import { view } from "./view.js";

const HEIGHT = 260;
const ROWS_IN_TABLE = 200;
const MOST_POINTS = 2000;
const FEW_POINTS = 100; // up to this many are also drawn as points
const FEW_ARMS = 3;
const VALUES = 4000; // of all arms in one response, about
const FORMATS = [["csv", "CSV"], ["arrow", "Arrow"]];

export class SeriesChart extends Chart {
  constructor(figure, jobId, tokensAStep) {
    const { name, column, kind } = figure.dataset;
    super(figure, HEIGHT, `${name}-${kind === "train" ? "" : `${kind}-`}${column}`);
    this.tip = figure.querySelector(".tip");
    this.column = column;
    this.kind = kind;
    this.jobId = jobId;
    this.tokensAStep = tokensAStep;
    this.arms = [];
  }

  /** The arms that are drawn; of many candidates only those that are highlighted are asked for. */
  get wanted() {
    return view.arms.filter((name) => !many || view.lit.has(name));
  }

  /** What of the view needs other numbers from the server. */
  static needsData(changes) {
    return ["from", "to", "x", "logx", "pair", ...(many ? ["lit"] : [])].some((name) => changes.includes(name));
  }

  /** Whether raw values are drawn: always where nothing is smoothed, else behind few lines, because behind many they hide each other. */
  get showsRaw() {
    return this.half === 0 || this.arms.filter((one) => view.lit.has(one.arm)).length <= FEW_ARMS;
  }

  /** Columns that are evaluated every n-th step are not smoothed. */
  get half() {
    return this.kind === "train" ? view.half : 0;
  }

  /** What is asked for, whatever the arms are. */
  query() {
    const points = Math.min(MOST_POINTS, VALUES / this.wanted.length, 2 * this.holder.clientWidth);
    const query = new URLSearchParams({ name: this.column, kind: this.kind, points: Math.round(Math.max(200, points)) });
    const [seed, replicate] = view.pair?.split(".") ?? [];
    const more = { seed, replicate, from: view.from, to: view.to, seconds: view.x === "time" ? true : null, spacing: view.logx ? "log" : null };
    for (const [name, value] of Object.entries(more)) if (value != null) query.set(name, value);
    return query;
  }

  /** The curves from the server. */
  ask() {
    const query = this.query();
    if (many) query.set("arms", this.wanted.join(","));
    return json(`/api/v1/jobs/${this.jobId}/overlay?${query}`);
  }

  /** Load the curves and draw them. */
  async load() {
    const overlay = await this.latest(this.ask());
    if (!overlay) return;
    this.overlay = overlay;
    await this.draw();
  }

  async draw() {
    if (!this.overlay) return;
    if (!this.overlay.arms.length) {
      this.clear();
      this.arms = [];
      this.links();
      this.fillTable();
      this.note.textContent = view.zoomed || view.pair ? "No run of this seed and replicate has data in this range." : "No run that is chosen has recorded this.";
      return;
    }
    this.arrange();
    this.note.textContent = this.summary();
    this.links();
    const styles = this.arms.map((one) => [one.arm, one.style.colour, one.style.dash]);
    const shape = [this.column, view.log, this.half > 0, this.arms.map((one) => view.lit.has(one.arm)), styles, this.isRaw, this.byTime, this.rows.length <= FEW_POINTS];
    if (!(await this.show(this.data, shape, () => this.options()))) return;
    this.describe(`${this.figure.dataset.title}: ${this.arms.map((one) => `${labelOf(one.arm)} ${this.last(one)}`).join(", ")}. ${this.note.textContent}`);
  }

  /** Rows of one x each, and for each arm: minimum, maximum, mean, smoothed mean. An arm has `undefined` where a row is another's alone. */
  arrange() {
    const { first_step: first, last_step: last } = this.overlay;
    this.isRaw = this.overlay.aggregation === "none";
    const isTimed = (one) => one.line.seconds?.some((x) => x != null && (!view.logx || x > 0));
    // A range in which no loss is finite has steps to show, and no times.
    this.byTime = view.x === "time" && this.overlay.arms.every((one) => one.line.seconds) && this.overlay.arms.some(isTimed);
    this.arms = this.overlay.arms.map((one) => ({ ...one, line: own(one.line, first, last), style: styleOf(one.arm) }));
    const middle = first.map((step, i) => (step + last[i]) / 2);
    let rows = middle.map((step, i) => ({ x: super.xOf(step), step, bucket: this.arms.map(() => i) }));
    if (this.byTime) {
      rows = this.arms.flatMap((one, k) =>
        one.line.seconds.flatMap((x, i) => (x == null || (view.logx && x <= 0) ? [] : [{ x, step: middle[i], bucket: this.arms.map((_, other) => (other === k ? i : -1)) }])),
      );
      rows.sort((a, b) => a.x - b.x);
    }
    this.rows = rows;
    const column = (k, values) => rows.map(({ bucket }) => (bucket[k] < 0 ? undefined : values[bucket[k]]));
    this.data = [rows.map((row) => row.x)];
    this.arms.forEach((one, k) => {
      const { mean, minimum, maximum } = one.line;
      one.smooth = this.half > 0 ? smoothed(middle, mean, this.half) : null;
      one.column = this.data.length;
      this.data.push(column(k, minimum ?? mean), column(k, maximum ?? mean), column(k, mean), column(k, one.smooth ?? mean.map(() => null)));
    });
  }

  /** The arms that were asked for and have nothing here. */
  missing() {
    return this.wanted.filter((name) => !this.arms.some((one) => one.arm === name));
  }

  summary() {
    const { steps_in_range: steps, first_step: first } = this.overlay;
    const shown = this.isRaw ? `Showing ${whole(steps)} of ${whole(steps)} steps.`
      : `Showing ${whole(first.length)} buckets of ${whole(steps)} steps (mean and range of each)${this.overlay.is_all ? "." : "; zoom in to see every step."}`;
    const missing = this.missing();
    const bad = this.arms.filter((one) => one.line.nonfinite_count).map((one) => `${labelOf(one.arm)} ${whole(one.line.nonfinite_count)}, first ${whole(one.line.nonfinite[0].step)}`);
    return [
      shown,
      many ? `Showing ${this.arms.length} of ${view.arms.length} ${view.lines ? "lines" : "arms"}: choose others in the legend.` : "",
      this.half > 0 ? `Smoothed (half-life ${whole(this.half)} steps on both sides)${this.showsRaw ? "; raw values in the background" : ""}.` : "",
      this.outside() ? "The y axis fits the second half of the steps." : "",
      bad.length ? `Not finite (hollow triangles): ${bad.join("; ")}.` : "",
      missing.length ? `Not recorded for this seed and replicate: ${missing.map(labelOf).join(", ")}.` : "",
      view.x === "time" && !this.byTime ? "The x axis shows steps, because the time is not recorded for every run." : "",
    ].filter(Boolean).join(" ");
  }

  options() {
    const axis = axisColours();
    const x = stepAxis(axis, view, this.tokensAStep, { seconds: this.byTime });
    const moves = this.moving((low, high) => this.stepsBetween(low, high));
    const isFew = this.rows.length <= FEW_POINTS;
    const series = [{}];
    const bands = [];
    const named = this.named();
    for (const one of this.arms) {
      const show = view.lit.has(one.arm);
      const showRaw = show && this.showsRaw;
      const { colour: line, dash } = one.style;
      const quiet = { scale: "y", stroke: "transparent", points: { show: false }, show: showRaw && !this.isRaw };
      series.push(quiet, quiet);
      series.push({ scale: "y", show: showRaw, stroke: () => (this.half > 0 ? faint(line, this.arms.length > 2 ? 18 : 30) : css(line)), width: this.half > 0 ? 1 : 1.5, dash: this.half > 0 ? undefined : dash, points: { show: isFew, size: 5 } });
      series.push({ scale: "y", show: show && this.half > 0, stroke: () => css(line), width: 2, dash, points: { show: false } });
      if (!this.isRaw && showRaw) bands.push({ series: [one.column + 1, one.column], fill: () => faint(line, 18) });
    }
    return {
      ...(named.length ? { padding: [null, roomFor(named.map(({ arm }) => labelOf(arm))), null, null] } : {}),
      cursor: moves.cursor,
      scales: { x: xScale(view, (_, low, high) => (this.byTime ? [view.zoomed || view.logx ? low : 0, high] : this.stepRange())), y: { distr: view.log ? 3 : 1, range: (plot) => this.range(plot) } },
      axes: [x, { ...axis, scale: "y", label: `${this.figure.dataset.title.toLowerCase()}${view.log ? ", log scale" : ""}`, size: 60, labelSize: 20, ...(view.log ? logAxis : {}) }],
      series,
      bands,
      hooks: { setSelect: [moves.setSelect], draw: [(plot) => this.drawMarks(plot)], setCursor: [(plot) => this.showTip(plot)] },
    };
  }

  /** The values of the arms that are shown from a row on: of buckets their ends, else the values; or the smoothed ones. */
  drawn(from, columns = this.isRaw ? [2] : [0, 1]) {
    const values = this.arms.filter((one) => view.lit.has(one.arm)).flatMap((one) => columns.flatMap((column) => this.data[one.column + column].slice(from)));
    return view.log ? values.filter((value) => value > 0) : values;
  }

  /**
   * The ends of the y axis: what is in view, or the second half of the whole, without the wildest half percent. Behind a smoothed line, nine
   * tenths of the raw values have room, because it is the line that is read.
   */
  range(plot) {
    const from = this.fits();
    const share = view.y === "whole" ? 0 : this.half > 0 ? 0.05 : 0.005;
    let [low, high] = this.showsRaw ? spread(this.drawn(from), share) : [Infinity, -Infinity];
    if (low > high && this.showsRaw) [low, high] = spread(this.drawn(0), share);
    if (this.half > 0) {
      const [least, most] = spread(this.drawn(from, [3]), 0);
      [low, high] = [Math.min(low, least), Math.max(high, most)];
    }
    if (low > high) return view.log ? logRange(plot, null, null) : [0, 1];
    return view.log ? logRange(plot, low, high) : padded(low, high, this.showsRaw ? 0.05 : 0.2);
  }

  /** The first row that the y axis fits. */
  fits() {
    if (this.byTime) return fitsFrom(this.rows.map((row) => row.x));
    return fitsFrom(this.rows.map((row) => row.step));
  }

  /** Whether values of the first half lie outside the y axis. */
  outside() {
    const from = this.fits();
    if (!from) return false;
    const [low, high] = this.range(null);
    return this.drawn(0).some((value) => value < low || value > high);
  }

  /** Which steps lie between two x values. */
  stepsBetween(low, high) {
    if (!this.byTime) return [Math.max(0, Math.round(low)), Math.round(high)];
    const inside = this.rows.filter((row) => row.x >= low && row.x <= high).map((row) => row.step);
    return inside.length ? [Math.floor(Math.min(...inside)), Math.ceil(Math.max(...inside))] : [0, 0];
  }

  drawMarks(plot) {
    plot.ctx.save();
    plot.ctx.lineWidth = 1.5 * devicePixelRatio;
    for (const one of this.arms) {
      if (!view.lit.has(one.arm)) continue;
      plot.ctx.strokeStyle = css(one.style.colour);
      for (const { step } of one.line.nonfinite) triangle(plot, this.xOf(step), { hollow: true });
    }
    plot.ctx.restore();
    this.drawLabels(plot);
  }

  /** The lines that are named at their ends. */
  named() {
    const shown = this.arms.filter((one) => view.lit.has(one.arm));
    return isLabelled(this.holder.clientWidth, shown.length) ? shown : [];
  }

  drawLabels(plot) {
    const { min, max } = plot.scales.y;
    drawLabels(plot, this.named().flatMap((one) => {
      const values = this.data[one.column + (one.smooth ? 3 : 2)];
      const last = values.findLastIndex((value) => finite(value) !== null && !(view.log && value <= 0));
      if (last < 0) return [];
      const y = plot.valToPos(Math.max(min, Math.min(max, values[last])), "y", true);
      return [{ name: labelOf(one.arm), x: plot.valToPos(this.data[0][last], "x", true), y, ...one.style }];
    }));
  }

  /** An axis of time ends where the recorded times end, which is not where the view does while a run trains. */
  shareOf(width) {
    if (!this.byTime) return width;
    const at = this.plot.posToVal(width * this.plot.over.clientWidth, "x");
    const { step } = this.rows.reduce((best, row) => (Math.abs(row.x - at) < Math.abs(best.x - at) ? row : best));
    const [low, high] = view.ends();
    return Math.max(0, Math.min(1, (view.scaled(step) - low) / (high - low)));
  }

  xOf(step) {
    if (!this.byTime) return super.xOf(step);
    return this.rows.reduce((best, row) => (Math.abs(row.step - step) < Math.abs(best.step - step) ? row : best)).x;
  }

  showTip(plot) {
    const { idx, left } = plot.cursor;
    const row = left >= 0 && idx != null ? this.rows[idx] : undefined;
    this.lead(row ? row.step : null);
    this.tip.hidden = !row || this.hidesTip;
    if (this.tip.hidden) return;
    const shown = this.arms.filter((one) => view.lit.has(one.arm)).map((one) => ({ one, at: this.rowOf(one, idx) }));
    const value = ({ one, at }) => (at < 0 ? null : finite(one.smooth ? this.data[one.column + 3][at] : this.data[one.column + 2][at]));
    this.tip.replaceChildren(element("strong", this.place(row, shown[0])));
    for (const entry of shown) {
      const own = value(entry);
      const base = shown.find(({ one }) => one.arm === baselineOf(entry.one.arm));
      const reference = base ? value(base) : null;
      const isMissing = entry.at >= 0 && this.data[entry.one.column + 2][entry.at] === undefined;
      const text = isMissing ? "no data here" : own === null ? "no finite value" : `${own.toPrecision(6)}${reference === null ? "" : ` (${signed(own - reference)})`}`;
      const item = element("div", ` ${labelOf(entry.one.arm)} ${text}`);
      item.prepend(swatch(entry.one.arm));
      this.tip.append(item);
    }
    this.placeTip(plot);
  }

  /** The row that has what is read of a line at a row of the cursor; -1 without any. */
  rowOf(one, idx) {
    return this.byTime ? nearest(this.data[one.column + 2], idx) : idx;
  }

  place(row, entry) {
    const i = entry && entry.at >= 0 ? this.rows[entry.at].bucket.find((bucket) => bucket >= 0) : row.bucket.find((bucket) => bucket >= 0);
    const [first, last] = [this.overlay.first_step[i], this.overlay.last_step[i]];
    const steps = first === last ? `step ${whole(first)}` : `steps ${whole(first)} to ${whole(last)}`;
    if (this.byTime) return `${elapsed(row.x)}, about ${steps}`;
    return view.x === "tokens" ? `${tokens(last * this.tokensAStep)} tokens, ${steps}` : steps;
  }

  last(one) {
    const value = one.line.mean.findLast((mean) => mean != null);
    return value === undefined ? "without a finite value" : `ends at ${value.toPrecision(5)}`;
  }

  /** Downloads of what is shown, each step of it. */
  links() {
    const range = view.zoomed ? `&from=${view.from}&to=${view.to}` : "";
    const holder = this.figure.querySelector(".downloads");
    holder.replaceChildren(...this.arms.flatMap(({ arm, run }) => FORMATS.map(([format, word]) => {
      const link = element("a", `${labelOf(arm)} as ${word}`);
      link.href = `/api/v1/runs/${run}/steps?names=${this.column}&kind=${this.kind}&format=${format}${range}`;
      return link;
    })));
  }

  /** The drawn numbers: mean, and the ends of a bucket. */
  columns() {
    if (!this.arms.length) return null;
    const columns = { first_step: this.overlay.first_step, last_step: this.overlay.last_step };
    for (const { arm, line } of this.arms) {
      const name = labelOf(arm);
      columns[name] = line.mean;
      if (line.minimum) Object.assign(columns, { [`${name} minimum`]: line.minimum, [`${name} maximum`]: line.maximum });
    }
    return columns;
  }

  numbers() {
    if (!this.overlay) return null;
    const { first_step: first, last_step: last } = this.overlay;
    const stride = Math.ceil(first.length / ROWS_IN_TABLE);
    const rows = [];
    for (let i = 0; i < first.length; i += stride) {
      const steps = first[i] === last[i] ? whole(first[i]) : `${whole(first[i])} to ${whole(last[i])}`;
      rows.push([steps, ...this.arms.map(({ line }) => (line.mean[i] == null ? "–" : line.mean[i].toPrecision(6)))]);
    }
    return [[stride > 1 ? `Steps (one row of ${stride})` : "Steps", ...this.arms.map(({ arm }) => labelOf(arm))], rows];
  }
}

/**
 * A line whose mean, minimum and maximum are `undefined` where its run has recorded nothing, as one that logs less often than the others:
 * uPlot draws on past that. Null stays, as a gap, where something was recorded that is not finite.
 */
function own(line, first, last) {
  const { mean, minimum, maximum, nonfinite, nonfinite_count: count } = line;
  if (count > nonfinite.length || !mean.includes(null)) return line;
  const isMissing = mean.map((value, i) => {
    if (value !== null) return false;
    let [low, high] = [0, count];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (nonfinite[middle].step < first[i]) low = middle + 1;
      else high = middle;
    }
    return !(low < count && nonfinite[low].step <= last[i]);
  });
  const kept = (values) => values && values.map((value, i) => (isMissing[i] ? undefined : value));
  return { ...line, mean: kept(mean), minimum: kept(minimum), maximum: kept(maximum) };
}

/** The index nearest to `at` where a column has a value of its own; -1 where it has none. */
export function nearest(column, at) {
  for (let away = 0; away < column.length; away++) {
    if (column[at - away] !== undefined) return at - away;
    if (column[at + away] !== undefined) return at + away;
  }
  return -1;
}
