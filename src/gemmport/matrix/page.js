/* The record, as page.py packs it: a column is a list of values and, for every cell, which of them it has. A cell is a row number. */

const record = JSON.parse(document.getElementById("record").textContent);
const AXES = ["kernel", "types", "ops", "shape", "scalars"];
const FACETS = ["status", "device", ...AXES, "check"];
const CHIPS = ["reason", "quirk", "retried"]; // filters that other parts of the page set, and that have no field
const FAILED = record.failed; // the worst first
const STATUSES = [...FAILED, "verified", "unsupported"];
const NOTHING = "No cell is like this.";
const SYMBOLS = { verified: "✓", unsupported: "–" };

const total = record.columns.status.rows.length;
const rows = Array.from({ length: total }, (_, row) => row);
const devices = new Map(record.devices.map((device) => [device.id, device]));

function value(name, row) {
  const column = record.columns[name];
  return column.values[column.rows[row]];
}

const status = (row) => value("status", row);
const failed = (row) => FAILED.includes(status(row));
const device = (row) => devices.get(value("device", row));

/* Reasons name the device, and are alike on all devices but for that. */
const alike = (row) => value("reason", row).replaceAll(device(row).label, "the device");
const id = (row) => AXES.map((axis) => value(axis, row)).join("/");

function command(row) {
  const [before, after] = value("command", row);
  return after === null ? before : before + id(row) + after;
}

function sizeText(row) {
  const [m, n, k, batch] = value("size", row);
  if (!batch) return "–"; // no problem was made
  return (batch === 1 ? "" : `${batch} of `) + `${m}×${n}×${k}`;
}

const work = (row) => value("size", row).reduce((product, count) => product * count, 1);

function tally(some, key) {
  const counts = new Map();
  for (const row of some) counts.set(key(row), (counts.get(key(row)) ?? 0) + 1);
  return counts;
}

const failures = (counts) => FAILED.reduce((sum, name) => sum + (counts.get(name) ?? 0), 0);
const cellsOf = (count) => `${number(count)} ${count === 1 ? "cell" : "cells"}`;
const countsText = (counts) =>
  STATUSES.filter((name) => counts.get(name)).map((name) => `${number(counts.get(name))} ${name}`).join(", ");

function seconds(time) {
  return time < 10 ? `${time.toFixed(2)} s` : `${number(Math.round(time))} s`;
}

const pill = (name) => el(`span.pill.${name}`, {}, el("span", { "aria-hidden": "true" }, SYMBOLS[name] ?? "✗"), ` ${name}`);

/* What a maintainer can paste into a bug report. */
function report(row) {
  const told = device(row);
  const versions = told.facts.map(([, pairs]) => pairs.map(([name, text]) => `- ${name}: ${text}`).join("\n"));
  return [
    `**${id(row)}** (${sizeText(row)}): ${status(row)} on ${told.label}`,
    ["```", value("reason", row), "```"].join("\n"),
    ["To reproduce:", "", `    ${command(row)}`].join("\n"),
    ...versions,
  ].join("\n\n");
}

const DEFAULTS = { q: "", sort: "", page: "1", grid: "types", on: "", at: "", timed: "-gflops", tpage: "1" };
for (const filter of [...FACETS, ...CHIPS]) DEFAULTS[filter] = "";

function corrected(given) {
  if (![...AXES.slice(1), "device"].includes(given.grid)) given.grid = DEFAULTS.grid;
  for (const key of ["on", "at"]) if (!devices.has(given[key])) given[key] = "";
  return given;
}

const FILTERS = ["q", ...FACETS, ...CHIPS];
const filtering = () => FILTERS.some((filter) => state[filter] !== "");

/* Shows the cells that these filters, and no others, leave. */
function showCells(filters) {
  const none = Object.fromEntries(FILTERS.map((filter) => [filter, ""]));
  change({ ...none, page: "1", ...filters });
  goTo("cells");
}

const LABELS = {
  status: "Status", device: "Device", kernel: "Kernel", types: "Types", ops: "Ops", shape: "Shape", scalars: "Scalars", check: "Check",
};

/* Columns that several tables have. */
const plain = (key) => ({ key, label: LABELS[key], classes: ".wide.mono", node: (row) => value(key, row), order: (row) => value(key, row) });
const deviceColumn = { key: "device", label: LABELS.device, classes: ".wide", node: (row) => device(row).name, order: (row) => device(row).name };
const sizeColumn = { key: "size", label: "m×n×k", classes: ".wide.number", number: true, node: sizeText, order: work };

