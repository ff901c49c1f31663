// Jobs side by side: their curves and gaps on one chart each.
import { followCharts } from "./chart_loading.js";
import { uPlot } from "./chart_parts.js";
import { bindControls } from "./controls.js";
import { JobsGapChart, JobsSeriesChart } from "./jobs_charts.js";

const RETRY_MS = 5000;
const PERIOD_MS = 15_000; // in which the curves of jobs in training are asked for again

uPlot().catch(() => {}); // loads while the numbers do; the first chart reports a missing library
const charts = document.querySelector(".job-charts");
const stale = document.getElementById("stale");
const tokensAStep = Number(charts.dataset.tokens);
const gaps = [...charts.querySelectorAll("figure[data-gaps]")].map((figure) => new JobsGapChart(figure, null, tokensAStep));
const series = [...charts.querySelectorAll("figure[data-column]")].map((figure) => new JobsSeriesChart(figure, null, tokensAStep));
const describeView = bindControls(() => gaps[0].window);

const mounted = followCharts([...gaps, ...series], load);
if ("trains" in charts.dataset) setInterval(() => { if (!document.hidden) load([...mounted]); }, PERIOD_MS);

async function load(some) {
  try {
    await Promise.all(some.map((chart) => chart.load()));
    describeView();
    stale.textContent = "";
  } catch (error) {
    stale.textContent = `The server does not answer (${error.message}); the charts are asked for again automatically.`;
    setTimeout(() => load(some), RETRY_MS);
  }
}
