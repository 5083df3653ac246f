// What deliveries show an endpoint: the fields of an OAuth2 client and of a client certificate, in the form of a subscription.
import { field } from "./dialogs.js";
import { h } from "./dom.js";

const OAUTH2 = ["tokenUrl", "clientId", "clientSecret", "scope", "audience"];

export function fields(row, text) {
  const client = row?.oauth2;
  const shown = row?.clientCertificate;
  const about = shown ? `${shown.subject}, until ${shown.expiresAt.slice(0, 10)}; empty keeps it` : "-----BEGIN CERTIFICATE-----";
  return [
    field("OAuth2: where tokens are fetched (empty: none)", text("tokenUrl", client?.tokenUrl, { placeholder: "https://id.example/token" })),
    h(
      "div",
      { class: "two" },
      field("OAuth2 client id", text("clientId", client?.clientId)),
      field("OAuth2 client secret", text("clientSecret", client?.clientSecret, { type: "password", autocomplete: "off" })),
    ),
    h("div", { class: "two" }, field("OAuth2 scope", text("scope", client?.scope)), field("OAuth2 audience", text("audience", client?.audience))),
    field("Client certificate, PEM", h("textarea", { name: "certificate", placeholder: about })),
    field("Its private key, PEM", h("textarea", { name: "privateKey", autocomplete: "off" })),
    ...(shown ? [h("label", { class: "check" }, h("input", { type: "checkbox", name: "noCertificate" }), "Show no client certificate any more")] : []),
  ];
}

export function body(given, row) {
  const oauth2 = Object.fromEntries(OAUTH2.map((name) => [name, given[name].trim()]).filter(([, value]) => value));
  const changed = {};
  if (Object.keys(oauth2).length) changed.oauth2 = oauth2;
  else if (row?.oauth2) changed.oauth2 = null;
  if (given.noCertificate === "on") changed.clientCertificate = null;
  else if (given.certificate.trim() || given.privateKey.trim()) {
    changed.clientCertificate = { certificate: given.certificate, privateKey: given.privateKey };
  }
  return changed;
}
