"use strict";

/* What the scripts of gemmport's pages share. A page has DEFAULTS, the state that an address without a fragment means;
   corrected(state), which mends what an address says; and render(), which shows the state. */

const number = (count) => count.toLocaleString("en-GB");

/* Elements. Text enters the page as text alone, never as markup. */

const part = (name) => document.querySelector(`[data-part="${name}"]`);

function el(tag, attributes = {}, ...children) {
  const [name, ...classes] = tag.split(".");
  const made = document.createElement(name);
  if (classes.length) made.className = classes.join(" ");
  for (const [key, given] of Object.entries(attributes)) {
    if (key.startsWith("on")) made.addEventListener(key.slice(2), given);
    else if (given === true) made.setAttribute(key, "");
    else if (given !== false && given !== null && given !== undefined) made.setAttribute(key, given);
  }
  made.append(...children.flat(2).filter((child) => child !== null && child !== undefined));
  return made;
}

function say(text) {
  part("said").textContent = text;
}

async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    // Pages that are files have no clipboard in some browsers; the old command still works there.
    const field = el("textarea.offscreen", { readonly: true });
    field.value = text;
    document.body.append(field);
    field.select();
    const done = document.execCommand("copy");
    field.remove();
    return done;
  }
}

function copyButton(label, text) {
  const button = el("button.small", { type: "button", onclick: async () => {
    const done = await copy(text());
    button.focus();
    button.textContent = done ? "Copied" : "Not allowed here";
    say(done ? "Copied." : "The browser does not allow copying; select the text instead.");
    setTimeout(() => { button.textContent = label; }, 1500);
  } }, label);
  return button;
}

const facts = (pairs) => el("dl", {}, pairs.map(([name, fact]) => el("div", {}, el("dt", {}, name), el("dd", {}, fact))));

/* Options do not break after their hyphens. */
function commandLine(text) {
  const option = (word) => [" ", el("span.option", {}, word.slice(1))];
  return el("code.command", {}, text.split(/(?= )/).map((word) => (word.startsWith(" -") ? option(word) : word)));
}

/* A name that may break after an underscore or a slash. */
const breakable = (name) => name.split(/(?<=[_/])/).flatMap((piece, index) => (index ? [el("wbr"), piece] : [piece]));

/* Elements of which the first are shown, and the others at a button's press. */
function folded(made, shown, rest) {
  const host = el("div.folded", {}, made.slice(0, shown));
  if (made.length <= shown) return [host];
  const button = el("button.more", { type: "button", onclick: () => {
    host.append(...made.slice(shown));
    button.remove();
    made[shown].tabIndex = -1;
    made[shown].focus({ preventScroll: true });
  } }, `${number(made.length - shown)} more ${rest}`);
  return [host, button];
}

/* State: what is filtered, sorted and shown lives in the fragment, so that a link shows what its sender saw. */

let state = {};

function readFragment() {
  const given = new URLSearchParams(location.hash.slice(1));
  state = { ...DEFAULTS };
  for (const key of Object.keys(DEFAULTS)) if (given.has(key)) state[key] = given.get(key);
  state = corrected(state);
}

function writeFragment() {
  const changed = Object.entries(state).filter(([key, given]) => given !== DEFAULTS[key]);
  const fragment = new URLSearchParams(changed).toString();
  history.replaceState(null, "", fragment ? `#${fragment}` : location.pathname + location.search);
}

function change(values) {
  Object.assign(state, values);
  writeFragment();
  render();
}

function goTo(section) {
  document.getElementById(section).scrollIntoView();
  document.getElementById(`${section}-title`).focus({ preventScroll: true });
}

const twoLines = (above, ...below) => [el("code", {}, breakable(above)), el("span.below", {}, below)];

/* Tables that sort and turn pages. A column has a key, a label, node(row) that shows a cell, order(row) to sort by, and classes:
   "wide" is not on phones, "narrow" only there. */

class Table {
  constructor(host, { columns, caption, nothing, sortKey, pageKey, perPage, initial, detail }) {
    Object.assign(this, { columns, nothing, sortKey, pageKey, perPage, initial, detail });
    this.headings = columns.map((column) => this.heading(column));
    this.body = el("tbody");
    this.pager = el("div.pager", { role: "group", "aria-label": `Pages of the table: ${caption}` });
    const sorts = columns.filter((column) => column.order && !column.narrow);
    this.sorter = el("select", { onchange: () => change({ [sortKey]: this.sorter.value, [pageKey]: "1" }) },
      initial ? el("option", { value: "" }, initial.label) : null,
      sorts.flatMap((column) => [
        el("option", { value: column.key }, `${column.label} ↑`),
        el("option", { value: `-${column.key}` }, `${column.label} ↓`),
      ]));
    host.replaceChildren(
      el("label.field.sorter.narrow", {}, "Sort by ", this.sorter),
      el("div.scroll.card", {}, el("table.data", {}, el("caption.offscreen", {}, caption),
        el("thead", {}, el("tr", {}, this.headings)), this.body)),
      this.pager);
  }

