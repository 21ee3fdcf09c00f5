/* What htmx cannot do for the editor: a text area as tall as its text, marks on fields with errors, a copied link, and
   telling the button that has the focus from one that was pressed. */
function grow() {
  const area = document.getElementById("manifest");
  if (area) {
    area.rows = area.value.split("\n").length + 2;
  }
}

/* Fields are never swapped while somebody types, so a field is marked as invalid by the notes beside it. */
function marks() {
  for (const one of document.querySelectorAll("#editing [aria-describedby^='notes-']")) {
    const notes = document.getElementById(one.getAttribute("aria-describedby"));
    one.toggleAttribute("aria-invalid", false);
    if (notes?.querySelector(".fault")) {
      one.setAttribute("aria-invalid", "true");
    }
  }
}

document.addEventListener("input", (event) => {
  if (event.target.id === "manifest") {
    grow();
  }
});
/* htmx sends along the button that got the focus last: a field left with Tab would press the × beside it. */
document.addEventListener("htmx:configRequest", (event) => {
  const { elt, parameters, triggeringEvent } = event.detail;
  if (elt.id === "editing" && triggeringEvent?.type !== "submit") {
    elt.querySelectorAll("button[name]").forEach((button) => delete parameters[button.name]);
  }
});
document.addEventListener("htmx:afterSettle", () => {
  grow();
  marks();
});
document.addEventListener("click", (event) => {
  const link = event.target.closest("a[data-copy]");
  if (link && navigator.clipboard && !event.ctrlKey && !event.metaKey && !event.shiftKey) {
    event.preventDefault();
    navigator.clipboard.writeText(link.href).then(
      () => (link.textContent = "Link copied"),
      () => (window.location = link.href),
    );
  }
});
grow();