/* Devices */

function shareBar(counts, left) {
  const bar = el("span.share", { "aria-hidden": "true" });
  const shares = { failed: failures(counts), verified: counts.get("verified") ?? 0, left, unsupported: counts.get("unsupported") ?? 0 };
  for (const [name, count] of Object.entries(shares)) {
    if (!count) continue;
    const piece = el(`span.${name}`);
    piece.style.flexGrow = String(count);
    bar.append(piece);
  }
  return bar;
}

function verdict(counts, { left, lost }) {
  const verified = counts.get("verified") ?? 0;
  const wrong = failures(counts);
  const losing = lost ? ", lost" : "";
  if (wrong) return { mood: "bad", symbol: "✗", text: `${number(wrong)} of ${number(verified + wrong)} failed${losing}` };
  if (lost) return { mood: "bad", symbol: "✗", text: `${number(verified)} verified${losing}` };
  if (left) return { mood: "idle", symbol: "…", text: `${number(verified)} verified` };
  if (verified) return { mood: "good", symbol: "✓", text: `all ${number(verified)} verified` };
  return { mood: "idle", symbol: "–", text: "nothing verified" };
}

function renderDevices() {
  const byDevice = new Map(record.devices.map(({ id: name }) => [name, []]));
  for (const row of rows) byDevice.get(value("device", row)).push(row);
  part("devices").replaceChildren(...record.devices.map((told) => {
    const own = byDevice.get(told.id);
    const counts = tally(own, status);
    const retried = own.filter((row) => value("retried", row)).length;
    const { mood, symbol, text } = verdict(counts, told);
    const others = { "not run": told.left, unsupported: counts.get("unsupported") ?? 0 };
    const aside = Object.entries(others).filter(([, count]) => count).map(([name, count]) => `${number(count)} ${name}`).join(" · ");
    const show = (filters, ...inside) => {
      const onclick = () => showCells({ device: told.id, ...filters });
      return el("li", {}, el("button.small", { type: "button", onclick }, ...inside));
    };
    return el(`details.device.${mood}`, {},
      el("summary", {},
        el("span.symbol", { "aria-hidden": "true" }, symbol),
        el("span.name", {}, el("strong", {}, told.name), " ", el("span.tag", {}, told.backend), el("span.hardware", {}, told.hardware)),
        el("span.outcome", {}, text, aside ? el("span.aside", {}, aside) : null),
        shareBar(counts, told.left)),
      el("div.inside", {},
        told.lost ? el("p.reason.lost", {}, `Lost: ${told.lost}`) : null,
        el("ul.statuses", { "aria-label": "Show the cells of one status" },
          STATUSES.filter((name) => counts.get(name)).map((name) => show({ status: name }, pill(name), ` ${number(counts.get(name))}`)),
          retried ? show({ retried: "yes" }, `tried again alone ${number(retried)}`) : null),
        el("div.facts", {}, told.facts.map(([title, pairs]) => el("div", {}, el("h3", {}, title), facts(pairs)))),
        commandLine(told.command),
        el("div.actions", {}, copyButton("Copy command", () => told.command))));
  }));
}

/* Failures: cells of one device and kernel whose reasons differ in numbers alone are one group. */

const GROUPS_SHOWN = 6;
const CELLS_SHOWN = 40;

function groups(some, key) {
  const found = new Map();
  for (const row of some) {
    const name = key(row);
    if (!found.has(name)) found.set(name, []);
    found.get(name).push(row);
  }
  return [...found.values()];
}

const failureKey = (row) =>
  [value("device", row), value("kernel", row), status(row), value("reason", row).replace(/-?\d[\d.,e+-]*/g, "#")].join("\n");

const failureCard = (name, title, where, reason, again, ...actions) => el("article.card.failure", {},
  el("h3", {}, pill(name), el("code", {}, breakable(title))),
  el("p.muted", {}, where.join(" · ")),
  el("p.reason", {}, reason || "No reason was told."),
  commandLine(again),
  el("div.actions", {}, copyButton("Copy command", () => again), ...actions));

