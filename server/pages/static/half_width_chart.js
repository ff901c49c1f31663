// When can it be decided? Half the interval over the steps, and the distance from the gap to the margin.
import { Chart } from "./chart.js";
import { axisColours, css, level, lineOf, signed, stepAxis, whole, xScale } from "./chart_parts.js";
import { view } from "./view.js";

const HEIGHT = 200;
const PERIOD_MS = 5000;

export class HalfWidthChart extends Chart {
  constructor(figure, jobId, tokensAStep) {
    super(figure, HEIGHT, `${figure.dataset.name}-half-width-${figure.dataset.decidable}`);
    this.readout = figure.querySelector(".readout");
    this.says = figure.querySelector(".says");
    this.address = `/api/v1/jobs/${jobId}/half-widths?candidate=${encodeURIComponent(figure.dataset.decidable)}`;
    this.line = lineOf(Number(figure.dataset.colour));
    this.tokensAStep = tokensAStep;
    this.loadedAt = -Infinity;
  }

  /** Nothing of the view needs other numbers: there are at most 61. */
  static needsData() {
    return false;
  }

  /** Load the half-widths, but not at every step of a training run; `status` is the job's. */
  async load(status) {
    if (status === this.status && performance.now() - this.loadedAt < PERIOD_MS) return;
    [this.status, this.loadedAt] = [status, performance.now()];
    const widths = await this.fetchLatest(this.address);
    if (!widths) return;
    this.widths = widths;
    await this.draw();
  }

  async draw() {
    const { widths } = this;
    if (!widths) return;
    this.says.textContent = widths.sentence.replace(/(?<![\w)])-(?=\d)/g, "−");
    if (!widths.step.length) {
      this.note.textContent = "";
      this.holder.hidden = true;
      return;
    }
    this.holder.hidden = false;
    const none = (list) => list.map(() => null);
    const looks = widths.step.length;
    const ahead = none(widths.forecast_step);
    // The forecast hangs on the last look, so that its line is joined to the other.
    const forecast = [...none(widths.step).slice(1), ahead.length ? widths.half_width[looks - 1] : null, ...widths.forecast_half_width];
    const data = [
      [...widths.step, ...widths.forecast_step].map((step) => this.xOf(step)),
      [...widths.half_width, ...ahead], [...widths.run_half_width, ...ahead], [...widths.distance, ...ahead], forecast,
    ];
    if (!(await this.show(data, null, () => this.options()))) return;
    this.describe(`Half the interval against the steps. ${widths.sentence}`);
    const few = widths.baseline_runs[looks - 1] !== widths.baseline_runs[0] || widths.candidate_runs[looks - 1] !== widths.candidate_runs[0];
    this.note.textContent =
      `Showing ${whole(looks)} looks, each as if the plan had ended there, over the last fifth of the trained steps.` +
      `${few ? " Where a line jumps, the number of runs changes." : ""}${ahead.length ? " Dashed: forecast." : ""}${view.x === "time" ? " The x axis shows steps." : ""}`;
  }

  /** From zero to above the margin and the later half-widths; the first looks may lie above. */
  range() {
    const { widths } = this;
    const late = widths.half_width.filter((_, i) => widths.step[i] >= widths.planned_steps / 5);
    const high = Math.max(widths.margin_nats ?? 0, ...late, widths.half_width.at(-1), ...widths.forecast_half_width);
    return [0, 1.15 * high];
  }

  options() {
    const axis = axisColours();
    const moves = this.moving((low, high) => [low, high].map((at) => Math.max(0, Math.round(at))));
    const plain = { scale: "y", points: { show: false } };
    return {
      cursor: moves.cursor,
      scales: { x: xScale(view, () => this.stepRange()), y: { range: () => this.range() } },
      axes: [
        stepAxis(axis, view, this.tokensAStep),
        { ...axis, scale: "y", label: "half-width, nats", size: 64, labelSize: 20, values: (_, ticks) => ticks.map((v) => (v ? v.toFixed(3) : "0")) },
      ],
      series: [
        {},
        { ...plain, stroke: () => css(this.line), width: 2 },
        { ...plain, stroke: () => css(this.line), width: 1, dash: [2, 3] },
        { ...plain, stroke: () => css("--quiet"), width: 1.5 },
        { ...plain, stroke: () => css(this.line), width: 2, dash: [7, 4], points: { show: this.widths.forecast_step.length === 1 } },
      ],
      hooks: {
        setSelect: [moves.setSelect],
        draw: [(plot) => this.widths.margin_nats && level(plot, this.widths.margin_nats, "--chart-margin", [8, 4, 2, 4])],
        setCursor: [(plot) => this.showReadout(plot)],
      },
    };
  }

  showReadout(plot) {
    const i = plot.cursor.left >= 0 ? plot.cursor.idx : null;
    const steps = [...this.widths.step, ...this.widths.forecast_step];
    this.lead(i == null ? null : steps[i]);
    this.readout.textContent = i == null ? "" : this.words(i);
  }

  words(i) {
    const { widths } = this;
    const ahead = i - widths.step.length;
    if (ahead >= 0) return `step ${whole(widths.forecast_step[ahead])}: half-width about ${widths.forecast_half_width[ahead].toFixed(4)} nats`;
    const distance = widths.distance[i];
    return (
      `step ${whole(widths.step[i])}: half-width ${widths.half_width[i].toFixed(4)} nats (run noise alone ${widths.run_half_width[i].toFixed(4)}), ` +
      `gap ${signed(widths.gap[i])}${distance === null ? "" : `, ${distance.toFixed(4)} from the margin`}`
    );
  }

  columns() {
    const { widths } = this;
    const names = ["step", "gap", "half_width", "run_half_width", "distance", "baseline_runs", "candidate_runs"];
    return widths && Object.fromEntries(names.map((name) => [name, widths[name]]));
  }

  numbers() {
    const { widths } = this;
    if (!widths) return null;
    const rows = widths.step.map((step, i) => [
      whole(step), widths.half_width[i].toFixed(4), widths.run_half_width[i].toFixed(4), widths.distance[i]?.toFixed(4) ?? "–", `${widths.candidate_runs[i]} and ${widths.baseline_runs[i]}`,
    ]);
    return [["After step", "Half-width, nats", "From run noise", "Gap to margin", "Runs"], rows];
  }
}
