// Draws a graph: nodes as boxes, one column right of the last node that feeds them, and edges that can be chosen.
//
// The shapes are made anew only if nodes or edges change, so that the keyboard's place stays.
const BOX = { width: 190, height: 52, gap: 22, column: 300 };
const shape = (tag, attributes, ...children) => {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
};

export const cut = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);

// Places of the nodes; each node comes after those that feed it.
function layout(nodes) {
  const places = new Map();
  const filled = [];
  for (const node of nodes) {
    const before = node.feeds.filter((feed) => places.has(feed.from));
    const depth = Math.max(-1, ...before.map((feed) => places.get(feed.from).depth)) + 1;
    filled[depth] = (filled[depth] ?? 0) + 1;
    const y = 12 + (filled[depth] - 1) * (BOX.height + BOX.gap);
    places.set(node.id, { depth, x: 12 + depth * BOX.column, y });
  }
  const rows = Math.max(1, ...filled.map((count) => count ?? 0));
  const width = 24 + Math.max(0, filled.length - 1) * BOX.column + BOX.width;
  return { places, width, height: 24 + rows * (BOX.height + BOX.gap) - BOX.gap };
}

function button(group, name, choose) {
  group.setAttribute("role", "button");
  group.setAttribute("tabindex", "0");
  group.setAttribute("aria-label", name);
  group.addEventListener("click", choose);
  group.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    choose();
  });
}

function drawEdge(edge, places, choose) {
  const [from, to] = [places.get(edge.from), places.get(edge.to)];
  const [x1, y1, x2, y2] = [from.x + BOX.width, from.y + BOX.height / 2, to.x, to.y + BOX.height / 2];
  const middle = (x1 + x2) / 2;
  const d = `M${x1} ${y1} C${middle} ${y1} ${middle} ${y2} ${x2} ${y2}`;
  // At the end with one edge, else the labels of all edges to a node would be on one place.
  const place = edge.single ? { x: x2 - 6, y: y2 - 6, "text-anchor": "end" } : { x: x1 + 6, y: y1 - 6 };
  const label = shape("text", { class: "label", ...place });
  const group = shape("g", { class: "edge" }, shape("path", { class: "hit", d }), shape("path", { d }), label);
  if (choose) button(group, "", () => choose(edge));
  return { group, label };
}

function drawNode(node, place, choose) {
  const [x, y] = [place.x, place.y];
  const box = { x, y, width: BOX.width, height: BOX.height, rx: 6 };
  const title = shape("text", { class: "title", x: x + 8, y: y + 21 });
  const line = shape("text", { class: "line", x: x + 8, y: y + 41 });
  const group = shape("g", { class: "node" }, shape("rect", box), title, line);
  if (choose) button(group, "", () => choose(node));
  return { group, title, line };
}

// Draws into `svg`. `texts` gives { title, line, name, marked } of a node and { label, name } of an edge; `choose` has
// the actions { node, edge }, which may be missing.
export function drawGraph(svg, nodes, texts, choose) {
  const known = new Set(nodes.map((node) => node.id));
  const edges = nodes.flatMap((node) => node.feeds.filter((feed) => known.has(feed.from))
    .map((feed) => ({ from: feed.from, to: node.id, class: feed.class ?? null, single: node.feeds.length === 1 })));
  const sign = JSON.stringify([nodes.map((node) => node.id), edges]);
  if (svg.fykeSign !== sign) {
    const { places, width, height } = layout(nodes);
    svg.fykeSign = sign;
    svg.fykeNodes = new Map(nodes.map((node) => [node.id, drawNode(node, places.get(node.id), choose.node)]));
    svg.fykeEdges = edges.map((edge) => ({ edge, ...drawEdge(edge, places, choose.edge) }));
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    // As large as the text of the page.
    svg.style.width = `${width / 16}rem`;
    svg.style.height = `${height / 16}rem`;
    svg.replaceChildren(...svg.fykeEdges.map((one) => one.group),
      ...Array.from(svg.fykeNodes.values(), (one) => one.group));
  }
  const set = (at, text) => { if (at.textContent !== text) at.textContent = text; };
  for (const node of nodes) {
    const { title, line, name, marked } = texts.node(node);
    const drawn = svg.fykeNodes.get(node.id);
    set(drawn.title, cut(title, 22));
    set(drawn.line, cut(line, 27));
    drawn.group.setAttribute("aria-label", name);
    drawn.group.classList.toggle("marked", marked === true);
  }
  for (const { edge, group, label } of svg.fykeEdges) {
    const { label: text, name, marked } = texts.edge(edge);
    set(label, text);
    group.setAttribute("aria-label", name);
    group.classList.toggle("marked", marked === true);
  }
}
