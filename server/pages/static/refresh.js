// Live update of pages without an event stream: the page is fetched again and its live parts are replaced.

class SessionEndedError extends Error {}

/** An error as the beginning of a sentence. */
export const trouble = (error) =>
  error instanceof SessionEndedError ? "Your session has ended: reload this page to log in again" : `The server does not answer (${error.message})`;

/** Fetch this page again and replace every element that carries `data-live` by its newer self; resolves to the new document. */
export async function refresh() {
  const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
  // The login page also returns 200, but is not a newer version of this page.
  if (answer.redirected && new URL(answer.url).pathname === "/login") throw new SessionEndedError();
  if (!answer.ok) throw new Error(`the server returned ${answer.status}`);
  const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
  for (const part of document.querySelectorAll("[data-live]")) {
    const newer = fresh.querySelector(`[data-live="${part.dataset.live}"]`);
    if (!newer) continue;
    keepOpen(part, newer);
    if (newer.innerHTML !== part.innerHTML) replace(part, newer.innerHTML);
  }
  // What did not exist before appears, and what no longer has a meaning goes.
  for (const part of document.querySelectorAll("[data-there]")) {
    const newer = fresh.querySelector(`[data-there="${part.dataset.there}"]`);
    if (newer) part.hidden = newer.hidden;
  }
  return fresh;
}

/** Unfolded details stay unfolded and do not count as a difference. Those with an id are found by it, wherever they are now. */
function keepOpen(part, newer) {
  // What was fetched when it was opened stays too (parts.js).
  for (const filled of part.querySelectorAll("details[data-filled]")) {
    const same = newer.querySelector(`details[data-part="${CSS.escape(filled.dataset.part)}"]`);
    if (!same) continue;
    same.dataset.filled = "";
    same.replaceChildren(same.querySelector("summary"), ...[...filled.children].slice(1).map((child) => child.cloneNode(true)));
  }
  const folded = newer.querySelectorAll("details");
  part.querySelectorAll("details").forEach((details, at) => {
    const same = details.id ? newer.querySelector(`#${CSS.escape(details.id)}`) : folded[at];
    same?.toggleAttribute("open", details.open);
  });
}

/** Put new content in place; the link or region that had the focus keeps it, what was ticked stays so, and a table stays where it was scrolled to. */
function replace(part, html) {
  const focused = part.contains(document.activeElement) ? document.activeElement : null;
  const name = focused && ["href", "aria-label"].find((attribute) => focused.hasAttribute(attribute));
  const value = name && focused.getAttribute(name);
  const summary = [...part.querySelectorAll("summary")].indexOf(focused);
  const scrolled = [...part.querySelectorAll(".scroll")].map((table) => table.scrollLeft);
  const ticked = [...part.querySelectorAll("input:checked")].map((box) => box.value);
  part.innerHTML = html;
  part.querySelectorAll("input[type=checkbox]").forEach((box) => { box.checked = ticked.includes(box.value); });
  part.querySelectorAll(".scroll").forEach((table, at) => { table.scrollLeft = scrolled[at] ?? 0; });
  part.querySelectorAll("summary")[summary]?.focus();
  if (name) part.querySelector(`[${name}="${CSS.escape(value)}"]`)?.focus();
}

const PERIOD_MS = 5000;
const stale = document.getElementById("stale");
let seenAt = new Date();

/** Refresh; if the server does not respond, show how old the page is. */
async function attempt() {
  if (document.visibilityState !== "visible") return;
  try {
    await refresh();
    seenAt = new Date();
    stale.textContent = "";
  } catch (error) {
    stale.textContent = `${trouble(error)}; the page shows the state at ${seenAt.toLocaleTimeString()} and retries automatically.`;
  }
}

if (stale) setInterval(attempt, PERIOD_MS);
