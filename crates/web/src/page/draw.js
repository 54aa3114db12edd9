// Draws counts, answers, frames and the log. Rows stay where they are, so that the keyboard's place stays too.
import { drawGraph } from "/graph.js";

const byId = (id) => document.getElementById(id);
const number = new Intl.NumberFormat("en");
export const count = (value) => number.format(value);
export const perSecond = (value) => `${number.format(Math.round(value))}/s`;
const PARTS = ["passed", "rejected", "taken", "lost"];

export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

export function drawState(kind, text) {
  document.body.dataset.state = kind;
  setText(byId("state"), text);
  setText(byId("pause"), kind === "paused" ? "Continue" : "Pause");
  byId("pause").disabled = kind !== "paused" && kind !== "runs";
}

export function drawNames(fykes, pid) {
  const options = fykes.map((one) => {
    const name = one.command ?? "(does not answer)";
    return new Option(`${one.pid}  ${name}`, one.pid, false, one.pid === pid);
  });
  if (!fykes.some((one) => one.pid === pid)) {
    options.unshift(new Option(pid === null ? "none is running" : `${pid}  (ended)`, pid ?? "", false, true));
  }
  const select = byId("fykes");
  const text = (all) => Array.from(all, (one) => `${one.value} ${one.text} ${one.selected}`).join("\n");
  if (text(select.options) !== text(options)) select.replaceChildren(...options);
}

// A bar of the parts of a sum. What is missing stays empty.
function drawBar(bar, whole, parts) {
  while (bar.children.length < PARTS.length) bar.append(element("i", { class: PARTS[bar.children.length] }));
  const sum = Math.max(whole, parts.reduce((sum, part) => sum + part, 0), 1);
  parts.forEach((part, index) => {
    bar.children[index].style.width = `${part * 100 / sum}%`;
  });
}

// Keeps one row for each entry: keyed by id, in the order of the entries.
export function drawRows(list, entries, make, update) {
  const rows = new Map(Array.from(list.children, (row) => [row.dataset.key, row]));
  entries.forEach((entry, index) => {
    let row = rows.get(entry.key);
    rows.delete(entry.key);
    if (!row) {
      row = make(entry);
      row.dataset.key = entry.key;
    }
    if (list.children[index] !== row) list.insertBefore(row, list.children[index] ?? null);
    update(row, entry);
  });
  for (const row of rows.values()) row.remove();
}

export function drawCounts(state, remove, chooseEdge) {
  const { counts, before, history } = state;
  const parts = [counts.accepted, counts.rejected, counts.taken, counts.lost];
  const reasons = Object.entries(counts.lost_by_reason).map(([reason, lost]) => `${reason} ${count(lost)}`);
  const lost = reasons.length > 0 ? ` (${reasons.join(", ")})` : "";
  setText(byId("sum"), `${count(counts.seen)} seen = ${count(counts.accepted)} accepted + `
    + `${count(counts.rejected)} rejected + ${count(counts.taken)} taken + ${count(counts.lost)} lost${lost}`
    + (counts.closes ? "" : ": the sum does not close"));
  drawBar(byId("sum-bar"), counts.seen, parts);
  byId("sum-bar").setAttribute("aria-label", byId("sum").textContent);
  drawChart(history);
  const notes = [`epoch ${counts.epoch}`, counts.kernel, counts.no_counts];
  if (counts.rejected_in_kernel) notes.push(`frames rejected in the kernel are ${counts.rejected_in_kernel}`);
  setText(byId("notes"), notes.filter(Boolean).join("; "));
  drawRunning(state, chooseEdge);
  drawNodes(state);
  drawFilters(counts, before, remove);
}

