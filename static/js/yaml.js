/* The editor Ace over the text area of a manifest. The text area stays the field of the form: it receives every change,
   and it is what is edited until Ace has loaded, without JavaScript, and on phones. */
let ace = null;
let editor = null;
const TABS = "fleetui-tab-indents";

function load(tag, attributes) {
  return new Promise((resolve, reject) => {
    const one = Object.assign(document.createElement(tag), attributes, { onload: resolve, onerror: reject });
    document.head.append(one);
  });
}

/* The scripts are loaded once, in their order; Ace adds no style of its own, as the security policy demands. */
async function fetchAce(place) {
  await Promise.all(place.dataset.styles.split(" ").map((href) => load("link", { rel: "stylesheet", href })));
  for (const src of place.dataset.ace.split(" ")) {
    await load("script", { src });
    window.ace?.config.set("useStrictCSP", true);
  }
  return window.ace;
}

function completer(place, area) {
  return {
    identifierRegexps: [/[\w./-]/],
    async getCompletions(_editor, session, { row, column }, _prefix, callback) {
      const token = area.form.elements.csrfmiddlewaretoken.value;
      const body = new URLSearchParams({ manifest: session.getValue(), row, column, csrfmiddlewaretoken: token });
      const answer = await fetch(place.dataset.completions, { method: "POST", body }).catch(() => null);
      const items = answer?.ok ? (await answer.json()).items : [];
      callback(null, items.map(({ value, meta, documentation }, place) => (
        { value, caption: value.replace(/:\s*$/, ""), meta, docText: documentation, score: items.length - place }
      )));
    },
  };
}

/* Tab leaves the editor, unless the person wants it to indent; Esc and Tab always leave. */
function setTabs(indents) {
  editor.commands.bindKey("Tab", indents ? "indent" : null);
  editor.commands.bindKey("Shift-Tab", indents ? "outdent" : null);
}

function markErrors() {
  if (!editor) return;
  const marks = [...document.querySelectorAll("#errors [data-line]")].map((link) => {
    const text = link.parentElement.textContent.replace(link.textContent, "").trim().replace(/\s+/g, " ");
    return { row: Number(link.dataset.line) - 1, column: 0, text, type: link.dataset.type ?? "error" };
  });
  editor.session.setAnnotations(marks);
}

async function edit() {
  const area = document.getElementById("manifest");
  const place = area?.closest("[data-ace]");
  if (editor && !editor.container.isConnected) {
    editor.destroy();
    editor = null;
  }
  if (!place || place.dataset.edited || !window.matchMedia("(min-width: 640px)").matches) return;
  place.dataset.edited = "true";
  ace = ace ?? (await fetchAce(place));
  if (!area.isConnected) return;

  const hadFocus = document.activeElement === area;
  const host = document.createElement("div");
  place.append(host);
  editor = ace.edit(host, {
    value: area.value,
    theme: { cssClass: "ace-fleet", cssText: "", isDark: false },
    minLines: 12,
    maxLines: 28,
    tabSize: 2,
    fontSize: 13,
    showPrintMargin: false,
    enableKeyboardAccessibility: true,
    textInputAriaLabel: "Manifest",
    enableBasicAutocompletion: [completer(place, area)],
    enableLiveAutocompletion: true,
    liveAutocompletionDelay: 200,
  });
  editor.session.setUseWorker(false);
  editor.session.setMode("ace/mode/yaml");
  place.classList.add("is-edited");
  const { row, column } = editor.session.doc.indexToPosition(area.selectionStart);
  editor.moveCursorTo(row, column);
  editor.session.on("change", () => {
    area.value = editor.getValue();
    area.dispatchEvent(new Event("input", { bubbles: true }));
  });
  if (hadFocus) editor.focus();

  const options = document.querySelector(".yaml-options");
  const box = document.getElementById("tab-indents");
  options.hidden = false;
  box.checked = localStorage.getItem(TABS) === "yes";
  box.addEventListener("change", () => {
    localStorage.setItem(TABS, box.checked ? "yes" : "no");
    setTabs(box.checked);
  });
  setTabs(box.checked);
  markErrors();
}

/* A line in the list of errors leads to that line. */
document.addEventListener("click", (event) => {
  const line = event.target.closest?.("#errors [data-line]");
  const area = document.getElementById("manifest");
  if (!line || !area) return;
  event.preventDefault();
  if (editor) {
    editor.gotoLine(Number(line.dataset.line), 0, false);
    editor.focus();
    return;
  }
  const start = area.value.split("\n").slice(0, line.dataset.line - 1).join("\n").length + 1;
  area.focus();
  area.setSelectionRange(start, start);
});
document.addEventListener("htmx:afterSettle", () => {
  edit();
  markErrors();
});
edit();
