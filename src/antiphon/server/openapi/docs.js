"use strict";

const METHODS = ["get", "post", "put", "patch", "delete"];
const DOORS = ["/v1", "/openai/v1", "/openai"];
const byId = (id) => document.getElementById(id);
let api;

/** Return an element; everything the document says becomes text, never HTML. */
function element(name, options = {}, ...children) {
  const made = Object.assign(document.createElement(name), options);
  made.append(...children.filter((child) => child !== null));
  return made;
}

function resolve(schema) {
  if (!schema?.$ref) return schema ?? {};
  return schema.$ref.slice(2).split("/").reduce((place, key) => place[key], api);
}

function typeName(schema) {
  if (schema.$ref) return schema.$ref.split("/").pop();
  if ("const" in schema) return JSON.stringify(schema.const);
  if (schema.enum) return schema.enum.map((value) => JSON.stringify(value)).join(" | ");
  if (schema.anyOf) return schema.anyOf.map(typeName).join(" | ");
  if (schema.type === "array") return `array of ${typeName(schema.items ?? {})}`;
  return [schema.type ?? "any"].flat().join(" | ");
}

function limits(schema) {
  const names = ["default", "minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems", "pattern"];
  const found = names.filter((name) => name in schema).map((name) => `${name} ${JSON.stringify(schema[name])}`);
  return found.length ? ` (${found.join(", ")})` : "";
}

/** Return the named schemas that a schema mentions, outside of the properties of objects. */
function references(schema) {
  if (schema.$ref) return [schema.$ref];
  return [...(schema.anyOf ?? []), ...(schema.items ? [schema.items] : [])].flatMap(references);
}

function showSchema(schema) {
  const shown = element("div", { className: "schema" });
  if (schema.properties) shown.append(showProperties(schema));
  else if (!references(schema).length) shown.append(element("code", { textContent: typeName(schema) + limits(schema) }));
  shown.append(...[...new Set(references(schema))].map(showReference));
  return shown;
}

/** A named schema is shown when it is opened: schemas hold each other. */
function showReference(reference) {
  const schema = resolve({ $ref: reference });
  const details = element("details", {}, element("summary", {}, element("code", { textContent: typeName({ $ref: reference }) })));
  details.addEventListener("toggle", () => {
    if (!details.open || details.children.length > 1) return;
    const about = element("p", { className: "quiet", textContent: schema.description ?? "" });
    details.append(element("div", {}, about, showSchema(schema)));
  });
  return details;
}

function showProperties(schema) {
  const list = element("dl");
  for (const [name, property] of Object.entries(schema.properties)) {
    const required = schema.required?.includes(name) ? "" : " (may be absent)";
    list.append(element("dt", {}, element("code", { textContent: name })));
    const type = element("span", { textContent: typeName(property) + limits(property) + required });
    list.append(element("dd", {}, type, ...[...new Set(references(property))].map(showReference)));
    if (property.properties) list.lastChild.append(showProperties(property));
  }
  return list;
}

/** A small value that fits a schema: what must be sent, and an example of a prompt. */
function example(schema, name = "") {
  schema = resolve(schema);
  if (name === "model") return "demo";
  if (schema.anyOf) return example(schema.anyOf[0], name);
  if ("const" in schema) return schema.const;
  if (schema.enum) return schema.enum[0];
  if (schema.type === "array") return [example(schema.items ?? {})];
  if (schema.type === "integer" || schema.type === "number") return schema.minimum ?? 0;
  if (schema.type === "boolean") return true;
  if (schema.type !== "object") return "Hello!";
  const required = schema.required ?? [];
  const shown = Object.keys(schema.properties ?? {}).filter(
    (key) => required.includes(key) || key === "model" || key === "input" || key === "content",
  );
  return Object.fromEntries(shown.map((key) => [key, example(schema.properties[key], key)]));
}

