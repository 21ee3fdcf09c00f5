/* htmx swaps pages (`hx-boost` on the body), so that scripts are compiled once. Here is what a browser does without help
   when it opens a page: which links and forms are not swapped, style sheets, focus, scroll position, errors. */

/* Opened by the browser itself: what has scripts or a security policy of its own (the editor, the admin site, the API),
   what changes who the user is, forms with files, what is saved as a file or handled by another module, and what leads
   to such a page next, whose messages would be lost. */
const APART = /^(\/hubs\/[^/]+)?\/(admin|api|account|login|logout|oidc|static|access-log\/export)\b|\/(edit|new|drafts)\//;
const OWN = "[download], [target], [type], [enctype], [data-copy], [data-prefer], [data-key='?'], #download";

document.addEventListener("htmx:beforeProcessNode", ({ detail: { elt } }) => {
  if (!elt.matches("a[href], form")) return;
  const address = new URL(elt.getAttribute("href") ?? elt.getAttribute("action") ?? "", location.href);
  const { pathname, searchParams: query } = address;
  const isApart = APART.test(pathname) || APART.test(elt.elements?.next?.value ?? query.get("next"))
    || query.has("download") || elt.matches(OWN);
  if (isApart) elt.setAttribute("hx-boost", "false");
});

/* A form is sent with the button that was pressed, or with its first one after Enter in a field. */
document.addEventListener("htmx:configRequest", ({ detail }) => {
  const button = detail.boosted && detail.triggeringEvent?.submitter;
  if (!button) return;
  for (const other of detail.elt.elements) if (other.type === "submit") delete detail.parameters[other.name];
  if (button.name) detail.parameters[button.name] = button.value;
  if (button.hasAttribute("formaction")) detail.path = button.getAttribute("formaction");
});

/* The last one wins, as in a browser. A poll may replace the link meanwhile, and htmx forgets that it was boosted. */
let pending = null;

document.addEventListener("htmx:beforeRequest", ({ detail }) => {
  if (!detail.boosted) return;
  pending = detail.xhr;
  detail.etc.push = "true";
  document.documentElement.dataset.loading = "";
});
document.addEventListener("htmx:beforeOnLoad", ({ detail: { boosted, etc, xhr } }) => {
  if (boosted && xhr.responseURL === location.href) Object.assign(etc, { push: null, replace: "true" });
});

/* What the head of a page names, read as text: no document is made of it. */
function headOf(text) {
  const head = text.split("</head>", 1)[0];
  const named = (pattern) => [...head.matchAll(pattern)].map(([, address]) => new URL(address, location.href).href);
  return {
    isPage: head.includes('<meta name="htmx-config"'),
    scripts: named(/<script[^>]*\ssrc="([^"]+)"/g),
    sheets: named(/<link rel="stylesheet" href="([^"]+)"(?![^>]*media="not all")/g),
  };
}

/* A page of another release, or with scripts that are missing here, is opened by the browser. */
function isSwappable(head, address) {
  const present = new Set([...document.head.querySelectorAll("script[src]")].map((one) => one.src));
  return head.isPage && !APART.test(new URL(address).pathname) && head.scripts.every((one) => present.has(one));
}

/* All style sheets are loaded; those of other pages have the medium "not all". */
function dress(head) {
  const wanted = new Set(head.sheets);
  for (const one of document.head.querySelectorAll("link[rel=stylesheet]:not([media=print])")) {
    one.media = wanted.has(one.href) ? "all" : "not all";
  }
}

document.addEventListener("htmx:beforeSwap", (event) => {
  const { detail } = event;
  const { xhr, requestConfig, pathInfo } = detail;
  if (!detail.boosted) return;
  if (xhr !== pending) return event.preventDefault();
  const head = headOf(xhr.response);
  const isSent = requestConfig.verb !== "get" && pathInfo.responsePath === pathInfo.requestPath;
  if (!isSwappable(head, xhr.responseURL) && !isSent) {
    event.preventDefault();
    return location.assign(pathInfo.anchor ? `${xhr.responseURL}#${pathInfo.anchor}` : xhr.responseURL);
  }
  Object.assign(detail, { shouldSwap: true, isError: false, target: document.body, selectOverride: "unset" });
  detail.swapOverride = pathInfo.anchor ? "show:none" : "show:window:top";
  return dress(head);
});

/* The focus goes where a screen reader starts to read: what the page or the address names, or its heading. */
function arrive(anchor) {
  pending = null;
  delete document.documentElement.dataset.loading;
  const place = document.querySelector("main [autofocus]") ?? document.getElementById(anchor || "none")
    ?? document.querySelector("main h1") ?? document.getElementById("main");
  if (place.tabIndex < 0) place.tabIndex = -1;
  place.dataset.arrived = "";
  place.focus({ preventScroll: true });
}

document.addEventListener("htmx:afterSettle", ({ detail }) => {
  if (detail.boosted && detail.xhr === pending) arrive(detail.pathInfo.anchor);
});
for (const name of ["htmx:sendError", "htmx:timeout"]) {
  document.addEventListener(name, ({ detail: { boosted, requestConfig, pathInfo } }) => {
    if (!boosted) return;
    pending = null;
    delete document.documentElement.dataset.loading;
    if (requestConfig.verb === "get") location.assign(pathInfo.finalRequestPath);
    else document.dispatchEvent(new CustomEvent("say:text", { detail: "Not sent: the server does not answer." }));
  });
}

/* Back and forward: no page is kept in the browser, so it is fetched again, and its scroll position is restored. */
const positions = new Map();
const bare = (path) => new URL(path, location.href).href.split("#")[0];

document.addEventListener("htmx:beforeHistorySave", ({ detail }) => positions.set(bare(detail.path), scrollY));
document.addEventListener("htmx:historyCacheMiss", (event) => {
  pending = null;
  if (!APART.test(location.pathname)) return;
  event.preventDefault();
  location.reload();
});
document.addEventListener("htmx:historyCacheMissLoad", ({ detail }) => {
  const head = headOf(detail.response);
  if (isSwappable(head, detail.xhr.responseURL)) dress(head);
  else location.reload();
});
document.addEventListener("htmx:historyCacheMissLoadError", () => location.reload());
document.addEventListener("htmx:historyRestore", ({ detail }) => {
  arrive(location.hash.slice(1));
  scrollTo(0, positions.get(bare(detail.path)) ?? 0);
});
