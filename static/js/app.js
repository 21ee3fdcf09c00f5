/* The timer of a page sends `tick` to the body: every 2 s, every 4 s if all fragments have data-active="false", never
   in a hidden tab or while a menu of a row is open, which the response would close, and immediately when the tab is shown
   again: a failure is noticed within 5 s and visible within 10 s. A fragment that can still change listens to it; the
   last response has no such trigger, so that polling ends. */
const LIVE = '[hx-trigger~="tick"]';
const BUSY = 2000;
const CALM = 4000;
let next = Date.now() + BUSY;

function tick() {
  if (document.querySelector(".row-menu:popover-open")) return;
  const live = [...document.querySelectorAll(LIVE)];
  const calm = live.every((one) => one.dataset.active === "false");
  next = Date.now() + (calm ? CALM : BUSY);
  if (!document.hidden && live.length) {
    missed += 1;
    judge();
    document.body.dispatchEvent(new Event("tick"));
  }
}

setInterval(() => { if (Date.now() >= next) tick(); }, 500);
document.addEventListener("visibilitychange", () => { if (!document.hidden) tick(); });
window.addEventListener("online", tick);
/* What the timer sends is no activity: a session ends although its tab is open. */
document.addEventListener("htmx:configRequest", ({ detail: { triggeringEvent, headers, elt, parameters } }) => {
  if (isPoll({ triggeringEvent })) headers["FleetUI-Poll"] = "1";
  if (elt.value?.length > elt.dataset.most) delete parameters[elt.name];
});

/* Nothing is replaced while it is pressed, and by a poll while the pointer moves: the click would be lost or hit
   something else. At most 5 s, for a pointer that never rests. */
const isPoll = ({ triggeringEvent }) => triggeringEvent?.type === "tick";
let moved = 0;

document.addEventListener("pointermove", ({ target }) => { if (target.closest?.("main")) moved = Date.now(); });
document.addEventListener("htmx:beforeSend", ({ detail: { xhr, requestConfig } }) => {
  const take = xhr.onload;
  let waits = 100;
  xhr.onload = function answer() {
    const isMoving = isPoll(requestConfig) && Date.now() - moved < 1000;
    if ((isMoving || document.querySelector("main :active")) && waits--) setTimeout(answer, 50);
    else take();
  };
});

/* "Updated": the time of the last response. Without a dot on a page that is not polled. Hollow after two ticks without a
   response, "Reconnecting" after five; until the next response buttons of class `danger` are disabled, because the page
   may be outdated. The state of a hub is polled on pages that are not. */
const marker = () => document.getElementById("as-of");
let missed = 0;

function judge() {
  const place = marker();
  const answered = document.querySelector(`${LIVE}:not(#hub-line)`) ? "fresh" : "still";
  const state = missed > 5 ? "lost" : missed > 2 ? "late" : answered;
  if (!place || place.dataset.state === state) return;
  place.dataset.state = state;
  place.querySelector(".reconnecting").textContent = state === "lost" ? "Reconnecting…" : "";
  document.querySelectorAll("main .button.danger, main [data-risky]").forEach(state === "lost" ? hold : release);
}

const DISABLED_REASON = "Disabled while reconnecting: the data on this page may be outdated.";

function hold(button) {
  if (button.ariaDisabled === "true") return;
  button.dataset.stale = button.title;
  button.ariaDisabled = "true";
  button.title = DISABLED_REASON;
}

function release(button) {
  if (!("stale" in button.dataset)) return;
  button.ariaDisabled = null;
  button.title = button.dataset.stale;
  delete button.dataset.stale;
}

document.addEventListener("click", (event) => {
  if (!event.target.closest?.("[data-stale]")) return;
  event.preventDefault();
  event.stopImmediatePropagation();
  say(DISABLED_REASON);
}, true);

function showUpdated(at) {
  const shown = marker()?.querySelector("[data-time]");
  if (!shown) return;
  shown.textContent = stamp(at, "H:i:s");
  shown.title = `The last answer of the server for this page: ${stamp(at, "Y-m-d H:i:s")} ${ZONE}`;
}

document.addEventListener("htmx:afterRequest", (event) => {
  const answer = event.detail.xhr;
  if (!answer || answer.status < 200 || answer.status >= 500) return;
  missed = 0;
  const moment = new Date(answer.getResponseHeader("Date") || Date.now());
  if (!event.detail.pathInfo.requestPath.endsWith("/hub-line/")) showUpdated(moment);
  judge();
});

