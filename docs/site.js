// The theme wraps wide tables in regions that scroll; the keyboard must reach them.
addEventListener("load", () => {
  for (const region of document.querySelectorAll(".md-typeset__scrollwrap")) region.tabIndex = 0;
});