function failureGroup(own) {
  const [first, ...others] = own;
  const where = [device(first).name, sizeText(first), ...(others.length ? [cellsOf(own.length)] : [])];
  const filters = Object.fromEntries(["device", "kernel", "status"].map((facet) => [facet, value(facet, first)]));
  const card = failureCard(status(first), id(first), where, value("reason", first), command(first),
    copyButton("Copy report", () => report(first)),
    el("button.small", { type: "button", onclick: () => showCells(filters) }, "In table"));
  if (!others.length) return card;
  const line = (row) => el("li", {}, el("code", {}, breakable(id(row))), copyButton("Copy command", () => command(row)));
  card.append(el("details", {}, el("summary", {}, `${number(others.length)} more like this`),
    el("ul.alike", {}, others.slice(0, CELLS_SHOWN).map(line)),
    others.length > CELLS_SHOWN ? el("p.muted", {}, `${number(others.length - CELLS_SHOWN)} more are in the table.`) : null));
  return card;
}

function renderFailures() {
  const lost = record.devices.filter((told) => told.lost)
    .map((told) => failureCard("lost", told.name, [`${cellsOf(told.left)} not run`], told.lost, told.command));
  const found = groups(rows.filter(failed), failureKey).sort((one, other) =>
    other.length - one.length || FAILED.indexOf(status(one[0])) - FAILED.indexOf(status(other[0])));
  part("failures").replaceChildren(...folded([...lost, ...found.map(failureGroup)], GROUPS_SHOWN, "groups"));
}

/* The grid: kernels by the values of another axis, a button for each pair. */

const GRID_AXES = { types: "types", ops: "ops", shape: "shapes", scalars: "scalars", device: "devices" };

function look(counts) {
  if (failures(counts)) return { kind: "failed", text: `✗ ${number(failures(counts))}` };
  if (!counts.get("verified")) return { kind: "unsupported", text: "–" };
  return { kind: counts.get("unsupported") ? "part" : "verified", text: number(counts.get("verified")) };
}

function renderGrid() {
  const own = state.on ? rows.filter((row) => value("device", row) === state.on) : rows;
  const across = state.grid;
  const pairs = new Map();
  for (const row of own) {
    const key = `${value("kernel", row)}\n${value(across, row)}`;
    if (!pairs.has(key)) pairs.set(key, new Map());
    const counts = pairs.get(key);
    counts.set(status(row), (counts.get(status(row)) ?? 0) + 1);
  }
  const present = (name) => {
    const there = new Set(own.map((row) => value(name, row)));
    return record.columns[name].values.filter((one) => there.has(one));
  };
  const [down, along] = [present("kernel"), present(across)];
  const title = (name) => (across === "device" ? devices.get(name).name : name);
  let first = true;
  const square = (kernel, name) => {
    const counts = pairs.get(`${kernel}\n${name}`);
    if (!counts) return el("td.empty");
    const { kind, text } = look(counts);
    const told = `${kernel}, ${title(name)}: ${countsText(counts)}`;
    const button = el(`button.square.${kind}`, { type: "button", title: told, "aria-label": told, tabindex: first ? "0" : "-1",
      onclick: () => showCells({ device: state.on, kernel, [across]: name }) }, text);
    first = false;
    return el("td", { role: "gridcell" }, button);
  };
  part("grid").replaceChildren(el("table.grid", { role: "grid", "aria-label": `Kernels by ${GRID_AXES[across]}`, onkeydown: walk },
    el("thead", {}, el("tr", {}, el("td"), along.map((name) => el("th", { scope: "col" }, el("span", {}, title(name)))))),
    el("tbody", {}, down.map((kernel) => el("tr", {}, el("th", { scope: "row" }, breakable(kernel)), along.map((name) => square(kernel, name)))))));
  part("grid-device").value = state.on;
  for (const button of part("grid-axis").children) button.setAttribute("aria-pressed", String(button.value === across));
}

/* One stop of the Tab key for the whole grid; arrows walk in it. */
function walk(event) {
  const table = event.currentTarget;
  const here = event.target.closest("td");
  const lines = [...table.tBodies[0].rows];
  let [line, place] = [lines.indexOf(here?.parentElement), here?.cellIndex];
  const moves = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0] };
  if (!here || !moves[event.key]) return;
  event.preventDefault();
  const [down, right] = moves[event.key];
  let next = null;
  while (!next && lines[line += down]?.cells[place += right]) next = lines[line].cells[place].querySelector("button");
  if (!next) return;
  event.target.tabIndex = -1;
  next.tabIndex = 0;
  next.focus();
}

