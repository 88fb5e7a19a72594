// Shows /openapi.json without a library and without the network. Everything is set as text, nothing as markup.
"use strict";

function make(tag, ...children) {
  const element = document.createElement(tag);
  element.append(...children);
  return element;
}

// `words` in backticks are code.
function words(text) {
  return (text || "").split("`").map((part, n) => (n % 2 ? make("code", part) : part));
}

function link(name) {
  const element = make("a", name);
  element.href = `#${name}`;
  return element;
}

function rows(head, list) {
  const table = make("table", make("tr", ...head.map((word) => make("th", word))));
  for (const cells of list) table.append(make("tr", ...cells.map((cell) => make("td", ...[cell].flat()))));
  return table;
}

// What a value is; a type that has a name leads to it.
function kind(schema) {
  if (!schema) return [];
  if (schema.$ref) return [link(schema.$ref.split("/").pop())];
  const either = schema.oneOf || schema.anyOf;
  if (either) return either.flatMap((one, n) => (n ? [" | ", ...kind(one)] : kind(one)));
  const type = Array.isArray(schema.type) ? schema.type.join(" | ") : schema.type || "any";
  return type.startsWith("array") ? ["[", ...kind(schema.items), "]"] : [type];
}

function example(value) {
  return make("pre", JSON.stringify(value, null, 2));
}

function answers(list) {
  return rows(["status", "body", "what"], list.map(([status, answer]) =>
    [status, kind(Object.values(answer.content || {})[0]?.schema), words(answer.description)]));
}

function call(method, path, operation, schemas) {
  const section = make("section",
    make("h2", make("b", method.toUpperCase()), " ", make("code", path)), make("p", operation.summary || ""));
  if (operation.description) section.append(make("p", ...words(operation.description)));
  if (operation.parameters) {
    section.append(rows(["parameter", "in", "what"], operation.parameters.map((parameter) =>
      [parameter.name + (parameter.required ? " *" : ""), parameter.in, words(parameter.description)])));
  }
  if (operation.requestBody) {
    const { schema } = operation.requestBody.content["application/json"];
    section.append(make("p", "Body: ", ...kind(schema)));
    for (const shown of schemas[schema.$ref.split("/").pop()].examples || []) section.append(example(shown));
  }
  const all = Object.entries(operation.responses);
  section.append(answers(all.filter(([status]) => status < 400)));
  section.append(make("details", make("summary", "When it is refused"), answers(all.filter(([status]) => status >= 400))));
  return section;
}

function type(name, definition) {
  const section = make("section", make("h2", name), make("p", ...words(definition.description)));
  section.id = name;
  if (definition.properties) {
    const required = new Set(definition.required || []);
    section.append(rows(["field", "type", "what"], Object.entries(definition.properties).map(([field, property]) =>
      [field + (required.has(field) ? " *" : ""), kind(property), words(property.description)])));
  } else if (definition.enum) {
    section.append(make("p", ...definition.enum.flatMap((word, n) => [n ? ", " : "", make("code", word)])));
  }
  for (const shown of definition.examples || []) section.append(example(shown));
  return section;
}

// What needs a key comes first, and asking for work before looking at it.
function order([path, method, operation]) {
  return `${operation.security ? 0 : 1} ${path} ${method === "post" ? 0 : 1}`;
}

async function show() {
  const page = document.getElementById("page");
  const api = await (await fetch("/openapi.json")).json();
  const schemas = api.components.schemas;
  page.replaceChildren(make("h1", api.info.title), make("p", `${api.info.version} · OpenAPI ${api.openapi}`),
    make("p", ...words(api.info.description)), make("p", "Fields and parameters with a * are needed."));
  const calls = Object.entries(api.paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, operation]) => [path, method, operation]));
  calls.sort((one, other) => (order(one) < order(other) ? -1 : 1));
  for (const [path, method, operation] of calls) page.append(call(method, path, operation, schemas));
  page.append(make("h1", "Types"));
  for (const [name, definition] of Object.entries(schemas)) page.append(type(name, definition));
  // The place in the address was not there when the browser looked for it.
  if (location.hash) document.getElementById(location.hash.slice(1))?.scrollIntoView();
}

show().catch((error) => { document.getElementById("page").textContent = `Cannot show /openapi.json: ${error}`; });
