// A capture file that is dropped onto the page: its first frames under a filter, and a drawn graph that runs on it, or
// live in a running `fyke run`.
import { bytesOf, count, element, perSecond, setText } from "/draw.js";
import { drawGraph } from "/graph.js";

const SOURCE = "(pcapin, expression=-)";
const byId = (id) => document.getElementById(id);
// nodes: of the checked text. tree: true if every node has at most one edge to it. chosen: id of a node.
// counts: of each node, frames of the file, or frames per second while the graph runs live. shown: the process of the
// page and its counts. live: { pid, id, graph, nodes }, the graph that runs, with the text of the running source.
const state = { file: null, nodes: [], tree: false, chosen: null, counts: null, shown: null, live: null };
let send = null;
let call = null;

async function ask(look) {
  try {
    const answer = await send("/api/look", look);
    return answer.ok ? await answer.json() : { error: await answer.text() };
  } catch (error) {
    return { error: `fyke web does not answer: ${error.message}` };
  }
}

function say(id, text, refused = false) {
  setText(byId(id), text);
  byId(id).classList.toggle("refused", refused);
}

async function takeFile(file) {
  if (!file) return;
  say("file-note", `${file.name}: sending`);
  try {
    const answer = await send("/api/file", file);
    if (!answer.ok) throw new Error(await answer.text());
    const kept = await answer.json();
    state.file = kept.file;
    say("file-note", `${file.name}: ${count(kept.bytes)} bytes`);
    await showFile();
  } catch (error) {
    say("file-note", error.message, true);
  }
}

async function showFile(event) {
  event?.preventDefault();
  if (state.file === null) return say("look-answer", "no file yet: drop one onto the page", true);
  const filter = byId("look-text").value;
  const [frames, run] = await Promise.all([
    ask({ look: "frames", file: state.file, filter }),
    ask({ look: "run", file: state.file, graph: `${SOURCE} > (bpf, expression=${quoted(filter)})` }),
  ]);
  const error = frames.error ?? run.error;
  say("look-answer", error ?? `${run.notes}\nthe first ${count(frames.length)}:`, error !== undefined);
  byId("look-frames").replaceChildren(...(error === undefined ? frames : []).map((one) => element("li", {},
    element("details", {}, element("summary", { class: "text" }, one.line), bytesOf(one.bytes)))));
}

const quoted = (text) => `"${text.replaceAll("\\", "\\\\").replaceAll('"', '\\"')}"`;

// Checks the text: one request at a time, the last text wins.
let checking = false;
let again = false;
async function check() {
  if (checking) { again = true; return; }
  checking = true;
  do {
    again = false;
    const graph = byId("graph-text").value;
    const answer = await ask({ look: "draw", graph });
    if (graph !== byId("graph-text").value) { again = true; continue; }
    say("drawn", answer.error ?? answer.notes.join("\n"), answer.error !== undefined);
    byId("graph-text").setAttribute("aria-invalid", answer.error !== undefined);
    byId("run").disabled = answer.error !== undefined;
    showButtons();
    if (answer.error !== undefined) continue;
    state.counts = null;
    state.nodes = answer.nodes;
    state.tree = isTree(answer.nodes);
    if (!state.nodes.some((one) => one.id === state.chosen)) state.chosen = state.nodes.at(-1)?.id ?? null;
    draw();
  } while (again);
  checking = false;
}

// One source, at most one edge to each node, and no edge for a class value beside another edge.
function isTree(nodes) {
  const below = (id) => nodes.flatMap((one) => one.feeds.filter((feed) => feed.from === id));
  return nodes.filter((one) => one.feeds.length === 0).length === 1
    && nodes.every((one) => one.feeds.length <= 1)
    && nodes.every((one) => below(one.id).length < 2 || below(one.id).every((feed) => feed.class === null));
}

