
/* The results, as page.py packs them. */

const record = JSON.parse(document.getElementById("record").textContent);
const rows = record.rows.map((_, row) => row);
const FACETS = ["suite", "device", "dtype", "by", "status"].filter((facet) => new Set(record.rows.map((told) => told[facet])).size > 1);
const LABELS = { suite: "Suite", device: "Device", dtype: "Type", by: record.called ? "Arrays and way" : "Kernel", status: "Status" };
const SYMBOLS = { verified: "✓", unsupported: "–" };

const DEFAULTS = { q: "", sort: "", page: "1" };
for (const facet of FACETS) DEFAULTS[facet] = "";

const corrected = (given) => given;
const value = (facet, row) => record.rows[row][facet];
const values = (facet) => [...new Set(record.rows.map((told) => told[facet]))];
const pill = (name) => el(`span.pill.${name}`, {}, el("span", { "aria-hidden": "true" }, SYMBOLS[name] ?? "✗"), ` ${name}`);

function time(seconds) {
  if (seconds === null) return "";
  const [scale, unit] = seconds >= 1 ? [1, "s"] : seconds >= 1e-3 ? [1e3, "ms"] : [1e6, "µs"];
  return `${Number((seconds * scale).toPrecision(3)).toLocaleString("en-GB")} ${unit}`;
}

function ratio(row, name) {
  const found = value("ratios", row)[name];
  if (found === undefined) return el("span.muted", {}, "–");
  return el(found >= 1 ? "span.faster" : "span", {}, `${found.toFixed(found < 10 ? 3 : 0)}×`);
}

function detail(row) {
  const told = record.rows[row];
  const pairs = [["device", told.device], ["status", told.status], ["reason", told.reason], ...Object.entries(told.details)];
  return el("div.inside", {}, facts(pairs.filter(([, fact]) => fact)));
}

function resultsTable() {
  const opener = (row, ...inside) => {
    const label = `${value("name", row)}, ${value("by", row)}: ${value("status", row)}. More`;
    return el("button.open", { type: "button", "aria-expanded": "false", "aria-label": label }, ...inside);
  };
  const plain = (key) => ({ key, label: LABELS[key], classes: ".wide", node: (row) => value(key, row), order: (row) => value(key, row) });
  const told = [...FACETS.filter((facet) => !["status", "by"].includes(facet)), "by"];
  const where = (row) => told.map((key) => value(key, row)).filter(Boolean).join(" · ");
  const measured = (key, label, node) => ({ key, label, classes: ".number", number: true, node: (row) => node(value(key, row)), order: (row) => value(key, row) ?? -1 });
  const rate = (gflops) => (gflops === null ? "" : gflops.toLocaleString("en-GB", { maximumFractionDigits: gflops < 100 ? 1 : 0 }));
  return new Table(part("results"), {
    caption: "All results that pass the filters", nothing: "No result is like this.", sortKey: "sort", pageKey: "page", perPage: 50, detail,
    initial: { label: "As measured", order: (row) => row },
    columns: [
      { key: "name", label: "Product", classes: "", header: true, order: (row) => value("name", row),
        node: (row) => opener(row, value("name", row), el("span.below.narrow", {}, where(row))) },
      ...told.map(plain),
      { ...measured("size", "Edge", (size) => number(Math.round(size))), classes: ".wide.number" },
      { ...measured("seconds", "Time", time), classes: record.called ? ".number" : ".wide.number" },
      ...(record.called ? [] : [measured("gflops", "GFLOPS", rate)]),
      ...record.baselines.map((name) => ({ key: `vs ${name}`, label: `× ${name}`, classes: ".number", number: true,
        node: (row) => ratio(row, name), order: (row) => value("ratios", row)[name] ?? -1 })),
      { key: "status", label: "Status", classes: ".wide", node: (row) => pill(value("status", row)), order: (row) => value("status", row) },
    ],
  });
}

const haystack = (row) => Object.values(record.rows[row]).filter((told) => typeof told === "string").join(" ").toLowerCase();
const selects = {};

function buildFilters() {
  const search = el("input", { type: "search", id: "search", placeholder: "product, device, kernel", autocomplete: "off", spellcheck: "false",
    "aria-label": "Search the results; the key / comes here", oninput: () => change({ q: search.value, page: "1" }) });
  for (const facet of FACETS) {
    selects[facet] = el("select", { name: facet, onchange: () => change({ [facet]: selects[facet].value, page: "1" }) },
      el("option", { value: "" }, "all"), values(facet).map((one) => el("option", { value: one }, one)));
  }
  const clear = el("button.small", { type: "button", onclick: () => change({ ...DEFAULTS, sort: state.sort }) }, "Clear filters");
  part("filters").append(el("label.field.search", {}, "Search", search),
    ...FACETS.map((facet) => el("label.field", {}, LABELS[facet], selects[facet])));
  part("found-actions").append(clear, copyButton("Copy link", () => location.href));
  part("filters").addEventListener("submit", (event) => event.preventDefault());
  return { search, clear };
}

let table;
let controls;

function render() {
  const words = state.q.toLowerCase().split(/\s+/).filter(Boolean);
  const found = rows.filter((row) =>
    FACETS.every((facet) => state[facet] === "" || value(facet, row) === state[facet]) && words.every((word) => haystack(row).includes(word)));
  for (const facet of FACETS) {
    selects[facet].value = state[facet];
    selects[facet].classList.toggle("set", state[facet] !== "");
  }
  if (controls.search.value !== state.q) controls.search.value = state.q;
  controls.clear.disabled = ["q", ...FACETS].every((filter) => state[filter] === "");
  part("found").textContent = found.length === rows.length ? `All ${number(rows.length)} results` : `${number(found.length)} of ${number(rows.length)} results`;
  table.show(found);
}

function start() {
  readFragment();
  table = resultsTable();
  controls = buildFilters();
  for (const link of document.querySelectorAll("nav a")) if (!document.getElementById(link.hash.slice(1))) link.remove();
  opened(controls.search, ["q", ...FACETS].some((filter) => state[filter] !== "") ? "results" : "");
}

start();
