// Keys of the list: / goes to the field that finds, j and k from job to job, Enter opens (a link does by itself), ? shows the keys.
import "./refresh.js";

const find = document.getElementById("find");
const leads = () => [...document.querySelectorAll(".answers tbody .lead > a")];

/** Go to the next or the previous job from the one that has the focus. */
function go(side) {
  const all = leads();
  const row = document.activeElement.closest(".answers tbody tr");
  const at = all.findIndex((lead) => row?.contains(lead));
  all[at < 0 ? 0 : Math.max(0, Math.min(all.length - 1, at + side))]?.focus();
}

document.addEventListener("keydown", (event) => {
  const { key, target } = event;
  const isTyping = /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName) && target.type !== "checkbox";
  if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
  const help = document.querySelector(".keys");
  if (isTyping) {
    if (key === "Escape") target.blur();
    return;
  }
  if (key === "/") find.select();
  else if (key === "j" || key === "k") go(key === "j" ? 1 : -1);
  else if (key === "?" && help) help.hidden = !help.hidden;
  else return;
  event.preventDefault();
});
if (location.hash === "#find") find.select();
