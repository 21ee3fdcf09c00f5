/* The page of a decision: keys step through the replay, and a click copies the current address. */
document.addEventListener("keydown", (event) => {
  const typing = event.target.closest?.("input, textarea, select, [contenteditable]");
  if (event.defaultPrevented || typing || event.ctrlKey || event.metaKey || event.altKey) return;
  const link = [...document.querySelectorAll("[data-key]")].find((one) => one.dataset.key === event.key);
  if (link) {
    event.preventDefault();
    link.click();
  }
});

document.addEventListener("click", (event) => {
  const link = event.target.closest?.("a[data-copy]");
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  document.dispatchEvent(new CustomEvent("copy:text", { detail: location.href }));
});
