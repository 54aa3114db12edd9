// The running fyke that is shown, its events, and the actions of the user. Drawing is in draw.js.
//
// Texts of packets and of other users are set as text, never as HTML.
import { drawAnswer, drawCaptures, drawCounts, drawFrames, drawLog, drawNames, drawState } from "/draw.js";
import { drawFleet } from "/fleet.js";
import { startFile, takeLive } from "/file.js";

const HISTORY = 300; // samples, oldest first
const SMOOTHED_MS = 1000; // the shortest time of a rate
const MAX_LINE = 4 << 20; // characters of an event
const token = location.hash.slice(1);
const byId = (id) => document.getElementById(id);

const MAX_FOLLOWED = 16; // fykes with counts

// known: for each process { counts, before, recent, history, ended }. before: the counts of at least a second ago, the
// first of recent. history:
// { seen, accepted } in frames per second, and epoch if a new one began.
const state = { pid: null, fykes: [], known: new Map(), edge: null, frames: null };
let stream = null; // the controller of the open stream
let followed = ""; // the processes of the stream

const fresh = () => ({ counts: null, before: null, recent: [], history: [], ended: null });
function shown() {
  if (!state.known.has(state.pid)) state.known.set(state.pid, fresh());
  return state.known.get(state.pid);
}

// The shown process first, then the rest.
function wanted() {
  const others = state.fykes.map((one) => one.pid).filter((pid) => pid !== state.pid);
  return [...(state.pid === null ? [] : [state.pid]), ...others].slice(0, MAX_FOLLOWED);
}

function send(path, body, signal) {
  const isFile = body instanceof Blob;
  const kind = isFile ? "application/octet-stream" : "application/json";
  const headers = { "Authorization": `Bearer ${token}`, "Content-Type": kind };
  return fetch(path, { method: "POST", headers, body: isFile ? body : JSON.stringify(body), signal });
}

// Makes a request; returns the answer, which may be an error.
async function call(request) {
  if (state.pid === null) return { response: "error", message: "no running fyke" };
  try {
    const answer = await send("/api/call", { pid: state.pid, request });
    return answer.ok ? await answer.json() : { response: "error", message: await answer.text() };
  } catch (error) {
    return { response: "error", message: `fyke web does not answer: ${error.message}` };
  }
}

// Reads events until the stream ends, and opens it again.
async function listen() {
  stream?.abort();
  const own = new AbortController();
  stream = own;
  try {
    const pids = wanted();
    followed = pids.join();
    const answer = await send("/api/events", { pids }, own.signal);
    if (!answer.ok) throw new Error(await answer.text());
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      const { value, done } = await reader.read();
      if (done || own !== stream) break;
      const lines = (rest + value).split("\n");
      rest = lines.pop();
      if (rest.length > MAX_LINE) throw new Error("an event is too long");
      for (const line of lines) if (line !== "" && own === stream) take(JSON.parse(line));
    }
  } catch (error) {
    if (own === stream) drawState("lost", `fyke web does not answer: ${error.message}`);
  }
  if (own !== stream) return;
  if (document.body.dataset.state !== "lost") drawState("lost", "fyke web has closed the stream");
  setTimeout(() => { if (own === stream) listen(); }, 1000);
}

function take(event) {
  if (event.event === "fykes") takeFykes(event);
  else if (event.event === "counts") takeCounts(event);
  else if (event.event === "fleet") drawFleet(event);
  else if (event.event === "ended") {
    if (!state.known.has(event.pid)) state.known.set(event.pid, fresh());
    state.known.get(event.pid).ended = event.reason;
    if (event.pid === state.pid) drawState("ended", event.reason);
  }
}

function takeFykes({ fykes }) {
  state.fykes = fykes;
  for (const pid of state.known.keys()) {
    if (pid !== state.pid && !fykes.some((one) => one.pid === pid)) state.known.delete(pid);
  }
  drawNames(fykes, state.pid);
  drawAll();
  const runs = fykes.some((one) => one.pid === state.pid);
  // The shown one has ended, perhaps to be started again.
  const same = (one) => one.command === state.command && one.source === state.source;
  const next = runs ? undefined : fykes.find((one) => state.pid !== null && same(one))
    ?? (state.pid === null ? fykes.find((one) => one.live) ?? fykes[0] : undefined);
  if (next) choose(next.pid);
  else if (wanted().join() !== followed) listen();
  else if (state.pid === null) drawState("none", "no running fyke of this user");
  else if (!runs) drawState("ended", shown().ended ?? "it has ended");
}

function drawAll() {
  const all = state.fykes.map((one) => ({ ...one, ...(state.known.get(one.pid) ?? fresh()) }));
  drawCaptures(all, state.pid, choose);
}

function choose(pid) {
  const one = state.fykes.find((one) => one.pid === pid);
  Object.assign(state, { pid, command: one?.command, source: one?.source, edge: null, frames: null });
  drawNames(state.fykes, pid);
  drawState("connecting", "connecting");
  byId("edge-note").textContent = "";
  drawFrames(null);
  drawLog(null);
  listen();
}

