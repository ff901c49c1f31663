// The gap so far and the forecast of the final gap, as a fan to the planned end.
import { styleOf } from "./arms.js";
import { Chart } from "./chart.js";
import { axisColours, css, faint, finite, level, signed, stepAxis, whole, xScale } from "./chart_parts.js";
import { view } from "./view.js";

const HEIGHT = 240;
const PERIOD_MS = 5000;
const FAN_POINTS = 24;
const NAMES = { open: "open", on_course: "on course", futile: "futile", harmful: "hopeless" };
const share = (probability) => (probability < 0.01 ? "< 1 %" : probability > 0.99 ? "> 99 %" : `${Math.round(100 * probability)} %`);

export class LiveChart extends Chart {
  constructor(figure, jobId, tokensAStep) {
    super(figure, HEIGHT, "");
    this.readout = figure.querySelector(".readout");
    this.says = figure.querySelector(".says");
    this.jobId = jobId;
    this.tokensAStep = tokensAStep;
    this.loadedAt = -Infinity;
  }

  /** Nothing of the view needs other numbers: there are at most 80. */
  static needsData() {
    return false;
  }

  /** Load the forecast, but not at every step of a training run; `status` is the job's. */
  async load(status) {
    const candidate = this.figure.dataset.forecast;
    if (!candidate) return;
    if (candidate === this.candidate && status === this.status && performance.now() - this.loadedAt < PERIOD_MS) return;
    [this.candidate, this.status, this.loadedAt] = [candidate, status, performance.now()];
    this.name = `${this.figure.dataset.name}-forecast-${candidate}`;
    this.line = styleOf(candidate).colour;
    const live = await this.fetchLatest(`/api/v1/jobs/${this.jobId}/live?candidate=${encodeURIComponent(candidate)}`);
    if (!live) return;
    this.live = live;
    await this.draw();
  }

  async draw() {
    const { live } = this;
    if (!live) return;
    this.says.textContent = live.sentence.replace(/(?<![\w)])-(?=\d)/g, "−");
    if (!live.step.length) {
      this.note.textContent = "";
      this.holder.hidden = true;
      return;
    }
    this.holder.hidden = false;
    const fan = this.fan();
    const rows = [...live.step.map((step, i) => [step, live.gap[i], null, null, null, null]), ...fan].sort((a, b) => a[0] - b[0]);
    const columns = rows[0].map((_, column) => rows.map((row) => row[column]));
    this.steps = columns[0];
    const data = [this.steps.map((step) => this.xOf(step)), ...columns.slice(1)];
    if (!(await this.show(data, this.line, () => this.options()))) return;
    this.describe(`Gap and forecast of the final gap against the steps. ${live.sentence}`);
    this.note.textContent =
      `Showing the mean gap in ${whole(live.step.length)} parts of the plan, after ${whole(live.past_step.length)} forecasts.` +
      `${fan.length ? " The fan ends at the forecast of the final gap; its shape on the way there is only drawn." : ""}${view.x === "time" ? " The x axis shows steps." : ""}`;
  }

  /** Rows of the fan from the last forecast to the planned end: step, no gap, then the ends of the 90 % and 50 % forecasts. */
  fan() {
    const { forecast, past_step } = this.live;
    const now = past_step.at(-1);
    if (!forecast || forecast.end <= now) return [];
    return Array.from({ length: FAN_POINTS + 1 }, (_, i) => {
      const reach = Math.sqrt(i / FAN_POINTS);
      const bounds = [forecast.low, forecast.high, forecast.low_half, forecast.high_half].map((to) => forecast.gap + reach * (to - forecast.gap));
      return [now + (i / FAN_POINTS) * (forecast.end - now), null, ...bounds];
    });
  }

  /** Room for the margin above zero, for the gap after the first tenth, and for the forecast. */
  range() {
    const { live } = this;
    const late = live.gap.filter((_, i) => live.step[i] >= live.planned_steps / 10);
    const { low, high } = live.forecast ?? { low: 0, high: 0 };
    const margin = live.margin_nats ?? 0;
    const reach = (sign) => 1.15 * Math.max(1e-6, (sign > 0 ? 1.2 : 0.2) * margin, ...[...late, low, high].map((value) => sign * value));
    return [-reach(-1), reach(1)];
  }

  options() {
    const axis = axisColours();
    const moves = this.moving((low, high) => [low, high].map((at) => Math.max(0, Math.round(at))));
    const plain = { scale: "y", points: { show: false } };
    const edge = { ...plain, stroke: "transparent" };
    return {
      cursor: moves.cursor,
      scales: { x: xScale(view, () => this.stepRange()), y: { range: () => this.range() } },
      axes: [
        stepAxis(axis, view, this.tokensAStep),
        { ...axis, scale: "y", label: "gap, nats", size: 64, labelSize: 20, values: (_, ticks) => ticks.map((v) => (v ? signed(v, 3) : "0")) },
      ],
      series: [{}, { ...plain, stroke: () => css(this.line), width: 2, spanGaps: true }, ...[edge, edge, edge, edge].map((each) => ({ ...each, spanGaps: true }))],
      bands: [
        { series: [3, 2], fill: () => faint(this.line, 16) },
        { series: [5, 4], fill: () => faint(this.line, 26) },
      ],
      hooks: {
        setSelect: [moves.setSelect],
        draw: [(plot) => this.drawLevels(plot)],
        setCursor: [(plot) => this.showReadout(plot)],
      },
    };
  }

  drawLevels(plot) {
    level(plot, 0, "--quiet");
    if (this.live.margin_nats) level(plot, this.live.margin_nats, "--chart-margin", [8, 4, 2, 4]);
  }

  showReadout(plot) {
    const i = plot.cursor.left >= 0 ? plot.cursor.idx : null;
    this.lead(i == null ? null : this.steps[i]);
    this.readout.textContent = i == null ? "" : this.words(i, plot.data);
  }

  words(i, [, gap, low, high]) {
    const { forecast } = this.live;
    if (finite(low[i]) === null) return `step ${whole(Math.round(this.steps[i]))}: gap ${signed(gap[i])} nats`;
    return `final gap, step ${whole(forecast.end)}: forecast ${signed(forecast.low)} to ${signed(forecast.high)} nats (90 %)`;
  }

  columns() {
    const { live } = this;
    const names = ["past_step", "past_state", "past_gap", "past_low", "past_high", "past_passes", "past_fails"];
    return live && Object.fromEntries(names.map((name) => [name.replace("past_", ""), live[name]]));
  }

  numbers() {
    const { live } = this;
    if (!live) return null;
    const rows = live.past_step.map((step, i) => [
      whole(step), NAMES[live.past_state[i]], signed(live.past_gap[i]), `${signed(live.past_low[i])} to ${signed(live.past_high[i])}`, share(live.past_passes[i]), share(live.past_fails[i]),
    ]);
    return [["After step", "State", "Gap, nats", "Final gap, 90 % forecast", "Pass", "Fail"], rows];
  }
}
