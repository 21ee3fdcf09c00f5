/* Single keys. Elements name theirs with data-key="e", sections with data-go="o"; in fields, and when the user
   switched them off, keys write letters and nothing else. */

const FIELDS = "input:not([type=radio], [type=checkbox], [type=button], [type=submit]), textarea, select, [contenteditable]";
const PATIENCE = 1500;
let went = 0;

const isOff = () => document.documentElement.dataset.keys === "off";
const isSeen = (one) => one.checkVisibility?.() ?? one.offsetParent !== null;

/* The rows of the main table, each by what opens it. */
function rows() {
  const table = document.querySelector("main table[data-rows]") ?? document.querySelector("main table:has(tbody a)");
  return table ? [...table.querySelectorAll("tbody tr")].filter(isSeen) : [];
}

const handle = (row) => row.querySelector("th a[href], td a[href], button, input:not([type=checkbox])") ?? row;
const present = (all) => all.findIndex((row) => row.contains(document.activeElement));

function go(step) {
  const all = rows();
  if (!all.length) return;
  const at = present(all);
  const to = at < 0 ? (step > 0 ? 0 : all.length - 1) : Math.min(all.length - 1, Math.max(0, at + step));
  const target = handle(all[to]);
  if (target === all[to]) target.tabIndex = -1;
  target.focus();
  all[to].scrollIntoView({ block: "nearest" });
}

function select() {
  const all = rows();
  const box = all[present(all)]?.querySelector("input[type=checkbox], input[type=radio]");
  box?.click();
}

function press(key) {
  const target = [...document.querySelectorAll(`[data-key="${CSS.escape(key)}"]`)].find(isSeen);
  if (!target) return false;
  target.focus();
  if (target.ariaDisabled !== "true") target.click();
  return true;
}

function help() {
  const dialog = document.getElementById("key-list");
  if (dialog && !dialog.open) dialog.showModal();
}

const KEYS = {
  "/": () => document.getElementById("search")?.focus(),
  j: () => go(1),
  k: () => go(-1),
  x: select,
  t: () => document.dispatchEvent(new Event("charts:toggle")),
  ".": () => document.dispatchEvent(new CustomEvent("copy:text", { detail: location.href })),
  "?": help,
  g: () => { went = Date.now(); },
};

function section(key) {
  const link = document.querySelector(`.rail [data-go="${CSS.escape(key)}"]`);
  link?.click();
  return link !== null;
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing || isOff()) return;
  if (event.target.closest?.(FIELDS) || document.querySelector("dialog[open]")) return;
  const follows = Date.now() - went < PATIENCE;
  went = 0;
  if (follows && section(event.key)) {
    event.preventDefault();
  } else if (KEYS[event.key]) {
    event.preventDefault();
    KEYS[event.key]();
  } else if ("[]eyd".includes(event.key) && press(event.key)) {
    event.preventDefault();
  }
});

/* The link in the footer opens the list here, where there is one. */
document.addEventListener("click", (event) => {
  if (!event.target.closest?.('[data-key="?"]') || event.ctrlKey || event.metaKey) return;
  event.preventDefault();
  help();
});

/* Held for a moment, Shift shows the letters beside what they press. */
let holding = 0;

document.addEventListener("keydown", (event) => {
  clearTimeout(holding);
  if (event.key === "Shift" && !isOff() && !event.target.closest?.(FIELDS)) {
    holding = setTimeout(() => { document.documentElement.dataset.hints = ""; }, 400);
  } else {
    delete document.documentElement.dataset.hints;
  }
});
for (const name of ["keyup", "blur"]) {
  window.addEventListener(name, () => {
    clearTimeout(holding);
    delete document.documentElement.dataset.hints;
  });
}

/* What a live answer removes under the focus is found again in the new rows. */
let lost = -1;

document.addEventListener("htmx:beforeSwap", ({ detail: { boosted } }) => { lost = boosted ? -1 : present(rows()); });
document.addEventListener("htmx:afterSwap", () => {
  const row = rows()[lost];
  if (row && document.activeElement === document.body) handle(row).focus({ preventScroll: true });
});

/* Selected rows are counted; the box of the heading selects the page, a click with Shift a range. */
let anchor = null;

document.addEventListener("click", (event) => {
  const box = event.target.closest?.("#selection input[type=checkbox]");
  if (!box) return;
  const form = box.form;
  const boxes = [...form.querySelectorAll("input[name=name]")];
  if ("selectPage" in box.dataset) boxes.forEach((one) => { one.checked = box.checked; });
  if (event.shiftKey && boxes.includes(box) && boxes.includes(anchor)) {
    const [from, to] = [boxes.indexOf(anchor), boxes.indexOf(box)].sort((a, b) => a - b);
    boxes.slice(from, to + 1).forEach((one) => { one.checked = box.checked; });
  }
  anchor = boxes.includes(box) ? box : null;
  const all = form.querySelector("input[name=all]");
  const count = all.checked ? Number(form.dataset.count) : boxes.filter((one) => one.checked).length;
  form.querySelector("[data-selected]").textContent = `${count.toLocaleString("en-US")} selected`;
});
