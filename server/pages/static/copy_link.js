// Buttons that copy the address of the page, which has all that is shown.

/** Let the buttons in a part of the page copy the address; `write` brings it up to date first. */
export function copyLinks(root, write = () => {}) {
  root.addEventListener("click", async (event) => {
    const button = event.target.closest("[data-do=copy-link]");
    if (!button) return;
    write();
    try {
      await navigator.clipboard.writeText(location.href);
      button.textContent = "Link copied";
    } catch {
      button.textContent = "Copy it from the address bar"; // a page without TLS may not
    }
  });
  const offer = () => document.querySelectorAll("[data-do=copy-link]").forEach((button) => { button.hidden = false; });
  document.addEventListener("parity:drawn", offer);
  offer();
}
