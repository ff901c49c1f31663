// Jobs side by side: their curves and gaps on one chart each.
import { followCharts } from "./chart_loading.js";
import { uPlot } from "./chart_parts.js";
import { bindControls } from "./controls.js";
import { JobsGapChart, JobsSeriesChart } from "./jobs_charts.js";

const RETRY_MS = 5000;

uPlot().catch(() => {}); // loads while the numbers do; the first chart reports a missing library
const charts = document.querySelector(".job-charts");
const stale = document.getElementById("stale");
const tokensAStep = Number(charts.dataset.tokens);
const gaps = [...charts.querySelectorAll("figure[data-gaps]")].map((figure) => new JobsGapChart(figure, null, tokensAStep));
const series = [...charts.querySelectorAll("figure[data-column]")].map((figure) => new JobsSeriesChart(figure, null, tokensAStep));
const describeView = bindControls(() => gaps[0].window);

followCharts([...gaps, ...series], load);

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