function drawChart(history) {
  const chart = byId("chart");
  const last = history.at(-1);
  const most = Math.max(1, ...history.map((one) => one.seen));
  const span = Math.round(history.reduce((sum, one) => sum + one.ms, 0) / 1000);
  const x = (index) => 600 - (history.length - 1 - index) * 2;
  const line = (name) => history.map((one, index) =>
    `${index === 0 ? "M" : "L"}${x(index)} ${(114 - one[name] * 108 / most).toFixed(1)}`).join("");
  const shape = (tag, attributes) => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    return made;
  };
  const marks = history.flatMap((one, index) => one.epoch === null ? [] : [x(index)]);
  chart.replaceChildren(
    ...marks.map((at) => shape("line", { x1: at, x2: at, y1: 0, y2: 120 })),
    shape("path", { class: "seen", d: line("seen") }),
    shape("path", { class: "accepted", d: line("accepted") }),
  );
  const rates = last ? `${perSecond(last.seen)} seen, ${perSecond(last.accepted)} accepted; ` : "";
  setText(byId("rates"), `${rates}most ${perSecond(history.length > 0 ? most : 0)} in ${span} s; `
    + "a dashed line is an edit");
  chart.setAttribute("aria-label", `frames per second: ${byId("rates").textContent}`);
}

function rateOf(state, one, earlier, name) {
  const ms = Math.max(1, state.counts.uptime_ms - (state.before?.uptime_ms ?? 0));
  return earlier ? Math.max(0, one[name] - earlier[name]) * 1000 / ms : 0;
}

// The frames of an edge: those that arrive at a node with one edge, else those that the node before it passes. Of an
// edge for one class value into a node with several, the number is not known.
function drawRunning(state, chooseEdge) {
  const { counts, before } = state;
  const now = new Map(counts.nodes.map((one) => [one.id, one]));
  const earlier = new Map((before?.nodes ?? []).map((one) => [one.id, one]));
  const rate = (id, name) => perSecond(rateOf(state, now.get(id), earlier.get(id), name));
  const edge = ({ from, to, class: value, single }) => {
    const known = single ? rate(to, "arrived") : value === null ? rate(from, "passed") : "";
    const label = [value === null ? "" : `class ${value}`, known].filter(Boolean).join("  ");
    const chosen = state.edge !== null && state.edge.from === from && state.edge.to === to;
    return { label, name: `edge from ${now.get(from).node} to ${now.get(to).node}: ${label}`, marked: chosen };
  };
  const node = (one) => ({
    title: one.node, line: `${rate(one.id, "arrived")} arrive`, name: `${one.node}: ${one.text}`, marked: false,
  });
  drawGraph(byId("graph"), counts.nodes, { node, edge }, { edge: chooseEdge });
}

// All running fykes with their rates; `shown` is the process that the page shows.
export function drawCaptures(all, shown, choose) {
  byId("several").hidden = all.length < 2;
  const entries = all.map((one) => ({ key: `${one.pid}`, one }));
  const make = ({ one }) => {
    const button = element("button", { type: "button" }, element("div", { class: "head" }, element("b"),
      element("span", { class: "rate" })), element("div", { class: "bar", role: "img" }));
    button.addEventListener("click", () => choose(one.pid));
    return element("li", {}, button);
  };
  drawRows(byId("captures"), entries, make, (row, { one }) => {
    const [head, bar] = row.firstChild.children;
    const { counts, history } = one;
    setText(head.children[0], `${one.pid}  ${one.command ?? "(does not answer)"}`);
    const last = history.at(-1);
    const rates = last ? `${perSecond(last.seen)} seen, ${perSecond(last.accepted)} accepted` : "";
    setText(head.children[1], [counts?.paused ? "paused" : "", rates, counts && counts.lost > 0
      ? `${count(counts.lost)} lost` : ""].filter(Boolean).join(", "));
    const parts = counts ? [counts.accepted, counts.rejected, counts.taken, counts.lost] : [0, 0, 0, 0];
    drawBar(bar, counts?.seen ?? 0, parts);
    bar.setAttribute("aria-label", `process ${one.pid}: ${count(parts[0])} of ${count(counts?.seen ?? 0)} accepted`);
    row.firstChild.setAttribute("aria-current", one.pid === shown);
  });
}

