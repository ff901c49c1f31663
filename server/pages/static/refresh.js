// Pages without a stream of their own: the server's own rendering is fetched again and its live parts are put in place.

/** Fetch this page again and replace every element that carries `data-live` by its newer self; resolves to the new document. */
export async function refresh() {
  const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
  if (!answer.ok) throw new Error(`the server answered ${answer.status}`);
  const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
  for (const part of document.querySelectorAll("[data-live]")) {
    const newer = fresh.querySelector(`[data-live="${part.dataset.live}"]`);
    if (newer && newer.innerHTML !== part.innerHTML) replace(part, newer.innerHTML);
  }
  return fresh;
}

/** Put new content in place; the link or region that had the focus keeps it. */
function replace(part, html) {
  const focused = part.contains(document.activeElement) ? document.activeElement : null;
  const name = focused && ["href", "aria-label"].find((attribute) => focused.hasAttribute(attribute));
  const value = name && focused.getAttribute(name);
  part.innerHTML = html;
  if (name) part.querySelector(`[${name}="${CSS.escape(value)}"]`)?.focus();
}

const PERIOD_MS = 5000;
if (!document.querySelector("[data-job]")) {
  setInterval(() => document.visibilityState === "visible" && refresh().catch(() => {}), PERIOD_MS);
}
