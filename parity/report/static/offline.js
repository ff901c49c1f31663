// The charts of a page that `parity compare --open` wrote. The data is in the page: no server is asked, and nothing is loaded.
import { bindControls } from "./controls.js";
import { GapChart } from "./gap_chart.js";
import { SeriesChart } from "./series_chart.js";
import { view } from "./view.js";

const data = JSON.parse(document.getElementById("data").textContent);

/** The rows of columns of equal length whose range of steps touches the view. */
function inRange(columns, from, to) {
  const kept = columns.first_step.flatMap((first, i) => (columns.last_step[i] >= from && first <= to ? [i] : []));
  return Object.fromEntries(Object.entries(columns).map(([name, values]) => [name, values && kept.map((i) => values[i])]));
}

const between = (steps, from, to) => steps.filter((step) => step >= from && step <= to);

function gaps(spacing, from, to) {
  const { bins, candidates, ...facts } = data.gaps;
  const whole = from <= 0 && to === Infinity;
  const { first_step, last_step, candidates: columns } = bins[`${spacing} ${whole ? "whole" : "part"}`];
  return {
    ...facts,
    ...inRange({ first_step, last_step }, from, to),
    candidates: candidates.map((one, at) => {
      const [baseline, own] = [one.nonfinite_baseline, one.nonfinite_candidate].map((steps) => between(steps, from, to));
      const { mean, half_width, n } = inRange({ first_step, last_step, ...columns[at] }, from, to);
      return {
        ...one,
        mean,
        half_width,
        nonfinite_baseline: baseline,
        nonfinite_candidate: own,
        nonfinite_count: whole ? one.nonfinite_count : baseline.length + own.length,
        common_steps: n.reduce((sum, steps) => sum + steps, 0),
      };
    }),
  };
}

function overlay(spacing, from, to) {
  const { first_step, last_step, arms, n } = data.loss[spacing];
  const edges = inRange({ first_step, last_step, n }, from, to);
  const cut = (values) => values && inRange({ first_step, last_step, values }, from, to).values;
  return {
    aggregation: data.loss.aggregation,
    is_all: true,
    steps_in_range: edges.n.reduce((sum, n_) => sum + n_, 0),
    ...edges,
    arms: arms.map(({ arm, line }) => {
      const nonfinite = line.nonfinite.filter(({ step }) => step >= from && step <= to);
      const ends = { minimum: cut(line.minimum), maximum: cut(line.maximum) };
      return { arm, run: "", line: { ...line, ...ends, mean: cut(line.mean), seconds: null, nonfinite, nonfinite_count: nonfinite.length } };
    }),
  };
}

// The charts ask a server; here the page answers.
globalThis.fetch = async (address) => {
  const { pathname, searchParams: query } = new URL(address, "http://page");
  const [from, to] = [Number(query.get("from") ?? 0), Number(query.get("to") ?? Infinity)];
  const spacing = query.get("spacing") ?? "linear";
  const answer = pathname.endsWith("/gaps") ? gaps(spacing, from, to) : overlay(spacing, from, to);
  return { ok: true, json: async () => answer };
};

/** The curves of the page; there is no server to download them from. */
class PageSeriesChart extends SeriesChart {
  links() {}
}

const charts = [
  ...[...document.querySelectorAll("figure[data-gaps]")].map((figure) => new GapChart(figure, "page", 1)),
  ...[...document.querySelectorAll("figure[data-column]")].map((figure) => new PageSeriesChart(figure, "page", 1)),
];
const describeView = bindControls(() => charts[0].window);
view.onChange(async (changes) => {
  await Promise.all(charts.map((chart) => (chart.constructor.needsData(changes) ? chart.load("concluded") : chart.draw())));
});
await Promise.all(charts.map((chart) => chart.load("concluded")));
describeView();
document.documentElement.dataset.charts = "drawn";