function draw() {
  const counts = state.counts;
  const of = (id) => counts?.[id];
  const frames = isLive() ? perSecond : count;
  // Live, the running source takes the place of the file.
  const runs = (one) => isLive() && one.feeds.length === 0 && state.live.nodes.find((node) => node.id === one.id);
  const node = (one) => ({
    title: runs(one) ? runs(one).text : one.node,
    line: of(one.id) ? `${frames(of(one.id).arrived)} → ${frames(of(one.id).passed)}` : one.text,
    name: `${one.node}: ${one.text}${one.id === state.chosen ? ", chosen" : ""}`,
    marked: one.id === state.chosen,
  });
  const edge = ({ from, to, class: value, single }) => {
    const known = !counts ? "" : single ? frames(of(to).arrived) : value === null ? frames(of(from).passed) : "";
    const label = [value === null ? "" : `class ${value}`, known].filter(Boolean).join("  ");
    return { label, name: `edge: ${label}` };
  };
  const choose = (one) => { state.chosen = one.id; draw(); };
  drawGraph(byId("drawing"), state.nodes, { node, edge }, { node: choose });
  byId("append").disabled = !state.tree;
  byId("drop").disabled = !state.tree || state.chosen === null || state.chosen === 0;
}

// The text of a graph in which every node has at most one edge to it.
function textOf(nodes) {
  const below = (id) => nodes.filter((one) => one.feeds.some((feed) => feed.from === id));
  const part = (one) => {
    const next = below(one.id);
    const arrow = ({ feeds }) => (feeds[0].class === null ? ">" : `-${feeds[0].class}->`);
    if (next.length === 0) return one.text;
    if (next.length === 1) return `${one.text} ${arrow(next[0])} ${part(next[0])}`;
    const branch = (each) => (below(each.id).length > 0 ? `[${part(each)}]` : part(each));
    return `${one.text} > [${next.map(branch).join(" | ")}]`;
  };
  const source = nodes.find((one) => one.feeds.length === 0);
  return source ? part(source) : "";
}

function write(nodes) {
  const text = textOf(nodes);
  byId("graph-text").value = text;
  return check();
}

function append() {
  const given = byId("parameters").value.trim();
  const parameters = given === "" ? "" : /^\w+=/.test(given) ? `, ${given}` : `, expression=${quoted(given)}`;
  const id = Math.max(-1, ...state.nodes.map((one) => one.id)) + 1;
  const text = `(${byId("class").value}${parameters})`;
  write([...state.nodes, { id, text, feeds: [{ from: state.chosen, class: null }] }]);
}

// Removes the chosen node; the nodes after it follow the node before it.
function drop() {
  const gone = state.nodes.find((one) => one.id === state.chosen);
  if (!gone || gone.feeds.length === 0) return;
  const moved = (feed) => (feed.from === gone.id ? gone.feeds[0] : feed);
  const rest = state.nodes.filter((one) => one !== gone);
  state.chosen = gone.feeds[0].from;
  write(rest.map((one) => ({ ...one, feeds: one.feeds.map(moved) })));
}

async function run() {
  if (state.file === null) return say("drawn", "no file yet: drop one onto the page", true);
  const answer = await ask({ look: "run", file: state.file, graph: byId("graph-text").value });
  if (answer.error !== undefined) return say("drawn", answer.error, true);
  const counters = answer.nodes.flatMap((one) => Object.entries(one.counters)
    .map(([name, value]) => `${one.node}  ${name}  ${count(value)}`));
  say("drawn", [answer.notes, ...counters].join("\n"));
  state.counts = answer.nodes;
  draw();
}

// A fyke that runs graphs takes one more, with its own source in place of the file.
function liveSource() {
  const counts = state.shown?.counts;
  if (!counts?.filters.some((one) => one.kind === "graph")) return null;
  return counts.nodes.find((one) => (one.feeds ?? []).length === 0) ?? null;
}

const isLive = () => state.live !== null && state.live.pid === state.shown?.pid
  && state.live.graph === byId("graph-text").value;

function showButtons() {
  byId("live").disabled = byId("run").disabled || liveSource() === null;
  byId("live-stop").disabled = state.live === null || state.live.pid !== state.shown?.pid;
}