/* As the template filter `age`: "3s", "12m". */
function age(moment) {
  const seconds = Math.max(0, Math.floor(Date.now() / 1000 - moment));
  const [size, unit] = [[86400, "d"], [3600, "h"], [60, "m"]].find(([least]) => seconds >= least) ?? [1, "s"];
  return `${Math.floor(seconds / size)}${unit}`;
}

/* As `duration_text`: "45s", "6m12s", "1h2m". */
function duration(total) {
  const seconds = Math.max(0, Math.floor(total));
  const units = [[86400, "d"], [3600, "h"], [60, "m"], [1, "s"]];
  const first = units.findIndex(([size]) => seconds >= size);
  if (first < 0) return "0s";
  let rest = seconds;
  let words = "";
  for (const [size, unit] of units.slice(first, first + 2)) {
    const number = Math.floor(rest / size);
    rest %= size;
    if (number) words += `${number}${unit}`;
  }
  return words;
}

/* Durations (since or until a moment) and ages are kept current between two responses. */
function clocks() {
  for (const one of document.hidden ? [] : document.querySelectorAll("[data-age]")) {
    const words = age(one.dataset.age);
    if (one.textContent !== words) one.textContent = words;
  }
  for (const one of document.hidden ? [] : document.querySelectorAll("[data-since], [data-until]")) {
    const { since, until, left } = one.dataset;
    const passed = until ? Date.parse(until) - Date.now() : Date.now() - Date.parse(since);
    const words = duration(passed / 1000);
    one.textContent = left === undefined ? words : passed < 1000 ? "over, continues in a moment" : `${words} left`;
  }
}

/* In the time zone of the browser; without JavaScript in UTC. */
const ZONE = Intl.DateTimeFormat().resolvedOptions().timeZone;

function stamp(at, pattern) {
  const parts = { Y: at.getFullYear(), m: at.getMonth() + 1, d: at.getDate(), H: at.getHours(), i: at.getMinutes(), s: at.getSeconds() };
  return pattern.replace(/[YmdHis]/g, (letter) => String(parts[letter]).padStart(2, "0"));
}

function localize() {
  for (const one of document.querySelectorAll("time:is([data-age], [data-moment], [data-since], [data-until]):not([data-local])")) {
    const at = new Date(one.dateTime);
    one.title = `${stamp(at, "Y-m-d H:i:s")} ${ZONE}`;
    if (one.dataset.moment) one.textContent = stamp(at, one.dataset.moment);
    one.dataset.local = "";
  }
}

localize();
if (marker()) showUpdated(new Date(marker().querySelector("[data-time]").dataset.time));
judge();
document.addEventListener("htmx:afterSettle", () => { localize(); judge(); });
setInterval(clocks, 1000);

/* Show a message in the corner for 4 s; a live region, so screen readers announce it. */
let silence = 0;

function say(words) {
  const said = document.getElementById("said");
  if (!said) return;
  said.textContent = words;
  clearTimeout(silence);
  silence = setTimeout(() => { said.textContent = ""; }, 4000);
}

async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    say("Copied");
  } catch {
    window.prompt("Copy:", text);
  }
}

/* Other modules use events: an import would load this file a second time, under its unhashed name. */
document.addEventListener("copy:text", (event) => { copy(event.detail); });
document.addEventListener("say:text", (event) => { say(event.detail); });
document.addEventListener("click", (event) => {
  const button = event.target.closest?.("button[data-copy]");
  if (button) copy(button.parentElement.querySelector("code").textContent);
});

function showCopyButtons() {
  document.querySelectorAll("button[data-copy]").forEach((button) => { button.hidden = false; });
}

showCopyButtons();
document.addEventListener("htmx:afterSettle", showCopyButtons);

/* A preference takes effect immediately; the cookie keeps it for the next page. */
document.addEventListener("submit", async (event) => {
  const form = event.target.closest("[data-prefer]");
  const chosen = event.submitter?.value;
  if (!form || !chosen) return;
  event.preventDefault();
  const name = form.dataset.prefer;
  const body = new FormData(form, event.submitter);
  document.documentElement.dataset[name] = chosen;
  for (const button of document.querySelectorAll(`[data-prefer="${name}"] button`)) {
    button.ariaPressed = String(button.value === chosen);
  }
  for (const words of document.querySelectorAll(`[data-prefer="${name}"] [data-chosen]`)) words.textContent = chosen === "on" ? "On" : "Off";
  if (name === "theme") document.dispatchEvent(new Event("theme:change"));
  const answer = await fetch(form.action, { method: "POST", body, redirect: "manual" }).catch(() => null);
  if (!answer || answer.status >= 400) say("Preference not saved.");
});

