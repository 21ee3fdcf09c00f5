/* What htmx cannot do for the editor: a text area as tall as its text, marks on fields with errors, a copied link, a
   warning before input is lost that is not in the draft yet, and which button was pressed, not only focused. */
let typed = 0;
let saved = 0;
let failed = false;
const late = new Map(); // what was typed since the last request, by the names of the fields

function sayUnsaved() {
  const place = document.getElementById("unsaved");
  if (place) place.textContent = saved === typed ? "" : failed ? "✗ Not saved. The next change tries again." : "Saving…";
}

function grow() {
  const area = document.getElementById("manifest");
  if (area) {
    area.rows = area.value.split("\n").length + 2;
  }
}

/* Fields are never swapped while the user types, so a field is marked as invalid by the notes beside it. */
function marks() {
  for (const one of document.querySelectorAll("#editing [aria-describedby^='notes-']")) {
    const notes = document.getElementById(one.getAttribute("aria-describedby"));
    one.toggleAttribute("aria-invalid", false);
    if (notes?.querySelector(".fault")) {
      one.setAttribute("aria-invalid", "true");
    }
  }
}

/* On a phone the steps are an accordion: the first one is open, the others once they have a change, and all stay as the user left them. */
const folded = new Set(matchMedia("(max-width: 760px)").matches ? ["where", "how"] : []);
const changed = new Set();
function fold() {
  for (const step of document.querySelectorAll("details.step")) {
    const { id } = step.querySelector("h2");
    if (step.querySelector(".was") && !changed.has(id)) {
      changed.add(id);
      folded.delete(id);
    }
    step.open = !folded.has(id);
  }
}
document.addEventListener(
  "toggle",
  ({ target }) => {
    if (target.matches?.("details.step")) folded[target.open ? "delete" : "add"](target.querySelector("h2").id);
  },
  true,
);

/* What is wrong is shown once its field was touched, or the form was submitted ("*"). A new row is not touched yet. */
const touched = new Set();
function touch(name) {
  touched.add(name);
  if (name.endsWith("]")) touched.add(name.slice(0, name.lastIndexOf("[")));
}
/* A name that was not typed is selected by the click that enters it, so that typing replaces it. At the click, not in the next frame: letters that are typed before that frame would be selected too. */
let entered = null;
document.addEventListener("focusin", ({ target }) => {
  entered = target;
});
document.addEventListener("click", ({ target }) => {
  const name = target === entered && target.name === "metadata.name" && target.form?.id === "editing";
  if (name && !target.readOnly && !touched.has(target.name)) target.select();
  entered = null;
});
document.addEventListener("focusout", ({ target }) => {
  const notes = target.form?.id === "editing" && target.isConnected && document.getElementById(`notes-${target.id}`);
  if (!notes || notes.dataset.pending === undefined) return;
  touch(notes.dataset.pending);
  htmx.trigger("#editing", "input");
});

