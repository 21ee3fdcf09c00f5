/* Django's filter of choices labels an element without a role, which screen readers leave out. */
addEventListener("load", () => {
  for (const one of document.querySelectorAll(".help-tooltip[aria-label]:not([role])")) one.setAttribute("role", "img");
});
