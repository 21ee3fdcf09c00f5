// Shows the API's schema with Swagger UI. A file of its own, so that pages need no inline script.
"use strict";

const place = document.getElementById("api");
// The order of the navigation; other sections follow by name.
const ORDER = ["overview", "inbox", "clusters", "cluster-changes", "placements", "decisions", "rollouts", "staged-strategies", "staged-runs", "what-if", "resilience", "resources", "overrides", "events", "hubs"];
const rank = (tag) => (ORDER.includes(tag) ? ORDER.indexOf(tag) : ORDER.length);
const dark = matchMedia("(prefers-color-scheme: dark)");

function applyTheme() {
  const { dataset: { theme }, classList } = document.documentElement;
  classList.toggle("dark-mode", theme === "dark" || (theme !== "light" && dark.matches));
}

applyTheme();
dark.addEventListener("change", applyTheme);
document.addEventListener("theme:change", applyTheme);

function csrfToken() {
  const found = document.cookie.match(/(?:^|; )(?:__Host-)?csrftoken=([^;]*)/);
  return found ? decodeURIComponent(found[1]) : "";
}

SwaggerUIBundle({
  url: place.dataset.schema,
  domNode: place,
  deepLinking: true,
  validatorUrl: null,
  defaultModelsExpandDepth: 0,
  docExpansion: "none",
  tagsSorter: (a, b) => rank(a) - rank(b) || a.localeCompare(b),
  onComplete() {
    if (!location.hash) place.querySelector(".opblock-tag[data-is-open=false]")?.click();
  },
  // Only to ourselves: a token must not go to a server that a schema names.
  requestInterceptor(request) {
    if (new URL(request.url, location.href).origin === location.origin) {
      request.headers["X-CSRFToken"] = csrfToken();
    }
    return request;
  },
});