function curl(method, path, operation) {
  const quote = (text) => `'${text.replaceAll("'", "'\\''")}'`;
  const server = new URL((api.servers?.[0]?.url ?? "/").replace(/\/$/, ""), location.origin).href.replace(/\/$/, "");
  const lines = [`curl ${method === "get" ? "" : `-X ${method.toUpperCase()} `}${quote(server + path)}`];
  lines.push(`-H ${quote("Authorization: Bearer KEY")}`);
  const body = operation.requestBody?.content["application/json"].schema;
  if (body) {
    lines.push(`-H ${quote("Content-Type: application/json")}`, `-d ${quote(JSON.stringify(example(body)))}`);
  }
  return lines.join(" \\\n  ");
}

function showOperation(method, path, operation) {
  const details = element("details", { className: "operation", id: operation.operationId });
  const label = operation["x-extension"] ? element("span", { className: "label", textContent: "extension" }) : null;
  details.append(
    element(
      "summary",
      {},
      element("span", { className: "method", textContent: method.toUpperCase() }),
      element("span", { className: "path", textContent: path }),
      element("span", { className: "quiet", textContent: operation.summary }),
      label,
    ),
  );
  details.addEventListener("toggle", () => {
    if (!details.open || details.children.length > 1) return;
    details.append(element("div", {}, ...describe(method, path, operation)));
  });
  return details;
}

function describe(method, path, operation) {
  const heading = (text) => element("h3", { textContent: text });
  const parts = [];
  if (operation.parameters.length) {
    const list = element("dl");
    for (const parameter of operation.parameters) {
      const where = `${typeName(parameter.schema)}${limits(parameter.schema)}, in the ${parameter.in}. `;
      list.append(element("dt", {}, element("code", { textContent: parameter.name })));
      list.append(element("dd", { textContent: where + (parameter.description ?? "") }));
    }
    parts.push(heading("Parameters"), list);
  }
  const body = operation.requestBody?.content["application/json"].schema;
  if (body) parts.push(heading("Body"), showSchema(body));
  for (const [status, answer] of Object.entries(operation.responses)) {
    for (const [type, media] of Object.entries(resolve(answer).content ?? {})) {
      parts.push(heading(`${status === "default" ? "Any error" : status}: ${type}`));
      parts.push(showSchema(media["x-event-schema"] ?? media.schema));
    }
  }
  parts.push(heading("curl"), element("pre", { textContent: curl(method, path, operation), tabIndex: 0 }));
  return parts;
}

function show() {
  const door = byId("door").value;
  const wanted = byId("filter").value.toLowerCase();
  const isHere = (path) => path.startsWith(`${door}/`) && DOORS.every((one) => one.length <= door.length || !path.startsWith(`${one}/`));
  const isAtNoDoor = (path) => DOORS.every((one) => !path.startsWith(`${one}/`));
  const groups = new Map();
  for (const [path, item] of Object.entries(api.paths)) {
    if (!isHere(path) && !isAtNoDoor(path)) continue;
    for (const method of METHODS.filter((name) => item[name])) {
      const operation = item[method];
      if (!`${method} ${path} ${operation.summary}`.toLowerCase().includes(wanted)) continue;
      const [tag] = operation.tags;
      if (!groups.has(tag)) groups.set(tag, []);
      groups.get(tag).push(showOperation(method, path, operation));
    }
  }
  const sections = [...groups].map(([tag, shown]) => element("section", {}, element("h2", { textContent: tag }), ...shown));
  byId("operations").replaceChildren(...(sections.length ? sections : [element("p", { textContent: "Nothing matches." })]));
}

async function start() {
  try {
    const answer = await fetch("openapi.json");
    if (!answer.ok) throw new Error(`status ${answer.status}`);
    api = await answer.json();
  } catch (error) {
    byId("about").textContent = `openapi.json cannot be read: ${error.message}`;
    return;
  }
  byId("about").textContent = api.info.description;
  byId("door").append(...DOORS.map((door) => element("option", { textContent: door })));
  byId("view").addEventListener("input", show);
  byId("view").addEventListener("submit", (event) => event.preventDefault());
  show();
  const named = location.hash && byId(decodeURIComponent(location.hash.slice(1)));
  if (named) named.open = true;
}

start();