document.addEventListener("input", (event) => {
  if (event.target.id === "manifest") {
    grow();
  }
  if (event.target.form?.id === "editing") {
    touch(event.target.name);
    typed += 1;
    late.set(event.target.name, event.target.value);
    sayUnsaved();
  }
});
/* What is chosen from the list of a picker, or pasted, is taken at once; typed letters wait for a button or Enter. */
document.addEventListener("input", (event) => {
  const { list, value, form, dataset } = event.target;
  const isTyping = event.isComposing || event.data?.length === 1 || event.inputType?.startsWith("delete");
  if (dataset?.pick && !isTyping && [...list.options].some((one) => one.value === value)) {
    form.querySelector(`button[name=pick][value=${dataset.pick}]`).click();
  }
});
/* What was typed there is taken when the picker is left; a button or link that is pressed next does that itself, or leaves the page. */
document.addEventListener("focusout", ({ target, relatedTarget }) => {
  const picker = target.isConnected && target.closest?.("#editing .picker");
  if (!picker || picker.contains(relatedTarget) || relatedTarget?.matches("a:active, button:active")) return;
  if (!picker.querySelector("[data-pick]").value.trim()) return;
  pressed.push({ name: "pick", value: "left" });
  htmx.trigger("#editing", "input");
});
/* The draft has what was typed before the request that was answered last. */
document.addEventListener("htmx:beforeRequest", (event) => {
  if (event.detail.elt.id !== "editing") return;
  event.detail.xhr.typed = typed;
  late.clear();
});
function settle({ detail: { xhr } }) {
  if (xhr.typed === undefined) return; // the form may be replaced already
  failed = xhr.status < 200 || xhr.status > 299; // a redirect is no "successful" of htmx
  if (!failed) saved = Math.max(saved, xhr.typed);
  sayUnsaved();
}
/* Before htmx follows a redirect to the review, which asks at once whether something is unsaved. */
document.addEventListener("htmx:beforeOnLoad", settle);
document.addEventListener("htmx:afterRequest", settle); // no answer
window.addEventListener("beforeunload", (event) => {
  if (saved !== typed) event.preventDefault();
});
/* htmx sends along the button that got the focus last (a field left with Tab would press the × beside it), and drops
   a waiting request when a newer one comes or the form is replaced. So the next request has the button. */
const pressed = [];
document.addEventListener(
  "submit",
  ({ target, submitter }) => {
    if (target.id === "editing" && submitter?.name) pressed.push(submitter);
  },
  true,
);
document.addEventListener("htmx:configRequest", (event) => {
  const { elt, parameters } = event.detail;
  if (elt.id !== "editing") return;
  for (const { type, name } of elt.elements) if (type === "submit") delete parameters[name];
  const button = pressed.shift();
  if (button?.name === "remove") touch(button.value);
  if (button) parameters[button.name] = button.value;
  if (parameters.touched !== "*") parameters.touched = [...touched].join(" ");
});
/* A response that replaces the form does not know what was typed meanwhile. */
function keepLate() {
  for (const [name, value] of late) {
    const field = document.querySelector(`#editing [name="${CSS.escape(name)}"]`);
    if (!field || field.value === value || field.type === "checkbox" || field.type === "radio") continue;
    field.value = value;
    field.dispatchEvent(new Event("input", { bubbles: true }));
  }
}
/* htmx returns the focus to a field of a new form, but not a selection from 0 on: "4" would be typed before the "3". */
let selected = "";
document.addEventListener("htmx:beforeSwap", () => {
  const { form, name, value, selectionStart, selectionEnd } = document.activeElement;
  selected = form?.id === "editing" && selectionStart === 0 && selectionEnd === value.length ? name : "";
});
document.addEventListener("htmx:afterSwap", () => {
  if (selected && document.activeElement.name === selected) document.activeElement.select?.();
});
document.addEventListener("htmx:afterSettle", () => {
  keepLate();
  if (pressed.length) htmx.trigger("#editing", "input");
  if (document.querySelector("#state [name=draft]")?.value) {
    document.querySelector(".starts [aria-label='Placement templates'] [aria-current]")?.removeAttribute("aria-current");
  }
  fold();
  grow();
  marks();
  sayUnsaved();
});
/* What was entered before the scripts had loaded caused no request. htmx has its listeners by now. */
document.addEventListener("DOMContentLoaded", () => {
  const fields = [...(document.getElementById("editing")?.elements ?? [])];
  const isChanged = ({ type, options, value, defaultValue, checked, defaultChecked }) => {
    if (options) return [...options].some((one) => one.defaultSelected && !one.selected);
    return type === "checkbox" || type === "radio" ? checked !== defaultChecked : value !== (defaultValue ?? value);
  };
  for (const one of fields.filter(isChanged)) one.dispatchEvent(new Event("input", { bubbles: true }));
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
fold();
grow();