/* Throughput */

const timed = new Map(record.timed.map(([row, gflops, baselines]) => [row, { gflops, baselines }]));
const measured = record.timed.flatMap(([, , baselines]) => Object.entries(baselines));
const baselineNames = [...new Set(measured.filter(([, { ratio }]) => typeof ratio === "number").map(([name]) => name))];

const rateText = (rate) => rate.toLocaleString("en-GB", { minimumFractionDigits: rate < 100 ? 1 : 0, maximumFractionDigits: rate < 100 ? 1 : 0 });
const ratioOf = (row, name) => timed.get(row).baselines[name]?.ratio;

/* Our rate over a baseline's. A baseline must be verified to be a yardstick; otherwise the cell says what it is. */
function ratio(row, name) {
  const found = timed.get(row).baselines[name];
  if (typeof found?.ratio !== "number") return el("span.muted", { title: found?.status }, "–");
  const text = `${found.ratio.toFixed(found.ratio < 10 ? 2 : 0)}×`;
  const title = `${name}: ${rateText(found.gflops)} GFLOP/s`;
  if (found.status !== "verified") return el("span", { title }, `${text} (${found.status})`);
  return el(found.ratio >= 1 ? "span.faster" : "span", { title }, text);
}

function throughputTable() {
  const fastest = new Map();
  for (const [row, { gflops }] of timed) fastest.set(device(row), Math.max(gflops, fastest.get(device(row)) ?? 0));
  const rate = (row) => {
    const { gflops } = timed.get(row);
    const bar = el("span.rate", { "aria-hidden": "true" });
    bar.style.width = `${(100 * gflops) / fastest.get(device(row))}%`;
    return [failed(row) ? pill(status(row)) : null, ` ${rateText(gflops)}`, bar];
  };
  const unmeasured = new Set(measured.filter(([, told]) => typeof told.ratio !== "number").map(([name, told]) => `${name}: ${told.status}`));
  part("unmeasured").replaceChildren(...[...unmeasured].sort().map((text) => el("p.note", {}, text)));
  return new Table(part("throughput"), {
    caption: "Throughput of large cells", nothing: NOTHING, sortKey: "timed", pageKey: "tpage", perPage: 10,
    columns: [
      { key: "cell", label: "Cell", classes: ".narrow", narrow: true, header: true,
        node: (row) => twoLines(`${value("kernel", row)} ${value("types", row)} ${value("ops", row)}`, `${device(row).name} · ${sizeText(row)}`) },
      { ...plain("kernel"), header: true },
      deviceColumn,
      plain("types"),
      plain("ops"),
      sizeColumn,
      { key: "gflops", label: "GFLOP/s", classes: ".number.rated", number: true, node: rate, order: (row) => timed.get(row).gflops },
      ...baselineNames.map((name) => ({ key: `vs ${name}`, label: `vs ${name}`, classes: ".number", number: true, node: (row) => ratio(row, name),
        order: (row) => ratioOf(row, name) ?? -1 })),
    ],
  });
}

/* Unsupported, and quirks */

function renderReasons() {
  const found = groups(rows.filter((row) => status(row) === "unsupported"), alike)
    .sort((one, other) => other.length - one.length);
  part("unsupported").replaceChildren(...folded(found.map((own) => {
    const names = [...tally(own, (row) => device(row).name)].map(([name, count]) => `${name} (${number(count)})`);
    const reason = alike(own[0]);
    const label = `Show the ${cellsOf(own.length)} of this reason`;
    const onclick = () => showCells({ status: "unsupported", reason });
    return el("div.reasoned", {},
      el("button.count", { type: "button", "aria-label": label, onclick }, number(own.length)),
      el("div", {}, el("p", {}, reason || "No reason was told."), el("p.muted", {}, names.join(", "))));
  }), GROUPS_SHOWN, "reasons"));
  return found.flat().length;
}

