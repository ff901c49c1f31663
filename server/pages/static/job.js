// The job page, live: one EventSource; what it says is fetched again, at most once a second.
import { GapChart } from "./gap_chart.js";
import { refresh } from "./refresh.js";

const article = document.querySelector("[data-job]");
const connection = document.getElementById("connection");
const jobId = article.dataset.job;
const ENDED = new Set(["concluded", "failed", "cancelled"]);
const PERIOD_MS = 1000;
const RETRY_MS = 5000;

const charts = [...document.querySelectorAll("figure[data-candidate]")].map((figure) => new GapChart(figure, jobId));

let source = null;
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
    try {
      const fresh = await refresh();
      article.dataset.status = fresh.querySelector("[data-job]").dataset.status;
      await Promise.all(charts.map((chart) => chart.load(article.dataset.status)));
      sayState();
    } catch (error) {
      say(`The server does not answer (${error.message}); what is shown may be old.`, true);
      setTimeout(update, RETRY_MS);
    }
    await new Promise((resolve) => setTimeout(resolve, PERIOD_MS));
  }
  busy = false;
}

function say(text, lost = false) {
  connection.textContent = text;
  connection.classList.toggle("lost", lost);
}

/** What a reader must know of the connection: live, lost, or (for a job that has ended) nothing. */
function sayState() {
  if (source === null) say("");
  else if (source.readyState === EventSource.OPEN) say("live");
}

function follow() {
  source = new EventSource(`/api/v1/jobs/${jobId}/events?after=${lastEvent}`);
  source.addEventListener("open", () => say("live"));
  source.addEventListener("error", () => {
    const at = new Date().toLocaleTimeString();
    say(`connection lost at ${at}; the runs go on, and this page connects again by itself`, true);
    // The browser tries again after a lost connection, but gives up for good after an HTTP error.
    if (source?.readyState === EventSource.CLOSED) setTimeout(follow, RETRY_MS);
  });
  for (const kind of ["metric", "run", "verdict", "status", "hopeless"]) {
    source.addEventListener(kind, (event) => {
      lastEvent = event.lastEventId || lastEvent;
      if (kind === "status" && ENDED.has(JSON.parse(event.data).status)) {
        source.close();
        source = null;
      }
      update();
    });
  }
}

if (!ENDED.has(article.dataset.status)) follow();
await update();
