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
document.addEventListener("visibilitychange", tick);

/* "/" goes to the search box, unless somebody is typing. */
document.addEventListener("keydown", (event) => {
  const typing = event.target.closest("input, textarea, select, [contenteditable]");
  if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey && !event.altKey) {
    event.preventDefault();
    document.getElementById("search")?.focus();
  }
});