function renderQuirks() {
  const cells = tally(rows, (row) => value("quirk", row));
  part("quirks").replaceChildren(...folded(record.quirks.map(({ id: name, devices: on, symptom, effect, evidence }) => {
    const count = cells.get(name) ?? 0;
    const where = on.map((one) => devices.get(one).name).join(", ");
    return el("div.quirk", {},
      el("h3", {}, el("code", {}, name), effect ? el("span.tag", {}, effect) : null,
        count ? el("button.small", { type: "button", onclick: () => showCells({ quirk: name }) }, cellsOf(count)) : null),
      symptom ? el("p", {}, symptom) : null,
      el("p.muted", {}, [where, evidence].filter(Boolean).join(" · ")));
  }), GROUPS_SHOWN, "quirks"));
  return record.quirks.length;
}

/* All cells */

const haystacks = [];
function haystack(row) {
  haystacks[row] ??= [id(row), device(row).label, status(row), value("reason", row), value("quirk", row) ?? ""].join(" ").toLowerCase();
  return haystacks[row];
}

function matches(facet, row) {
  if (state[facet] === "") return true;
  if (facet === "status" && state.status === "failed") return failed(row);
  if (facet === "reason") return alike(row) === state.reason;
  return value(facet, row) === state[facet];
}

/* The rows that pass, and for every facet how many rows each of its values would leave beside the other filters. */
function filtered() {
  const words = state.q.toLowerCase().split(/\s+/).filter(Boolean);
  const found = [];
  const counts = Object.fromEntries(FACETS.map((facet) => [facet, new Map()]));
  const add = (facet, row) => counts[facet].set(value(facet, row), (counts[facet].get(value(facet, row)) ?? 0) + 1);
  for (const row of rows) {
    if (!words.every((word) => haystack(row).includes(word)) || !CHIPS.every((chip) => matches(chip, row))) continue;
    const against = FACETS.filter((facet) => !matches(facet, row));
    if (!against.length) found.push(row);
    if (!against.length) FACETS.forEach((facet) => add(facet, row));
    else if (against.length === 1) add(against[0], row);
  }
  return { found, counts };
}

const selects = {};

function buildFilters() {
  const search = el("input", { type: "search", id: "search", placeholder: "id, device, reason", autocomplete: "off", spellcheck: "false",
    "aria-label": "Search the cells; the key / comes here", oninput: () => change({ q: search.value, page: "1" }) });
  for (const facet of FACETS) selects[facet] = el("select", { name: facet, onchange: () => change({ [facet]: selects[facet].value, page: "1" }) });
  const fields = (facets) => facets.map((facet) => el("label.field", {}, LABELS[facet], selects[facet]));
  const more = el("div.more-filters", { id: "more-filters" }, fields(FACETS.slice(2)));
  const toggle = el("button.narrow", { type: "button", "aria-controls": "more-filters", "aria-expanded": "false", onclick: () => {
    toggle.setAttribute("aria-expanded", String(more.classList.toggle("shown")));
  } }, "More filters");
  const clear = el("button.small", { type: "button", onclick: () => showCells({}) }, "Clear filters");
  part("filters").append(el("label.field.search", {}, "Search", search), ...fields(FACETS.slice(0, 2)), more, toggle);
  part("found-actions").append(clear, copyButton("Copy link", () => location.href));
  part("filters").addEventListener("submit", (event) => event.preventDefault());
  return { search, clear };
}

function optionsOf(facet) {
  const known = record.columns[facet].values;
  if (facet === "status") return ["failed", ...STATUSES.filter((name) => known.includes(name))];
  return facet === "device" ? record.devices.map((told) => told.id) : known;
}

function fillSelect(facet, counts) {
  const count = (one) => (facet === "status" && one === "failed" ? failures(counts) : counts.get(one) ?? 0);
  const label = (one) => (facet === "device" ? devices.get(one).name : one === "failed" ? "failed, any way" : one);
  selects[facet].replaceChildren(el("option", { value: "" }, "all"),
    ...optionsOf(facet).map((one) => el("option", { value: one }, `${label(one)} (${number(count(one))})`)));
  selects[facet].value = state[facet];
  selects[facet].classList.toggle("set", state[facet] !== "");
}

function detail(row) {
  const told = [["cell", el("code", {}, id(row))], ["device", device(row).label], ["m×n×k", sizeText(row)], ["check", value("check", row)],
    ["reason", value("reason", row)], ["quirk", value("quirk", row)]].filter(([, fact]) => fact);
  return el("div.inside", {}, facts(told), commandLine(command(row)),
    el("div.actions", {}, copyButton("Copy command", () => command(row)), failed(row) ? copyButton("Copy report", () => report(row)) : null));
}

