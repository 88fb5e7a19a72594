// Shows /openapi.json without a library and without the network. Everything is set as text, nothing as markup.
"use strict";

function make(tag, text, ...children) {
  const element = document.createElement(tag);
  if (text) element.textContent = text;
  element.append(...children);
  return element;
}

function rows(head, list) {
  const table = make("table");
  table.append(make("tr", "", ...head.map((word) => make("th", word))));
  for (const cells of list) table.append(make("tr", "", ...cells.map((word) => make("td", word))));
  return table;
}

function schemaName(schema) {
  if (!schema) return "";
  if (schema.$ref) return schema.$ref.split("/").pop();
  if (schema.oneOf || schema.anyOf) return (schema.oneOf || schema.anyOf).map(schemaName).join(" | ");
  const type = Array.isArray(schema.type) ? schema.type.join(" | ") : schema.type || "any";
  return type === "array" ? `[${schemaName(schema.items)}]` : type;
}

function call(method, path, operation) {
  const section = make("section");
  section.append(make("h2", "", make("b", method.toUpperCase()), " ", make("code", path), ` ${operation.summary || ""}`));
  if (operation.description) section.append(make("p", operation.description));
  if (operation.parameters) {
    section.append(rows(["parameter", "in", "what"], operation.parameters.map((parameter) =>
      [parameter.name + (parameter.required ? " *" : ""), parameter.in, parameter.description || ""])));
  }
  if (operation.requestBody) {
    const [kind, body] = Object.entries(operation.requestBody.content)[0];
    section.append(make("p", `Body: ${schemaName(body.schema)} (${kind})`));
  }
  section.append(rows(["status", "body", "what"], Object.entries(operation.responses).map(([status, response]) =>
    [status, schemaName(Object.values(response.content || {})[0]?.schema), response.description])));
  return section;
}

function schema(name, definition) {
  const section = make("section");
  section.append(make("h2", name), make("p", definition.description || ""));
  if (definition.properties) {
    const required = new Set(definition.required || []);
    section.append(rows(["field", "type", "what"], Object.entries(definition.properties).map(([field, property]) =>
      [field + (required.has(field) ? " *" : ""), schemaName(property), property.description || ""])));
  } else if (definition.enum) {
    section.append(make("p", definition.enum.join(", ")));
  }
  const example = definition.example || (definition.examples || [])[0];
  if (example) section.append(make("pre", JSON.stringify(example, null, 2)));
  return section;
}

async function show() {
  const page = document.getElementById("page");
  const api = await (await fetch("/openapi.json")).json();
  page.replaceChildren(make("h1", api.info.title), make("p", `${api.info.version} · OpenAPI ${api.openapi}`),
    make("p", api.info.description));
  for (const [path, methods] of Object.entries(api.paths)) {
    for (const [method, operation] of Object.entries(methods)) page.append(call(method, path, operation));
  }
  page.append(make("h1", "Types"));
  for (const [name, definition] of Object.entries(api.components.schemas)) page.append(schema(name, definition));
}

show().catch((error) => { document.getElementById("page").textContent = `Cannot show /openapi.json: ${error}`; });
