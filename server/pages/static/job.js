// The job page, live: one EventSource; what its events name is fetched again, at most once a second.
import { followCharts } from "./chart_loading.js";
import { uPlot } from "./chart_parts.js";
import { ColumnChart } from "./column_chart.js";
import { bindControls } from "./controls.js";
import { copyLinks } from "./copy_link.js";
import "./forms.js";
import { GapChart } from "./gap_chart.js";
import { HeatMap } from "./heat_map.js";
import { LogView } from "./log_view.js";
import { refillOpen } from "./parts.js";
import { refresh, trouble } from "./refresh.js";
import { SeriesChart } from "./series_chart.js";
import { view } from "./view.js";

// Loads while the numbers do; the first chart reports a missing library.
uPlot().catch(() => {});
const article = document.querySelector("[data-job]");
const connection = document.getElementById("connection");
const jobId = article.dataset.job;
const tokensAStep = Number(article.dataset.tokens);
const ENDED = new Set(["concluded", "failed", "cancelled"]);
const PERIOD_MS = 1000;
const RETRY_MS = 5000;

const gaps = [...document.querySelectorAll("figure[data-gaps]")].map((figure) => new GapChart(figure, jobId, tokensAStep));
const series = [...document.querySelectorAll("figure[data-column]")].map(
  (figure) => new (figure.matches("[data-menu]") ? ColumnChart : SeriesChart)(figure, jobId, tokensAStep),
);
const heat = [...document.querySelectorAll("figure[data-heat]")].map((figure) => new HeatMap(figure, article));
const log = new LogView(document.querySelector(".log-view"));
const describeView = bindControls(() => gaps[0].window);
const mounted = followCharts([...gaps, ...series, ...heat], (charts) => attempt(() => load(charts)));

// The server sends something at least every 15 s; a stream that is silent for longer is dead, even if the browser shows it as open.
const SILENT_MS = 40_000;
const WATCH_MS = 5000;

let source = null;
let retry;
let heardAt = Date.now();
let lastEvent = article.dataset.lastEvent;
let wanted = false;
let busy = false;

/** Bring everything up to date, at most once a period; a call while one is under way is remembered. */
async function update() {
  wanted = true;
  if (busy) return;
  busy = true;
  while (wanted) {
    wanted = false;
    await attempt(async () => {
      const fresh = await refresh();
      article.dataset.status = fresh.querySelector("[data-job]").dataset.status;
      document.dispatchEvent(new Event("parity:drawn"));
      await Promise.all([load(mounted), log.load(), refillOpen()]);
    });
    await new Promise((resolve) => setTimeout(resolve, PERIOD_MS));
  }
  busy = false;
}

/** Run an update; if the server does not respond, report it and retry everything later. */
async function attempt(work) {
  try {
    await work();
    sayState();
  } catch (error) {
    say(`${trouble(error)}; this page may be out of date.`, true);
    setTimeout(update, RETRY_MS);
  }
}

async function load(chosen) {
  await Promise.all([...chosen].map((chart) => chart.load(article.dataset.status)));
  describeView();
}

/** A candidate that is chosen in the table of forecasts: the address changes, and the page's parts follow. */
article.addEventListener("click", (event) => {
  const link = event.target.closest("a[data-select]");
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey || event.button !== 0) return;
  event.preventDefault();
  const { select } = link.dataset;
  const address = new URL(location.href);
  address.searchParams.set("candidate", select);
  history.replaceState(null, "", address);
  view.candidate = select;
  if (!view.lit.has(select)) view.toggle(select);
  view.set({ candidate: select });
  view.write(); // at once, because the page is fetched from its address
  attempt(async () => {
    await refresh();
    document.dispatchEvent(new Event("parity:drawn"));
  });
});

copyLinks(article, () => view.write());

/** A candidate that is chosen in the screen, or none: the charts and the address follow. */
document.addEventListener("parity:chosen", ({ detail }) => {
  view.candidate = detail;
  if (detail && !view.lit.has(detail)) view.toggle(detail);
  view.set({ candidate: detail });
  view.write();
});

function say(text, lost = false) {
  connection.textContent = text;
  connection.classList.toggle("lost", lost);
}

/** The state of the connection for the reader: live, lost, or nothing if the job has ended. */
function sayState() {
  if (source === null) say("");
  else if (source.readyState === EventSource.OPEN) say("live");
}

function follow() {
  clearTimeout(retry);
  source?.close();
  source = new EventSource(`/api/v1/jobs/${jobId}/events?after=${lastEvent}`);
  source.addEventListener("open", () => {
    heardAt = Date.now();
    say("live");
  });
  source.addEventListener("error", () => {
    if (!connection.classList.contains("lost")) {
      say(`connection lost; the page shows the state at ${clock(heardAt)}. The runs continue, and this page reconnects automatically`, true);
    }
    // The browser reconnects after a lost connection, but not after an HTTP error; then the page is fetched for the reason.
    if (source?.readyState === EventSource.CLOSED) {
      retry = setTimeout(follow, RETRY_MS);
      update();
    }
  });
  source.addEventListener("alive", () => { heardAt = Date.now(); });
  for (const kind of ["metric", "run", "verdict", "status", "forecast", "futile", "will_fail", "reload"]) {
    source.addEventListener(kind, (event) => {
      heardAt = Date.now();
      lastEvent = event.lastEventId || lastEvent;
      if (kind === "status" && ENDED.has(JSON.parse(event.data).status)) {
        source.close();
        source = null;
      }
      update();
    });
  }
}

/** After sleep of a laptop, or behind a proxy, a stream may never end: report the age of the page, and reconnect. */
function watch() {
  if (source === null || document.hidden || Date.now() - heardAt < SILENT_MS) return;
  say(`no data since ${clock(heardAt)}; reloading`, true);
  heardAt = Date.now();
  follow();
  update();
}

/** Browsers share six connections to a server among all tabs, so a hidden page closes its own and reconnects when visible. */
function giveWay() {
  if (source === null) return;
  clearTimeout(retry);
  if (document.hidden) {
    source.close();
  } else {
    say(`state at ${clock(heardAt)}; reconnecting`);
    follow();
    update();
  }
}

const clock = (at) => new Date(at).toLocaleTimeString();

if (!ENDED.has(article.dataset.status)) {
  follow();
  if (document.hidden) giveWay();
  setInterval(watch, WATCH_MS);
  addEventListener("online", () => source && !document.hidden && follow());
  document.addEventListener("visibilitychange", giveWay);
}
// The page is as new as its last event, after which the stream begins.
await attempt(() => Promise.all([load(mounted), log.load()]));