function cellsTable() {
  const opener = (row, ...inside) => {
    const label = `${id(row)}: ${status(row)}. Reason and command`;
    return el("button.open", { type: "button", "aria-expanded": "false", "aria-label": label }, ...inside);
  };
  const whole = (row) => opener(row, ...twoLines(id(row), pill(status(row)), ` ${device(row).name}`));
  const severity = (row) => STATUSES.indexOf(status(row));
  return new Table(part("cells"), {
    caption: "All cells that pass the filters", nothing: NOTHING, sortKey: "sort", pageKey: "page", perPage: 50, detail,
    initial: { label: "Failures first", order: severity },
    columns: [
      { key: "status", label: "Status", classes: ".wide", node: (row) => pill(status(row)), order: severity },
      { key: "cell", label: "Cell", classes: ".narrow", narrow: true, header: true, node: whole },
      { ...plain("kernel"), header: true, node: (row) => opener(row, value("kernel", row)) },
      ...["types", "ops", "shape", "scalars"].map(plain),
      sizeColumn,
      deviceColumn,
      { ...plain("check"), classes: ".wide" },
      { key: "seconds", label: "Time", classes: ".number", number: true, node: (row) => seconds(record.seconds[row]), order: (row) => record.seconds[row] },
    ],
  });
}

/* The page */

let tables;
let controls;

function render() {
  renderGrid();
  part("timed-device").value = state.at;
  tables.timed?.show([...timed.keys()].filter((row) => state.at === "" || value("device", row) === state.at));
  const { found, counts } = filtered();
  for (const facet of FACETS) fillSelect(facet, counts[facet]);
  if (controls.search.value !== state.q) controls.search.value = state.q;
  controls.clear.disabled = !filtering();
  part("chips").replaceChildren(...CHIPS.filter((chip) => state[chip] !== "").map((chip) =>
    el("button.chip", { type: "button", "aria-label": `Remove the filter ${chip}: ${state[chip]}`, onclick: () => {
      change({ [chip]: "", page: "1" });
      controls.search.focus();
    } }, el("span", {}, `${chip}: ${state[chip]}`), el("span", { "aria-hidden": "true" }, "✕"))));
  const told = countsText(tally(found, status));
  const amount = found.length === total ? `All ${cellsOf(total)}` : `${number(found.length)} of ${cellsOf(total)}`;
  part("found").textContent = amount + (told && `: ${told}`);
  tables.cells.show(found);
}

function chooser(name, chosen) {
  part(name).append(el("option", { value: "" }, "all devices"), ...record.devices.map((told) => el("option", { value: told.id }, told.name)));
  part(name).addEventListener("change", (event) => chosen(event.target.value));
}

/* A section without content goes, with its link; the others tell how much they hold. */
function section(name, count, told = true) {
  const link = document.querySelector(`nav a[href="#${name}"]`);
  document.getElementById(name).hidden = link.hidden = !count;
  if (told) link.append(el("span.badge", {}, number(count)));
}

function start() {
  readFragment();
  renderDevices();
  section("devices", record.devices.length);
  renderFailures();
  section("failures", rows.filter(failed).length + record.devices.filter(({ lost }) => lost).length);
  const unsupported = renderReasons();
  const quirks = renderQuirks();
  tables = { cells: cellsTable(), timed: timed.size ? throughputTable() : null };
  controls = buildFilters();
  chooser("grid-device", (chosen) => change({ on: chosen }));
  chooser("timed-device", (chosen) => change({ at: chosen, tpage: "1" }));
  part("grid-axis").append(...Object.entries(GRID_AXES).map(([axis, label]) =>
    el("button", { type: "button", value: axis, onclick: () => change({ grid: axis }) }, label)));
  const kinds = { verified: "all verified", part: "verified, some unsupported", failed: "failed", unsupported: "unsupported" };
  part("legend").append(...Object.entries(kinds).map(([kind, text]) => el("span", {}, el(`span.square.${kind}`, { "aria-hidden": "true" }), ` ${text}`)));
  section("grid", total, false);
  section("throughput", timed.size);
  section("unsupported", unsupported);
  section("quirks", quirks);
  section("cells", total);
  opened(controls.search, filtering() ? "cells" : "");
}

start();
