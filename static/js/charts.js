/* Draws each figure that a page or a fragment brings as JSON, and draws it again when the theme changes.
   Colours come as names of tokens ("var(--healthy)"); here they become the values of the present theme. */
const NARROW = matchMedia("(max-width: 640px)");
const DARK = matchMedia("(prefers-color-scheme: dark)");
const CONFIG = { displayModeBar: false, responsive: true };

const probe = document.createElement("span");
probe.hidden = true;
probe.style.setProperty("forced-color-adjust", "none"); // otherwise every token would be the color of text

function resolved(token) {
  if (!probe.isConnected) document.body.append(probe); // a swapped page does not have it
  probe.style.setProperty("color", token);
  return getComputedStyle(probe).color;
}

/* Return the same data with every "var(--token)" as a colour; `known` keeps what was looked up. */
function painted(value, known) {
  if (typeof value === "string") {
    if (!value.startsWith("var(--")) return value;
    if (!known.has(value)) known.set(value, resolved(value));
    return known.get(value);
  }
  if (Array.isArray(value)) return value.map((one) => painted(one, known));
  if (value === null || typeof value !== "object") return value;
  return Object.fromEntries(Object.entries(value).map(([key, one]) => [key, painted(one, known)]));
}

function quiet(title) {
  return { ...title, font: { size: 12, color: "var(--quiet)", ...title.font } };
}

function axis(given) {
  return {
    gridcolor: "var(--divider)", zerolinecolor: "var(--border)", linecolor: "var(--border)", automargin: true,
    fixedrange: true, ...given, ...(given?.title && { title: quiet(given.title) }),
  };
}

function themed(layout) {
  const axes = Object.keys(layout).filter((key) => /^[xy]axis\d*$/.test(key));
  const common = {
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: getComputedStyle(document.body).fontFamily, size: 12, color: "var(--text)" },
    hoverlabel: { bgcolor: "var(--page)", bordercolor: "var(--border)", font: { color: "var(--text)", size: 12 } },
    ...layout,
  };
  for (const key of new Set(["xaxis", "yaxis", ...axes])) common[key] = axis(layout[key]);
  return common;
}

let paper = {};

/* Plotly takes a second to compile: it is fetched when the first chart comes near. */
let loading;

function loaded() {
  loading ??= new Promise((resolve, reject) => {
    const script = document.createElement("script");
    script.src = document.querySelector("meta[name='plotly']").content;
    script.addEventListener("load", resolve);
    script.addEventListener("error", reject);
    document.head.append(script);
  });
  return loading;
}

const drawn = new Set();

function draw(script) {
  const plot = document.getElementById(script.dataset.figure);
  if (!plot || !window.Plotly || plot.closest("[data-view='table']")) return;
  const { data, layout } = JSON.parse(script.textContent);
  const known = new Map();
  if (!drawn.has(plot)) plot.replaceChildren(); // the first picture
  plot.style.height = `${layout.height}px`;
  window.Plotly.react(plot, painted(data, known), painted({ ...themed(layout), ...paper }, known), CONFIG);
  if (!drawn.has(plot)) plot.on("plotly_click", (event) => follow(plot, event.points[0]));
  drawn.add(plot);
}

/* A press on a point leads on where the page says so; the rows of the table beside it have links for the keyboard.
   The braces of the address contain a fact of the point. */
function follow(plot, point) {
  const chart = plot.closest("[data-chart]");
  const address = chart.dataset.leads ?? "";
  const facts = [...address.matchAll(/\{(\w+)\}/g)].map(([, name]) => point[name] ?? null);
  if (!address || facts.includes(null)) return;
  const url = address.replace(/\{\w+\}/g, () => encodeURIComponent(facts.shift()));
  const { swap } = chart.dataset;
  if (swap) window.htmx.ajax("GET", url, { source: chart, target: swap }); // swapped as hx-swap around the chart says
  else location.assign(url);
}

const idle = () => new Promise((resolve) => { (window.requestIdleCallback ?? setTimeout)(resolve, { timeout: 2000 }); });

/* Charts are drawn when they come near and the page is idle: until then the picture of the server is there. Of domains
   that the server draws as lanes Plotly takes over, and the lanes are its table; a phone keeps the lanes, whose names
   wrap there. */
const near = new IntersectionObserver(async (entries) => {
  for (const { isIntersecting, target } of entries) {
    if (!isIntersecting) continue;
    near.unobserve(target);
    const isDrawn = "chart" in target.dataset;
    if (!isDrawn && NARROW.matches) continue;
    await idle();
    await loaded();
    if (!isDrawn) takeOver(target);
    else if (target.dataset.view === "chart") target.querySelectorAll("script[data-figure]").forEach(draw);
  }
}, { rootMargin: "400px" });

function show(chart, view) {
  chart.dataset.view = view;
  const twin = chart.querySelector(".twin");
  if (twin) twin.open = view === "table";
  if (view === "chart") near.observe(chart);
}