  heading(column) {
    const button = column.order && el("button", { type: "button", onclick: () => this.sortBy(column) }, column.label,
      el("span.arrow", { "aria-hidden": "true" }));
    return el(`th${column.classes ?? ""}`, { scope: "col" }, button ?? el("span.label", {}, column.label));
  }

  sortBy({ key, number: counts }) {
    const [first, second] = counts ? [`-${key}`, key] : [key, `-${key}`];
    change({ [this.sortKey]: state[this.sortKey] === first ? second : first, [this.pageKey]: "1" });
  }

  sorted(some) {
    const given = state[this.sortKey];
    const column = this.columns.find(({ key, order }) => order && key === given.replace(/^-/, ""));
    const order = column?.order ?? this.initial?.order;
    if (!order) return some;
    const sign = column && given.startsWith("-") ? -1 : 1;
    const keys = new Map(some.map((row) => [row, order(row)]));
    return [...some].sort((one, other) => sign * compare(keys.get(one), keys.get(other)) || one - other);
  }

  show(some) {
    const given = state[this.sortKey];
    this.sorter.value = given;
    this.columns.forEach((column, index) => {
      const ascending = given === column.key;
      const sorted = column.order && (ascending || given === `-${column.key}`);
      if (column.order) this.headings[index].setAttribute("aria-sort", sorted ? (ascending ? "ascending" : "descending") : "none");
    });
    const pages = Math.max(1, Math.ceil(some.length / this.perPage));
    const page = Math.min(pages, Math.max(1, Number.parseInt(state[this.pageKey], 10) || 1));
    const shown = this.sorted(some).slice((page - 1) * this.perPage, page * this.perPage);
    this.body.replaceChildren(...shown.map((row) => this.line(row)));
    if (!shown.length) this.body.append(el("tr", {}, el("td.none", { colspan: this.columns.length }, this.nothing)));
    this.turn(page, pages);
  }

  line(row) {
    const line = el("tr", {}, this.columns.map((column) =>
      el(`${column.header ? "th" : "td"}${column.classes ?? ""}`, { scope: column.header ? "row" : null }, column.node(row))));
    if (this.detail) line.querySelectorAll("button.open").forEach((button) => button.addEventListener("click", () => this.unfold(line, row)));
    return line;
  }

  unfold(line, row) {
    const open = line.nextElementSibling?.classList.contains("detail");
    line.querySelectorAll("button.open").forEach((button) => button.setAttribute("aria-expanded", String(!open)));
    if (open) line.nextElementSibling.remove();
    else line.after(el("tr.detail", {}, el("td", { colspan: this.columns.length }, this.detail(row))));
  }

  turn(page, pages) {
    this.pager.hidden = pages === 1;
    const step = (label, wanted, text) => el("button", { type: "button", "data-step": label, "aria-label": text,
      disabled: wanted < 1 || wanted > pages || wanted === page,
      onclick: () => {
        change({ [this.pageKey]: String(wanted) });
        this.pager.closest("section").scrollIntoView();
        (this.pager.querySelector(`[data-step="${label}"]:enabled`) ?? this.pager.querySelector("button:enabled")).focus({ preventScroll: true });
      } }, label);
    this.pager.replaceChildren(
      step("«", 1, "First page"), step("‹", page - 1, "Page before"),
      el("span", {}, `Page ${number(page)} of ${number(pages)}`),
      step("›", page + 1, "Next page"), step("»", pages, "Last page"));
  }
}

function compare(one, other) {
  if (typeof one === "number" && typeof other === "number") return one - other;
  return String(one).localeCompare(String(other), "en", { numeric: true });
}

/* Shows a page whose parts are made: links lead to sections, the key / to the search field, and an address to what it names. */
function opened(search, section) {
  render();
  document.querySelector("main").hidden = document.querySelector("nav").hidden = false;
  document.querySelectorAll('a[href^="#"]').forEach((link) => link.addEventListener("click", (event) => {
    event.preventDefault(); // the fragment holds the state
    goTo(link.hash.slice(1));
  }));
  addEventListener("hashchange", () => { readFragment(); render(); });
  addEventListener("keydown", (event) => {
    if (event.key === "/" && !event.ctrlKey && !event.metaKey && !event.altKey && !event.target.closest("input, select, textarea")) {
      event.preventDefault();
      search.focus();
    }
  });
  const named = document.getElementById(location.hash.slice(1));
  if (section) goTo(section);
  else if (named?.matches("section")) goTo(named.id);
}
