// The job page, live: one EventSource; what it says is fetched again, at most once a second.
import { GapChart } from "./gap_chart.js";
import { refresh } from "./refresh.js";

const article = document.querySelector("[data-job]");
const connection = document.getElementById("connection");
const jobId = article.dataset.job;
const ENDED = new Set(["concluded", "failed", "cancelled"]);
const PERIOD_MS = 1000;

const charts = [...document.querySelectorAll("figure[data-candidate]")].map((figure) => new GapChart(figure, jobId));

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
      const [fresh] = await Promise.all([refresh(), ...charts.map((chart) => chart.load())]);
      article.dataset.status = fresh.querySelector("[data-job]").dataset.status;
    } catch (error) {
      say(`The server does not answer (${error.message}); what is shown may be old.`, true);
    }
    await new Promise((resolve) => setTimeout(resolve, PERIOD_MS));
  }
  busy = false;
}

function say(text, lost = false) {
  connection.textContent = text;
  connection.classList.toggle("lost", lost);
}

function follow() {
  const source = new EventSource(`/api/v1/jobs/${jobId}/events`);
  source.addEventListener("open", () => say("live"));
  source.addEventListener("error", () => {
    const at = new Date().toLocaleTimeString();
    say(`connection lost at ${at}; the runs go on, and this page connects again by itself`, true);
  });
  for (const kind of ["metric", "run", "verdict"]) source.addEventListener(kind, update);
  source.addEventListener("status", async (event) => {
    if (ENDED.has(JSON.parse(event.data).status)) {
      source.close();
      say("");
    }
    await update();
  });
}

await Promise.all(charts.map((chart) => chart.load()));
if (!ENDED.has(article.dataset.status)) follow();