async function runLive() {
  const source = liveSource();
  if (source === null) return say("drawn", "the shown fyke runs no graphs: start fyke run", true);
  const graph = byId("graph-text").value;
  const { pid, counts } = state.shown;
  const before = state.live?.pid === pid && counts.filters.some((one) => one.id === state.live.id) ? state.live : null;
  const text = graph.replace(/\(\s*pcapin\s*,[^)]*\)/i, () => source.text);
  const removed = before ? [{ change: "delete", id: before.id }] : [];
  const nodes = state.nodes.map((one) => (one.feeds.length > 0 ? one : { ...one, text: source.text }));
  const answer = await call({ request: "edit", changes: [...removed, { change: "add", text }] });
  if (answer.response !== "ok") return say("drawn", answer.message ?? JSON.stringify(answer), true);
  state.live = { pid, id: answer.ids[0], graph, nodes };
  say("drawn", [`it runs as graph ${answer.ids[0]} of process ${pid}, epoch ${answer.epoch}`, ...(answer.notes ?? [])]
    .join("\n"));
  showButtons();
}

async function stopLive() {
  if (state.live === null) return;
  const answer = await call({ request: "delete", id: state.live.id });
  const isOk = answer.response === "ok";
  say("drawn", isOk ? `graph ${state.live.id} is removed, epoch ${answer.epoch}` : answer.message, !isOk);
  if (!isOk) return;
  Object.assign(state, { live: null, counts: null });
  showButtons();
  draw();
}

// The running nodes of the drawn ones: of the same text, fed by the same nodes. Null if one is missing.
function running(drawn, nodes) {
  const found = [];
  const used = new Set();
  const key = (feeds, of) => feeds.map((feed) => `${of(feed.from)} ${feed.class ?? null}`).sort().join();
  for (const one of drawn) {
    const [text, feeds] = [one.text.replace(/^!/, ""), key(one.feeds, (from) => found[from]?.id)];
    const fits = (node) => !used.has(node.id) && node.text === text && key(node.feeds ?? [], (from) => from) === feeds;
    const node = nodes.find(fits);
    if (!node) return null;
    used.add(node.id);
    found[one.id] = node;
  }
  return found;
}

// Takes the counts of the shown process: the rates of the graph that runs there are drawn on its edges.
export function takeLive(pid, { counts, before }) {
  state.shown = { pid, counts };
  showButtons();
  if (!isLive() || !before) return;
  const nodes = running(state.live.nodes, counts.nodes);
  const earlier = new Map(before.nodes.map((one) => [one.id, one]));
  const ms = Math.max(1, counts.uptime_ms - before.uptime_ms);
  const rate = (one, name) => Math.max(0, one[name] - (earlier.get(one.id)?.[name] ?? one[name])) * 1000 / ms;
  state.counts = nodes?.map((one) => ({ arrived: rate(one, "arrived"), passed: rate(one, "passed") })) ?? null;
  draw();
}

function save() {
  const url = URL.createObjectURL(new Blob([`${byId("graph-text").value}\n`], { type: "text/plain" }));
  element("a", { href: url, download: "graph.fyke" }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

async function fillClasses() {
  const classes = await ask({ look: "classes" });
  if (!Array.isArray(classes)) return say("drawn", classes.error, true);
  byId("class").replaceChildren(...classes.map((one) => new Option(one.name, one.name, false, one.name === "bpf")));
  const tell = () => setText(byId("class-note"), classes.find((one) => one.name === byId("class").value)?.summary ?? "");
  byId("class").addEventListener("change", tell);
  tell();
}

export function startFile(sender, caller) {
  send = sender;
  call = caller;
  byId("open").addEventListener("change", (event) => takeFile(event.target.files[0]));
  byId("look").addEventListener("submit", showFile);
  byId("graph-text").addEventListener("input", check);
  byId("append").addEventListener("click", append);
  byId("drop").addEventListener("click", drop);
  byId("run").addEventListener("click", run);
  byId("live").addEventListener("click", runLive);
  byId("live-stop").addEventListener("click", stopLive);
  byId("save").addEventListener("click", save);
  const has = (event) => event.dataTransfer?.types.includes("Files");
  const mark = (is) => document.body.classList.toggle("dropping", is);
  window.addEventListener("dragover", (event) => { if (has(event)) { event.preventDefault(); mark(true); } });
  window.addEventListener("dragleave", (event) => { if (event.relatedTarget === null) mark(false); });
  window.addEventListener("drop", (event) => {
    if (!has(event)) return;
    event.preventDefault();
    mark(false);
    takeFile(event.dataTransfer.files[0]);
  });
  byId("graph-text").value = `${SOURCE} > (packetcount)`;
  fillClasses();
  check();
}
