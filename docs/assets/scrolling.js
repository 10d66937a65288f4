"use strict";
// Boxes that scroll sideways are reached by the keyboard. The theme makes some of them after the page has loaded.
function reachBoxes() {
  for (const box of document.querySelectorAll(".md-typeset__scrollwrap, .shown, p:has(> img)")) {
    if (box.scrollWidth <= box.clientWidth || box.tabIndex === 0) continue;
    box.tabIndex = 0;
    box.setAttribute("role", "region");
    box.setAttribute("aria-label", "This box scrolls sideways");
  }
}
new MutationObserver(reachBoxes).observe(document.documentElement, { childList: true, subtree: true });
window.addEventListener("load", reachBoxes);
window.addEventListener("resize", reachBoxes);