/* A press turns a chart into its table and back; below 640 px the table comes first, unless the page lists it too. */
function switcher(chart) {
  const head = chart.querySelector(".chart-head");
  if (!head || head.querySelector("button")) return;
  const button = document.createElement("button");
  button.type = "button";
  button.className = "button plain";
  const label = () => { button.textContent = chart.dataset.view === "table" ? "Chart" : "Table"; };
  button.addEventListener("click", () => { show(chart, chart.dataset.view === "table" ? "chart" : "table"); label(); });
  head.append(button);
  if (held === chart.id) button.focus({ preventScroll: true });
  chart.addEventListener("viewed", label);
  label();
}

/* Of which chart the button has the focus: a fragment replaces the chart, and its button comes later. */
let held = "";

document.addEventListener("htmx:beforeSwap", ({ detail: { boosted } }) => {
  if (boosted) [wanted, taken].forEach((one) => one.clear());
  held = boosted ? "" : document.activeElement?.closest(".chart-head")?.parentElement.id ?? "";
});

function mount(root) {
  const charts = [...root.querySelectorAll("[data-chart]")];
  if (root.matches?.("[data-chart]")) charts.push(root);
  for (const chart of charts) {
    chart.dataset.view ||= wanted.get(chart.id) ?? chart.dataset.first ?? (NARROW.matches ? "table" : "chart");
    show(chart, chart.dataset.view);
    switcher(chart);
  }
  for (const lanes of root.querySelectorAll("[data-lanes]")) {
    if (claimed.has(lanes)) continue;
    claimed.add(lanes);
    if (taken.has(lanes.id)) takeOver(lanes);
    else near.observe(lanes);
  }
}
/* What Plotly drew for lanes, by their id, and of which page: a poll that brings the same picture draws nothing. */
const taken = new Map();
const claimed = new WeakSet(); // htmx loads the first page a second time

function partsFor(lanes) {
  const [head, plot, script] = ["div", "div", "script"].map((name) => document.createElement(name));
  head.className = "chart-head";
  plot.className = "plot";
  plot.id = `plot-${lanes.id}`;
  plot.role = "img";
  script.type = "application/json";
  script.dataset.figure = plot.id;
  return [head, plot, script];
}

async function takeOver(lanes, isResized = false) {
  const known = taken.get(lanes.id) ?? { parts: partsFor(lanes) };
  const drawn = isResized ? known.drawn : lanes.cloneNode(true);
  const isSame = !isResized && drawn.isEqualNode(known.drawn ?? null);
  if (!isSame) {
    const address = new URL(lanes.dataset.lanes, location.href);
    address.searchParams.set("width", lanes.clientWidth); // so that the names fit
    const answer = await fetch(address).catch(() => null); // offline: the lanes stay
    const figure = answer?.ok ? await answer.text() : "";
    if (!figure || !lanes.isConnected) return;
    known.parts[2].textContent = figure;
    known.width = lanes.clientWidth;
  }
  known.drawn = drawn;
  taken.set(lanes.id, known);
  known.parts[1].ariaLabel = lanes.ariaLabel
    || [...lanes.querySelectorAll("caption")].map((one) => one.textContent.trim()).join("; ");
  known.parts[0].replaceChildren(); // its button is of the lanes before
  lanes.append(...known.parts);
  lanes.dataset.chart = "";
  lanes.dataset.view = wanted.get(lanes.id) ?? "chart";
  if (!isSame && lanes.dataset.view === "chart") draw(known.parts[2]); // at once: its lanes are hidden now
  switcher(lanes);
}

/* The names of a figure are cut for its width: another window gets another figure. */
let resizing;

addEventListener("resize", () => {
  clearTimeout(resizing);
  resizing = setTimeout(() => {
    if (NARROW.matches) return;
    for (const lanes of document.querySelectorAll("[data-lanes][data-chart]")) {
      if (taken.get(lanes.id)?.width !== lanes.clientWidth) takeOver(lanes, true);
    }
  }, 300);
});

/* What the user chose to see is kept while fragments are replaced. */
const wanted = new Map();

document.addEventListener("click", (event) => {
  const chart = event.target.closest?.("[data-chart]");
  if (chart) wanted.set(chart.id, chart.dataset.view);
});
document.addEventListener("charts:toggle", () => {
  const charts = [...document.querySelectorAll("[data-chart]")];
  const view = charts.some((chart) => chart.dataset.view === "chart") ? "table" : "chart";
  for (const chart of charts) {
    show(chart, view);
    wanted.set(chart.id, view);
    chart.dispatchEvent(new Event("viewed"));
  }
});

function redraw() {
  document.querySelectorAll("[data-chart][data-view='chart'] script[data-figure]").forEach(draw);
}

document.addEventListener("htmx:load", (event) => mount(event.detail.elt));
document.addEventListener("htmx:afterSettle", () => {
  for (const plot of drawn) {
    const isKept = taken.get(plot.id.replace("plot-", ""))?.parts[1] === plot;
    if (!plot.isConnected && !isKept && drawn.delete(plot)) window.Plotly.purge(plot);
  }
});
DARK.addEventListener("change", redraw);
document.addEventListener("theme:change", redraw);
function redrawFor(scheme, size) {
  document.documentElement.style.setProperty("color-scheme", scheme);
  paper = size;
  redraw();
}
addEventListener("beforeprint", () => redrawFor("light", { width: 640 })); // fits A4 and Letter
addEventListener("afterprint", () => redrawFor("", {}));
mount(document);
