// The group of machines: its filters, and where the last edit is in force. Texts of sensors are set as text.
import { clock, count, drawRows, element, setText } from "/draw.js";

const byId = (id) => document.getElementById(id);
const NEED_A_LOOK = ["refused", "silent", "lags", "unknown"];

// A time; with the day, if it is not today.
function when(ms) {
  const day = (date) => date.toLocaleDateString("sv");
  const date = new Date(ms);
  return day(date) === day(new Date()) ? clock(ms) : `${day(date)} ${clock(ms)}`;
}

const labelled = (labels) => {
  const all = Object.entries(labels).map(([name, value]) => `${name}=${value}`);
  return all.length > 0 ? `[${all.join(" ")}]` : "";
};

const edits = (number) => `${count(number)} ${number === 1 ? "edit" : "edits"}`;
const sensors = (number) => `${count(number)} ${number === 1 ? "sensor" : "sensors"}`;

function summary(view) {
  const { sequence, addressed, everywhere_since_unix_ms: since } = view;
  if (sequence === 0) return view.away ? "nothing is known of the group yet" : "the group has no edit yet";
  const silent = view.silent > 0 ? `; ${sensors(view.silent)} not heard of` : "";
  if (addressed === 0) return `edit ${sequence}: no sensor runs that it is for${silent}`;
  if (since !== null) return `edit ${sequence}: in force everywhere since ${when(since)}, ${sensors(addressed)}${silent}`;
  return `edit ${sequence}: in force at ${count(view.in_force)} of ${sensors(addressed)}${silent}`;
}

function standing(sequence, one) {
  switch (one.standing) {
    case "refused": return `refuses edit ${sequence}: ${one.message}`;
    case "silent": return `not heard of since ${when(one.since_unix_ms)}`;
    case "lags": return `lags by ${edits(one.edits)}`;
    case "in_force": return `edit ${sequence} in force since ${when(one.since_unix_ms)}`
      + (one.epoch === null ? "" : `, from local epoch ${one.epoch} on`);
    case "not_addressed": return `edit ${sequence} is not for it`;
    default: return sequence === 0 ? "" : `has not answered edit ${sequence}`;
  }
}

const make = () => element("li", {},
  element("div", { class: "head" }, element("b"), element("span", { class: "soft" })),
  element("div", { class: "text" }));

function drawSensor(row, sequence, one) {
  const [name, about] = row.firstChild.children;
  setText(name, one.name);
  const captures = one.source === null ? "no fyke beside it" : `captures ${one.source}, local epoch ${one.epoch}`;
  const refused = one.refused > 0 ? `${edits(one.refused)} refused` : "";
  setText(about, [labelled(one.labels), `on ${one.host}`, captures, refused].filter(Boolean).join(", "));
  const needsALook = NEED_A_LOOK.includes(one.standing.standing);
  row.lastChild.classList.toggle("refused", needsALook && sequence > 0);
  setText(row.lastChild, [standing(sequence, one.standing), one.trouble].filter(Boolean).join("; "));
}

export function drawFleet(view) {
  byId("fleet").hidden = false;
  byId("fleet").classList.toggle("old", view.away !== null);
  setText(byId("head-fleet"), `Fleet: the group ${view.group}`);
  setText(byId("fleet-away"), view.away === null ? ""
    : `the broker has not answered since ${when(view.away.since_unix_ms)}, so the rest is old: ${view.away.reason}`);
  setText(byId("fleet-line"), summary(view));
  drawRows(byId("fleet-sensors"), view.sensors.map((one) => ({ key: one.name, one })), make,
    (row, { one }) => drawSensor(row, view.sequence, one));
  setText(byId("fleet-more-sensors"), view.more_sensors > 0 ? `and ${sensors(view.more_sensors)} more` : "");
  setText(byId("fleet-more-filters"), view.more_filters > 0 ? `${count(view.more_filters)} older filters, then:` : "");
  drawRows(byId("fleet-filters"), view.filters.map((one) => ({ key: one.id, one })), make, (row, { one }) => {
    const [id, about] = row.firstChild.children;
    setText(id, `filter ${one.id}`);
    setText(about, [`by ${one.author}`, labelled(one.only)].filter(Boolean).join(", "));
    setText(row.lastChild, one.text);
  });
  setText(byId("fleet-command"), `fyke fleet add --group ${view.group} --trust FILE --key FILE 'FILTER'`);
}
