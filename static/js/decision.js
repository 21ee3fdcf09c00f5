/* The page of a decision: a button plays its steps until a key or a press shows another, and a click copies the current
   address. */
document.addEventListener("keydown", ({ key }) => { if (key === "[" || key === "]") stop(); });

document.addEventListener("click", (event) => {
  const link = event.target.closest?.("a[data-copy]");
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  document.dispatchEvent(new CustomEvent("copy:text", { detail: location.href }));
});

/* Play: the next step each time one was shown for a while; from the last step it starts at the first. */
const PAUSE = 1600;
let timer = 0;

function label() {
  const button = document.querySelector("[data-play]");
  if (!button) return;
  button.hidden = false;
  button.textContent = timer ? "❚❚ Pause" : "▶ Play";
}

function stop() {
  clearTimeout(timer);
  timer = 0;
  label();
}

function advance(link) {
  if (!link) return stop();
  timer = setTimeout(() => advance(document.getElementById("step-later")), PAUSE);
  label();
  return link.click();
}

document.addEventListener("click", (event) => {
  if (!event.target.closest?.("[data-play]")) return;
  if (timer) stop();
  else advance(document.getElementById("step-later") ?? document.querySelector("[data-first]"));
});
/* A link with #play starts at once. */
function start() {
  label();
  if (location.hash !== "#play") return;
  history.replaceState(history.state, "", location.pathname + location.search);
  timer = setTimeout(() => advance(document.getElementById("step-later")), PAUSE);
  label();
}

document.addEventListener("htmx:load", start);
document.addEventListener("htmx:responseError", stop);
start();
