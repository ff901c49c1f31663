// Forms of the job's page: what the server refuses is said beside the field, and what was typed stays. Without a script it is a page.

/** The error of a form, below the field that it names, else below the last one. */
function refuse(form, detail) {
  form.querySelector("[role=alert]")?.remove();
  const fields = [...form.querySelectorAll("input:not([type=hidden]), textarea, select")];
  const field = fields.find((one) => new RegExp(`\\b${one.name}\\b`).test(detail)) ?? fields.at(-1);
  const said = Object.assign(document.createElement("p"), { className: "message", textContent: `${detail[0].toUpperCase()}${detail.slice(1)}.` });
  said.setAttribute("role", "alert");
  (field?.closest("label") ?? form.lastElementChild).after(said);
  field?.setAttribute("aria-invalid", "true");
  field?.focus();
}

document.addEventListener("submit", async (event) => {
  const form = event.target;
  if (form.method !== "post" || !form.matches(".remarks form, .acts form")) return;
  event.preventDefault();
  const button = form.querySelector("button:not([type=button])");
  if (button) button.disabled = true; // a second press would send it twice
  try {
    const answer = await fetch(form.action, { method: "POST", body: new URLSearchParams(new FormData(form)), headers: { Accept: "application/json" } });
    if (answer.ok) {
      const { pathname, hash } = new URL(answer.url);
      if (pathname === location.pathname) {
        history.replaceState(null, "", `${pathname}${location.search}${hash}`);
        location.reload();
      } else {
        location.assign(answer.url);
      }
      return;
    }
    const problem = await answer.json().catch(() => ({}));
    refuse(form, problem.detail ?? `the server returned ${answer.status}`);
  } catch (error) {
    refuse(form, `the server does not answer (${error.message}); try again`);
  }
  if (button) button.disabled = false;
});
