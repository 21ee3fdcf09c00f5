/* The one ticker of a page: `tick` on the body while something may still change, and never out of sight.
   A fragment that is not done listens to it; the last answer has no such trigger, so polling ends by itself. */
const LIVE = '[hx-trigger~="tick"]';
const BUSY = 2000;

function tick() {
  if (!document.hidden && document.querySelector(LIVE)) {
    document.body.dispatchEvent(new Event("tick"));
  }
}

setInterval(tick, BUSY);

/* Clocks run on between two answers: "6:12" since, or until, the moment that the element names. */
function clocks() {
  for (const one of document.hidden ? [] : document.querySelectorAll("[data-since], [data-until]")) {
    const { since, until } = one.dataset;
    const passed = until ? Date.parse(until) - Date.now() : Date.now() - Date.parse(since);
    const seconds = Math.max(0, Math.floor(passed / 1000));
    const [hours, minutes] = [Math.floor(seconds / 3600), Math.floor(seconds / 60) % 60];
    const two = (number) => String(number).padStart(2, "0");
    one.textContent = hours ? `${hours}:${two(minutes)}:${two(seconds % 60)}` : `${minutes}:${two(seconds % 60)}`;
  }
}

setInterval(clocks, 1000);
document.addEventListener("visibilitychange", tick);

/* "/" goes to the search box, unless somebody is typing. */
document.addEventListener("keydown", (event) => {
  const typing = event.target.closest("input, textarea, select, [contenteditable]");
  if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey && !event.altKey) {
    event.preventDefault();
    document.getElementById("search")?.focus();
  }
});
