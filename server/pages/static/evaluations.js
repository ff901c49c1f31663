// The page of held-out losses: the address says which candidate is chosen.
import { copyLinks } from "./copy_link.js";
import "./forms.js";

document.addEventListener("parity:chosen", ({ detail }) => {
  const address = new URL(location.href);
  if (detail) address.searchParams.set("candidate", detail);
  else address.searchParams.delete("candidate");
  history.replaceState(null, "", address);
});
copyLinks(document);