function takeCounts(counts) {
  if (!state.known.has(counts.pid)) state.known.set(counts.pid, fresh());
  const one = state.known.get(counts.pid);
  const last = one.counts;
  // A kernel's ring hands frames over in blocks of up to 160 ms, so rates are those of at least a second.
  const recent = last && counts.uptime_ms >= last.uptime_ms ? [...one.recent, last] : [];
  while (recent.length > 1 && counts.uptime_ms - recent[1].uptime_ms >= SMOOTHED_MS) recent.shift();
  const before = recent[0] ?? null;
  Object.assign(one, { before, counts, recent });
  if (before) {
    const ms = Math.max(1, counts.uptime_ms - before.uptime_ms);
    const rate = (name) => Math.max(0, counts[name] - before[name]) * 1000 / ms;
    const epoch = counts.epoch === last.epoch ? null : counts.epoch;
    const since = counts.uptime_ms - last.uptime_ms;
    one.history.push({ seen: rate("seen"), accepted: rate("accepted"), epoch, ms: since });
    if (one.history.length > HISTORY) one.history.shift();
  }
  if (state.fykes.length > 1) drawAll();
  if (counts.pid !== state.pid) return;
  drawState(counts.paused ? "paused" : "runs", counts.paused ? "paused: frames are lost" : "runs");
  drawCounts({ ...one, edge: state.edge }, remove, chooseEdge);
  takeLive(counts.pid, one);
}

// The last frames of an edge: the node that filters keeps those that arrive at it.
function chooseEdge({ from, to }) {
  const kept = shown().counts?.kept_at ?? null;
  state.edge = { from, to };
  const verdict = to === kept ? null : from === kept ? "accepted" : undefined;
  byId("edge-note").textContent = verdict === undefined
    ? "the frames of this edge are not kept: only the edges of the filter have their last frames" : "";
  if (verdict !== undefined && kept !== null) showFrames(verdict);
}

// Tries the text while it is typed: one request at a time, the last text wins. An answer to an action stays: `acted`
// counts the actions.
let trying = false;
let tryAgain = false;
let acted = 0;
async function typed() {
  if (trying) { tryAgain = true; return; }
  trying = true;
  do {
    tryAgain = false;
    const [text, before] = [byId("text").value, acted];
    if (text.trim() === "") { drawAnswer(null); continue; }
    const answer = await call({ request: "try", text });
    if (before !== acted) continue;
    if (text === byId("text").value) drawAnswer(answer); else tryAgain = true;
  } while (tryAgain);
  trying = false;
}

async function act(request) {
  acted += 1;
  const answer = await call(request);
  drawAnswer(answer);
  if (byId("entries").children.length > 0) showLog();
  return answer.response === "ok";
}

// A second Enter before the answer adds nothing.
let adding = false;
async function add(event) {
  event.preventDefault();
  const text = byId("text").value;
  if (adding || text.trim() === "") return;
  adding = true;
  if (await act({ request: "add", text }) && byId("text").value === text) byId("text").value = "";
  adding = false;
}

const remove = (id) => act({ request: "delete", id });
const undo = (epoch) => act({ request: "undo", epoch });
const showFrames = async (verdict) => drawFrames(await call({ request: "frames", last: 20, verdict }), verdict);
const showWhy = () => showFrames("rejected");
const showLog = async () => drawLog(await call({ request: "log", last: 30 }), undo);

function pause() {
  if (shown().counts?.paused) return act({ request: "start" });
  const question = "Pause the capture? Frames that arrive meanwhile are lost.";
  return window.confirm(question) ? act({ request: "pause" }) : undefined;
}

const KEYS = { "u": () => undo(null), "r": showWhy, "l": showLog, "/": () => byId("text").focus() };
function key(event) {
  if (event.ctrlKey || event.altKey || event.metaKey) return;
  if (event.key === "Escape") { document.activeElement?.blur(); return; }
  if (/^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName) || !Object.hasOwn(KEYS, event.key)) return;
  event.preventDefault();
  KEYS[event.key]();
}

byId("edit").addEventListener("submit", add);
byId("text").addEventListener("input", typed);
byId("undo").addEventListener("click", () => undo(null));
byId("why").addEventListener("click", showWhy);
byId("accepted").addEventListener("click", () => showFrames("accepted"));
byId("arrived").addEventListener("click", () => showFrames(null));
byId("log").addEventListener("click", showLog);
byId("pause").addEventListener("click", pause);
byId("fykes").addEventListener("change", (event) => choose(Number(event.target.value)));
document.addEventListener("keydown", key);
window.addEventListener("hashchange", () => location.reload());
// A page that is not seen costs nothing, and leaves its connection to others.
document.addEventListener("visibilitychange", () => {
  if (document.hidden) { stream?.abort(); stream = null; } else listen();
});
startFile(send, call);
if (!document.hidden) listen();