/* What a user opened, closed or has the focus in stays so when a response replaces it: each <details> with an id, but
   not on another page, where an id may have another meaning. What is under the pointer, or has the focus of the keyboard,
   stays in its place, too: the page is scrolled after a poll, and gets room where that is not enough. */
const CONTROL = "main :is(a, button, input, select, summary, textarea)";
const sections = new Map();
let kept = {};

/* Returns what finds a control again: the one at its place among those of this name and address. */
function finder(one) {
  const alike = () => [...document.querySelectorAll(CONTROL)]
    .filter(({ id, href, name }) => id === one.id && href === one.href && name === one.name);
  const place = alike().indexOf(one);
  return () => alike()[place];
}

document.addEventListener("htmx:beforeSwap", ({ detail: { boosted, requestConfig, xhr } }) => {
  sections.clear();
  kept = {};
  if (boosted) return;
  for (const one of document.querySelectorAll("details[id]")) sections.set(one.id, one.open);
  kept = { focused: finder(document.activeElement) };
  if (!isPoll(requestConfig)) return;
  const aimed = document.querySelector(`${CONTROL}:hover`) ?? document.querySelector(`${CONTROL}:focus-visible`);
  Object.assign(kept, { xhr, aimed: aimed && finder(aimed), top: aimed?.getBoundingClientRect().top });
});
document.addEventListener("htmx:afterSwap", ({ detail: { xhr } }) => {
  for (const one of document.querySelectorAll("details[id]")) one.open = sections.get(one.id) ?? one.open;
  if (document.activeElement === document.body) kept.focused?.()?.focus({ preventScroll: true });
  if (!xhr || kept.xhr !== xhr) return;
  const above = document.getElementById("main").style;
  const below = document.querySelector(".shell").style;
  const one = kept.aimed?.();
  const shift = () => Math.round(one?.getBoundingClientRect().top - kept.top) || 0;
  above.marginTop = below.marginBottom = "";
  scrollBy(0, shift());
  if (shift() < 0) above.marginTop = `${-shift()}px`;
  else below.marginBottom = `${shift()}px`;
  scrollBy(0, shift());
});

/* A menu that would open beyond an edge of the window is moved into it. */
document.addEventListener("toggle", ({ target: menu }) => {
  if (!menu.matches?.("details.menu[open]")) return;
  const panel = menu.lastElementChild;
  panel.style.translate = "";
  const { left, right } = panel.getBoundingClientRect();
  const over = Math.min(left, Math.max(0, right - document.documentElement.clientWidth + 8));
  if (over) panel.style.translate = `${-over}px`;
}, true);

/* A menu closes when the focus or a click is outside of it, and with Escape. */
function close(event) {
  for (const menu of document.querySelectorAll("details.menu[open]")) {
    if (event.key === "Escape") menu.querySelector("summary").focus();
    if (event.key === "Escape" || (event.target instanceof Node && !menu.contains(event.target))) menu.open = false;
  }
}

document.addEventListener("click", close);
document.addEventListener("focusin", close);
document.addEventListener("keydown", (event) => { if (event.key === "Escape") close(event); });

/* The panel beside the fleet map is not modal: Escape or a click elsewhere closes it, and the focus returns. */
document.addEventListener("htmx:afterSwap", (event) => {
  const panel = event.detail.target;
  if (!panel?.matches?.(".side-panel")) return;
  panel.showPopover();
  panel.querySelector("[autofocus]").focus();
});

/* The links of the map are one stop for the Tab key; arrow keys, Home and End move among them. */
function oneStop() {
  for (const map of document.querySelectorAll("[data-one-stop]")) {
    const links = [...map.querySelectorAll("a")];
    const current = links.find((one) => one === document.activeElement) ?? links.find((one) => one.tabIndex === 0) ?? links[0];
    for (const link of links) link.tabIndex = link === current ? 0 : -1;
  }
}

const MOVES = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1, Home: -Infinity, End: Infinity };

document.addEventListener("keydown", (event) => {
  const map = event.target.closest?.("[data-one-stop]");
  const step = MOVES[event.key];
  if (!map || !step || event.ctrlKey || event.metaKey || event.altKey) return;
  const links = [...map.querySelectorAll("a")];
  const next = Math.max(0, Math.min(links.length - 1, links.indexOf(event.target) + step));
  event.preventDefault();
  links[next].focus();
  oneStop();
});

oneStop();
document.addEventListener("htmx:afterSettle", oneStop);
