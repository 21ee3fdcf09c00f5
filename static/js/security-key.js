/* Security keys (WebAuthn): the button of a form requests a key from the browser and sends its answer. A button appears only
   where the browser has keys: over HTTPS and on localhost. */
const ACTIONS = {
  get: (options) => window.webauthnJSON.get(options),
  create: (options) => window.webauthnJSON.create(options),
};

for (const form of document.querySelectorAll("form[data-security-key]")) {
  const button = form.querySelector("button[type=button]");
  const error = form.querySelector("p.errors");
  const options = JSON.parse(document.getElementById(form.dataset.options).textContent);
  button.hidden = !window.PublicKeyCredential;
  if (button.hidden) {
    error.textContent = "This browser offers no security keys at this address. They need HTTPS, or the name localhost.";
    if (["127.0.0.1", "[::1]"].includes(location.hostname)) {
      const here = document.createElement("a");
      here.href = location.href.replace(location.hostname, "localhost");
      here.textContent = "Open this page at localhost";
      error.append(" ", here, " and sign in there.");
    }
    error.hidden = form.dataset.securityKey === "get";
  }
  button.addEventListener("click", async () => {
    error.hidden = true;
    try {
      form.elements.credential.value = JSON.stringify(await ACTIONS[form.dataset.securityKey](options));
      form.submit();
    } catch {
      error.textContent = "No key was used: the request was canceled, timed out, or the key is not known here.";
      error.hidden = false;
    }
  });
}
