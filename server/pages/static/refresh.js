// Pages without a stream of their own: the server's own rendering is fetched again and its live parts are put in place.

class SessionEndedError extends Error {}

/** What a reader must know of an error, as the begin of a sentence. */
export const trouble = (error) =>
  error instanceof SessionEndedError ? "Your session has ended: reload this page to log in again" : `The server does not answer (${error.message})`;

/** Fetch this page again and replace every element that carries `data-live` by its newer self; resolves to the new document. */
export async function refresh() {
  const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
  // The login is no newer self of this page, though it answers with 200.
  if (answer.redirected && new URL(answer.url).pathname === "/login") throw new SessionEndedError();
  if (!answer.ok) throw new Error(`the server answered ${answer.status}`);
  const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
  for (const part of document.querySelectorAll("[data-live]")) {
    const newer = fresh.querySelector(`[data-live="${part.dataset.live}"]`);
    if (!newer) continue;
    keepOpen(part, newer);
    if (newer.innerHTML !== part.innerHTML) replace(part, newer.innerHTML);
  }
  return fresh;
}

/** What the reader has unfolded stays so, and is no difference. */
function keepOpen(part, newer) {
  const folded = newer.querySelectorAll("details");
  part.querySelectorAll("details").forEach((details, at) => folded[at]?.toggleAttribute("open", details.open));
}

/** Put new content in place; the link or region that had the focus keeps it, and a table that was scrolled sideways stays there. */
function replace(part, html) {
  const focused = part.contains(document.activeElement) ? document.activeElement : null;
  const name = focused && ["href", "aria-label"].find((attribute) => focused.hasAttribute(attribute));
  const value = name && focused.getAttribute(name);
  const summary = [...part.querySelectorAll("summary")].indexOf(focused);
  const scrolled = [...part.querySelectorAll(".scroll")].map((table) => table.scrollLeft);
  part.innerHTML = html;
  part.querySelectorAll(".scroll").forEach((table, at) => { table.scrollLeft = scrolled[at] ?? 0; });
  part.querySelectorAll("summary")[summary]?.focus();
  if (name) part.querySelector(`[${name}="${CSS.escape(value)}"]`)?.focus();
}

const PERIOD_MS = 5000;
const stale = document.getElementById("stale");
let seenAt = new Date();

/** Refresh; where the server does not answer, say how old the page is. */
async function attempt() {
  if (document.visibilityState !== "visible") return;
  try {
    await refresh();
    seenAt = new Date();
    stale.textContent = "";
  } catch (error) {
    stale.textContent = `${trouble(error)}; this is how it stood at ${seenAt.toLocaleTimeString()}. The page retries by itself.`;
  }
}

if (stale) setInterval(attempt, PERIOD_MS);
