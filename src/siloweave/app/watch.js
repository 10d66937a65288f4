"use strict";
const part = document.getElementById("now");
const gone = document.getElementById("gone");
const pause = 1000 * Number(part.dataset.every);

async function refresh() {
  try {
    const answer = await fetch("now", { cache: "no-store" });
    if (!answer.ok) throw new Error(answer.statusText);
    const text = await answer.text();
    // The table scrolls by keyboard on a narrow screen: it keeps the focus, and its place.
    const table = part.querySelector(".scroll");
    const hadFocus = table !== null && table === document.activeElement;
    const place = table === null ? 0 : table.scrollLeft;
    part.innerHTML = text;
    const after = part.querySelector(".scroll");
    if (after !== null) {
      after.scrollLeft = place;
      if (hadFocus) after.focus({ preventScroll: true });
    }
    gone.hidden = true;
  } catch {
    gone.hidden = false;
  }
  if (part.querySelector("[data-ended]") === null) setTimeout(refresh, pause);
}

if (part.querySelector("[data-ended]") === null) setTimeout(refresh, pause);