function drawNodes(state) {
  const { counts, before } = state;
  const earlier = new Map((before?.nodes ?? []).map((one) => [one.id, one]));
  const entries = counts.nodes.map((one) => ({ key: `${one.id}`, one }));
  const make = () => element("li", {},
    element("div", { class: "head" }, element("b"), element("span", { class: "text soft" }),
      element("span", { class: "rate" })),
    element("div", { class: "bar", role: "img" }), element("p", { class: "soft" }));
  drawRows(byId("nodes"), entries, make, (row, { one }) => {
    const [name, text, rate] = row.firstChild.children;
    setText(name, one.node);
    setText(text, one.text === one.node ? "" : one.text);
    setText(rate, perSecond(rateOf(state, one, earlier.get(one.id), "arrived")));
    const parts = PARTS.map((part) => one[part]);
    const closes = parts.reduce((sum, part) => sum + part, 0) === one.arrived;
    const sum = `${count(one.arrived)} arrived = ${PARTS.map((part) => `${count(one[part])} ${part}`).join(" + ")}`
      + (closes ? "" : ": the sum does not close") + (one.failed ? `; it has failed: ${one.failed}` : "");
    drawBar(row.children[1], one.arrived, parts);
    row.children[1].setAttribute("aria-label", `${one.node}: ${sum}`);
    setText(row.children[2], sum);
  });
}

const KINDS = {
  tracker: "tracker", removed: "removed filters", unfiltered: "without a filter", reader: "reader", other: "other",
};

function drawFilters(counts, before, remove) {
  const state = { counts, before };
  const key = (one) => `${one.kind} ${one.id}`;
  const earlier = new Map((before?.filters ?? []).map((one) => [key(one), one]));
  const entries = counts.filters.map((one) => ({ key: key(one), one }));
  const make = ({ one }) => {
    const head = element("div", { class: "head" }, element("b"), element("span", { class: "rate" }));
    if (one.kind === "filter" || one.kind === "graph") {
      const button = element("button", { type: "button", "aria-label": `Remove filter ${one.id}` }, "Remove");
      button.addEventListener("click", () => remove(one.id));
      head.append(button);
    }
    return element("li", {}, head, element("div", { class: "text" }));
  };
  drawRows(byId("filters"), entries, make, (row, { one }) => {
    const name = KINDS[one.kind] ?? `${one.kind} ${one.id}${one.label?.name ? ` ${one.label.name}` : ""}`;
    const until = one.label?.expires_unix_ms ? `, until ${clock(one.label.expires_unix_ms)}` : "";
    setText(row.firstChild.children[0], name);
    setText(row.firstChild.children[1], `${count(one.accepted)} accepted, `
      + perSecond(rateOf(state, one, earlier.get(key(one)), "accepted")) + until);
    setText(row.children[1], one.chars > one.text.length ? `${one.text}… (${count(one.chars)} characters)` : one.text);
  });
  setText(byId("more-filters"), counts.more_filters > 0 ? `and ${count(counts.more_filters)} more` : "");
}

export const clock = (ms) => new Date(ms).toTimeString().slice(0, 8);

function past({ frames, arrived, span_ms, rejected_in_kernel, rejected_by }) {
  const of = arrived > frames ? ` of ${count(arrived)}` : "";
  const kernel = rejected_in_kernel
    ? `; ${count(rejected_in_kernel)} frames were rejected ${rejected_by ? `by ${rejected_by}` : "in the kernel"} and `
      + "are not among them" : "";
  return `the last ${count(frames)}${of} frames (${(span_ms / 1000).toFixed(1)} s)${kernel}`;
}

const lineOf = (frame) => {
  const ns = BigInt(Math.trunc(frame.timestamp_ns / 1e6));
  return `${clock(Number(ns))}  ${frame.line}  (${frame.link}, ${count(frame.wire_len)} bytes)`;
};

export function drawAnswer(answer) {
  const shown = byId("answer");
  shown.classList.toggle("refused", ["error", "failed", "refused"].includes(answer?.response));
  setText(shown, answer === null ? "" : answerText(answer));
  byId("text").setAttribute("aria-invalid", shown.classList.contains("refused"));
}

function answerText(answer) {
  switch (answer.response) {
    case "tried": {
      const verdict = `would accept ${count(answer.accepted)} of ${past(answer.past)}, ${count(answer.new)} of them new; `
        + `the filters in force accept ${count(answer.in_force)}`;
      return [verdict, ...answer.first.map((frame) => `  ${lineOf(frame)}`)].join("\n");
    }
    case "ok": {
      const ids = answer.ids.map((id) => `filter ${id}, `).join("");
      return [`${ids}epoch ${answer.epoch}`, ...(answer.notes ?? [])].join("\n");
    }
    default: return answer.message ?? JSON.stringify(answer);
  }
}

