"use strict";
const { n_layers: nLayers, tasks } = JSON.parse(document.getElementById("data").textContent);
const text = document.getElementById("text"), second = document.getElementById("second");
const status = document.getElementById("status"), tree = document.getElementById("tree");
const wood = document.getElementById("wood"), strata = document.getElementById("strata");
const list = document.getElementById("tasks");
const SHOWN_CLASSES = 5, MANY_TASKS = 6, PAUSE = 250;

/** An element with attributes and children; text is never read as HTML. */
function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

function shape(name, attributes, title) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (title) made.append(Object.assign(document.createElementNS("http://www.w3.org/2000/svg", "title"), { textContent: title }));
  wood.append(made);
  return made;
}

const layers = (n) => (n === 1 ? "1 layer" : `${n} layers`);

function leaves(task) {
  if (task.shares !== "compute") return `shares storage, computes ${layers(nLayers)} itself`;
  const own = nLayers - task.depth;
  return `leaves after layer ${task.depth} of ${nLayers}, ${own ? `then ${layers(own)} of its own` : "only its head is its own"}`;
}

// The task that leaves highest comes first, as on a tree.
const shown = [...tasks].sort((a, b) => b.depth - a.depth || a.id.localeCompare(b.id));
const deepest = Math.max(0, ...tasks.map((task) => task.depth));
const cards = new Map();

function build() {
  list.classList.toggle("many", tasks.length > MANY_TASKS);
  for (let layer = nLayers; layer >= 0; layer -= 1) {
    const kind = layer <= deepest ? "shared" : "apart";
    strata.append(element("li", { class: kind, "data-layer": layer }, layer ? `layer ${layer}` : "embeddings"));
  }
  for (const task of shown) {
    const score = task.score === null ? "" : ` · ${task.metric ?? "score"} ${task.score.toFixed(3)}`;
    const answer = element("div", { class: "answer" }, "·");
    const bars = element("div", { class: "bars" });
    const facts = element("p", { class: "facts" }, leaves(task));
    const hash = element("code", { title: `bundle ${task.bundle}` }, task.bundle.slice(0, 8));
    const head = element("h2", {}, task.id, element("small", {}, `${task.kind}${score} · `, hash));
    const card = element("li", { class: "card", "data-task": task.id }, head, answer, bars, facts);
    list.append(card);
    cards.set(task.id, { card, answer, bars, facts, hash });
  }
}

/** Draws the trunk and one branch per task, with a bud for each layer of the task's own. */
function draw() {
  wood.replaceChildren();
  const frame = tree.getBoundingClientRect();
  wood.setAttribute("viewBox", `0 0 ${frame.width} ${frame.height}`);
  const levels = new Map([...strata.children].map((row) => [Number(row.dataset.layer), row.getBoundingClientRect()]));
  const edge = levels.get(0).right - frame.left;
  const x = edge + 14;
  const top = (layer) => levels.get(layer).top - frame.top + 4;
  const bottom = levels.get(0).bottom - frame.top;
  const ordered = [...shown].reverse();
  for (const task of ordered) {
    const box = cards.get(task.id).card.getBoundingClientRect();
    const start = task.shares === "compute" ? top(task.depth) : bottom - 4;
    const end = box.top - frame.top + 24, right = box.left - frame.left, bend = (right - x) * 0.55;
    const path = `M${x},${start} C${x + bend},${start} ${right - bend},${end} ${right},${end}`;
    const look = `branch ${task.shares} ${cards.get(task.id).card.classList.contains("skipped") ? "skipped" : ""}`;
    // Dashes are counted in path lengths, so that a branch of any length grows from end to end.
    const unit = task.shares === "compute" ? { pathLength: 1 } : {};
    const branch = shape("path", { d: path, class: look, "data-task": task.id, ...unit }, leaves(task));
    const length = branch.getTotalLength(), own = nLayers - task.depth;
    for (let bud = 1; bud <= own; bud += 1) {
      const at = branch.getPointAtLength((length * bud) / (own + 1));
      shape("circle", { cx: at.x, cy: at.y, r: Math.max(2, Math.min(5, length / (3 * own + 6))), class: "bud" });
    }
  }
  if (tasks.some((task) => task.shares === "compute")) {
    shape("path", { d: `M${x},${bottom} L${x},${top(deepest)}`, class: "trunk" });
  }
}

function showItem(task, item) {
  const { answer, bars } = cards.get(task);
  if ("value" in item) {
    answer.textContent = item.value.toFixed(3);
    bars.replaceChildren();
    return;
  }
  answer.textContent = item.label;
  bars.replaceChildren(...item.top_k.map(({ label, prob }) => {
    const filled = element("span", { class: "filled" });
    filled.style.width = `${100 * prob}%`;
    const percent = `${(100 * prob).toFixed(1)}%`;
    return element("div", { class: "bar", title: `${label}: ${prob}` },
      element("span", { class: "name" }, label), element("span", { class: "track" }, filled), element("span", { class: "share" }, percent));
  }));
}

function show(found, milliseconds) {
  let passes = 0, alone = 0, highest = 0;
  for (const task of shown) {
    const result = found.results[task.id], { card, answer, bars, facts, hash } = cards.get(task.id);
    card.classList.toggle("skipped", !result);
    if (!result) {
      answer.textContent = "·";
      bars.replaceChildren();
      facts.textContent = found.skipped[task.id] ?? "is not served any more";
      continue;
    }
    Object.assign(task, { depth: result.depth, shares: result.shares, bundle: result.bundle });
    hash.textContent = result.bundle.slice(0, 8);
    hash.title = `bundle ${result.bundle}`;
    facts.textContent = leaves(task);
    showItem(task.id, result.data[0]);
    highest = Math.max(highest, task.depth);
    passes += nLayers - task.depth;
    alone += nLayers;
  }
  passes += highest;
  const saved = passes && alone > passes ? `: ${layers(passes)} computed instead of ${alone}, ${(alone / passes).toFixed(1)}× less` : "";
  status.textContent = `${found.usage.prompt_tokens} tokens, ${milliseconds.toFixed(0)} ms${saved}`;
  status.className = "";
  draw();
  tree.classList.remove("flow");
  void tree.offsetWidth; // starts the animation again
  tree.classList.add("flow");
}

let asking = null, timer = 0;

async function ask() {
  asking?.abort();
  const first = text.value;
  if (!first.trim()) return;
  asking = new AbortController();
  const input = second?.value.trim() ? { input_pairs: [[first, second.value]] } : { input: first };
  const body = JSON.stringify({ ...input, tasks: "all", top_k: SHOWN_CLASSES, truncate: true });
  const started = performance.now();
  try {
    const headers = { "Content-Type": "application/json" };
    // With the origin: an address with a password in it cannot be the base of a request.
    const answer = await fetch(`${location.origin}/v1/classify/combined`, { method: "POST", body, headers, signal: asking.signal });
    const found = await answer.json();
    if (!answer.ok) throw new Error(found.error.message);
    show(found, performance.now() - started);
  } catch (error) {
    if (error.name === "AbortError") return;
    status.textContent = error.message;
    status.className = "wrong";
  }
}

function later() {
  clearTimeout(timer);
  timer = setTimeout(ask, PAUSE);
}

build();
draw();
text.addEventListener("input", later);
second?.addEventListener("input", later);
document.getElementById("form").addEventListener("submit", (event) => event.preventDefault());
for (const example of document.querySelectorAll(".examples button")) {
  example.addEventListener("click", () => {
    text.value = example.textContent;
    text.focus();
    ask();
  });
}
new ResizeObserver(draw).observe(tree);
