// Parts of the page that are fetched when they are opened: a `details` names where its part is.

const OPENED = "details[data-part]";

/** Put the part of a `details` below its summary; what is there stays where the server does not answer, with the reason. */
async function fill(details) {
  const { part } = details.dataset;
  const summary = details.querySelector("summary");
  try {
    const answer = await fetch(part, { headers: { Accept: "text/html" } });
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html").getElementById("part");
    if (!answer.ok || !fresh) throw new Error(`the server returned ${answer.status}`);
    if (details.dataset.part !== part) return;
    details.replaceChildren(summary, ...fresh.children);
    details.dataset.filled = "";
  } catch (error) {
    if ("filled" in details.dataset) return;
    details.querySelector(".message")?.remove();
    details.append(Object.assign(document.createElement("p"), { className: "message", role: "status", textContent: `It could not be loaded (${error.message}); close and open it to retry.` }));
  }
}

/** Fetch again what stands open: the runs of a job that trains go on. */
export const refillOpen = () => Promise.all([...document.querySelectorAll(`${OPENED}[open][data-filled]`)].map(fill));

// A toggle does not bubble.
document.addEventListener("toggle", ({ target }) => {
  if (target.matches?.(OPENED) && target.open && !("filled" in target.dataset)) fill(target);
}, { capture: true });
for (const details of document.querySelectorAll(`${OPENED}[open]`)) fill(details);