const NAMES = { rejected: "rejected ones", accepted: "accepted ones" };

export function drawFrames(answer, verdict) {
  const list = byId("frames");
  if (answer?.response !== "frames") {
    list.replaceChildren();
    setText(byId("why-past"), answer?.message ?? "");
    return;
  }
  setText(byId("why-past"), `${count(answer.frames.length)} ${NAMES[verdict] ?? "frames"} among ${past(answer.past)}`);
  list.replaceChildren(...answer.frames.toReversed().map((one) => {
    const why = one.reasons.map((reason) => {
      const primitive = reason.decided === null ? "" : `${reason.decided}: `;
      return element("li", { class: "text" }, `filter ${reason.filter}: ${primitive}${reason.result}`);
    });
    if (why.length > 0 && answer.more_filters > 0) why.push(element("li", {}, `and ${count(answer.more_filters)} more filters`));
    const cutBytes = one.captured - one.bytes.length / 2;
    const rest = cutBytes > 0 ? `\n… ${count(cutBytes)} more bytes` : "";
    return element("li", {}, element("details", {},
      element("summary", { class: "text" }, `${one.verdict === "rejected" ? "✗" : "✓"} ${lineOf(one.frame)}`),
      element("ul", {}, ...why), bytesOf(one.bytes, rest)));
  }));
}

// Bytes as rows of 16, with their letters.
export function bytesOf(digits, rest = "") {
  const rows = [];
  for (let at = 0; at < digits.length; at += 32) {
    const bytes = digits.slice(at, at + 32).match(/../g) ?? [];
    const letters = bytes.map((byte) => {
      const code = parseInt(byte, 16);
      return code >= 0x20 && code < 0x7f ? String.fromCharCode(code) : ".";
    });
    rows.push(`${(at / 2).toString(16).padStart(4, "0")}  ${bytes.join(" ").padEnd(47)}  ${letters.join("")}`);
  }
  return element("pre", { class: "bytes", tabindex: "0", "aria-label": "bytes" }, rows.join("\n") + rest);
}

function author(author) {
  switch (author.kind) {
    case "program": return "the command line";
    case "client": return `user ${author.uid}, ${author.program ?? "a client"}, process ${author.pid}`;
    case "tracker": return `tracker ${author.name}`;
    case "expiry": return "the end of its time";
    default: return "another author";
  }
}

export function drawLog(answer, undo) {
  const list = byId("entries");
  if (answer?.response !== "log") {
    list.replaceChildren(...(answer ? [element("li", {}, answer.message ?? "")] : []));
    return;
  }
  list.replaceChildren(...answer.entries.toReversed().map((entry) => {
    const is_pause = typeof entry.pause === "boolean";
    const what = is_pause ? (entry.pause ? "pauses" : "ends the pause") : `epoch ${entry.epoch}`;
    const head = element("div", { class: "head" }, element("b", {}, what),
      element("span", { class: "soft" }, `${clock(entry.unix_ms)}, ${author(entry.author)}`
        + (entry.undoes ? `, takes back epoch ${entry.undoes}` : "")
        + (entry.undone ? `, taken back in epoch ${entry.undone}` : "")));
    if (!is_pause && entry.author.kind === "client" && !entry.undone) {
      const button = element("button", { type: "button", "aria-label": `Undo epoch ${entry.epoch}` }, "Undo");
      button.addEventListener("click", () => undo(entry.epoch));
      head.append(button);
    }
    const changes = entry.changes.map((change) => element("div", { class: "text" },
      `${change.added ? "+" : "−"} filter ${change.id}${change.label?.name ? ` ${change.label.name}` : ""}: `
      + `${count(change.accepted)} accepted  ${change.text.slice(0, 300)}`));
    if (entry.more_changes > 0) changes.push(element("div", {}, `and ${count(entry.more_changes)} more changes`));
    return element("li", {}, head, ...changes);
  }));
}
