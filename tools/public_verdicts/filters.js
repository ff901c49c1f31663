// The filters of the exported list: rows are hidden here, nothing is asked of a server. The address has the choice.
const form = document.querySelector("form.controls");
const rows = [...document.querySelectorAll(".public tbody tr")];
const count = form.querySelector("[role=status]");
const none = document.createElement("p");
none.className = "message";
none.textContent = "No answer has this recipe at this scale.";
none.hidden = true;
document.querySelector(".public").after(none);

/** Show the rows that the two fields choose. */
function choose() {
  const { recipe, scale } = form.elements;
  for (const row of rows) {
    row.hidden = (recipe.value && recipe.value !== row.dataset.recipe) || (scale.value && scale.value !== row.dataset.scale);
  }
  const shown = rows.filter((row) => !row.hidden).length;
  count.textContent = `${shown} of ${rows.length} answers`;
  none.hidden = shown > 0;
}

const chosen = new URLSearchParams(location.search);
for (const name of ["recipe", "scale"]) {
  const field = form.elements[name];
  field.value = chosen.get(name) ?? "";
  if (field.selectedIndex < 0) field.value = "";
}
form.querySelector("button").hidden = true; // without a script the list is whole
form.hidden = false;
form.addEventListener("change", () => {
  choose();
  const query = new URLSearchParams([...new FormData(form)].filter(([, value]) => value)).toString();
  if (location.protocol !== "file:") history.replaceState(null, "", query ? `?${query}` : location.pathname);
});
choose();
