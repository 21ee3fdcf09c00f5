// Shows the API's schema with Swagger UI. A file of its own, so that pages need no inline script.
"use strict";

const place = document.getElementById("api");

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
  // Only to ourselves: a token must not go to a server that a schema names.
  requestInterceptor(request) {
    if (new URL(request.url, location.href).origin === location.origin) {
      request.headers["X-CSRFToken"] = csrfToken();
    }
    return request;
  },
});
