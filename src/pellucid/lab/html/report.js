// The sliders of the report. The page is complete without this script: it only moves what is there.
"use strict";

const words = JSON.parse(document.getElementById("words").textContent);
const fill = (text, values) => text.replace(/\{(\w+)\}/g, (whole, name) => values[name] ?? whole);

const make = (name, className, ...children) => {
  const made = document.createElement(name);
  if (className) made.className = className;
  made.append(...children);
  return made;
};

// "67-79 44-31" as a list of ids.
const expand = (runs) => runs.split(" ").filter(Boolean).flatMap((run) => {
  const [first, last = first] = run.split("-").map(Number);
  const step = last < first ? -1 : 1;
  return Array.from({ length: Math.abs(last - first) + 1 }, (_, i) => first + i * step);
});

// What every block looks like and every table holds at a moment: all changes from the first one on.
function stateAt(data, moment) {
  const blocks = [];
  let tables = new Map();
  for (const [, , , changes, rows] of data.moments.slice(0, moment + 1)) {
    for (const [first, length, look] of changes) {
      for (let block = first; block < first + length; block++) blocks[block] = look;
    }
    tables = new Map(rows.map(([request, , , kept, rest]) =>
      [request, (tables.get(request) ?? []).slice(0, kept).concat(expand(rest))]));
  }
  return { blocks, tables };
}

// In a very large pool a cell stands for several blocks and looks like most of them.
function mostOf(looks) {
  const counts = new Map();
  for (const look of looks) counts.set(look, (counts.get(look) ?? 0) + 1);
  return [...counts].reduce((best, next) => (next[1] > best[1] ? next : best))[0];
}

function drawMap(data, picture, blocks) {
  picture.querySelectorAll(".map b").forEach((cell, i) => {
    const here = data.each === 1 ? blocks[i] : mostOf(blocks.slice(i * data.each, (i + 1) * data.each));
    const [character, kind] = data.cells[here];
    if (cell.className !== kind) cell.className = kind;
    if (cell.textContent !== character) cell.textContent = character;
  });
}

function stripOf(data, blocks, table) {
  const runs = [];
  for (const block of table) {
    const run = runs.at(-1), step = run && block - run.last;
    if (run && run.look === blocks[block] && Math.abs(step) === 1 && (run.first === run.last || run.last > run.first === step > 0)) {
      run.last = block;
    } else {
      runs.push({ first: block, last: block, look: blocks[block] });
    }
  }
  return make("span", "strip", ...runs.map(({ first, last, look }) => {
    const [character, kind] = data.cells[look];
    const box = make("span", kind, ...(kind === "shared" ? [make("b", "", character)] : []));
    box.append(first === last ? first : `${first}–${last}`);
    box.style.setProperty("--n", Math.abs(last - first) + 1);
    return box;
  }));
}

function drawTables(data, picture, blocks, tables, rows) {
  const labels = [...picture.querySelectorAll(".tables thead th")].map((heading) => heading.textContent);
  picture.querySelector(".tables tbody").replaceChildren(...rows.map(([request, status, tokens]) => {
    const [letter, kind, name] = data.requests[request];
    const table = tables.get(request);
    const heading = make("th", "", make("span", "named", make("b", kind, letter), make("span", "", name)));
    heading.scope = "row";
    const numbers = [tokens, table.length, table.length * data.blockSize - tokens].map((number, i) => {
      const cell = make("td", "n", number);
      cell.dataset.label = labels[i + 2];
      return cell;
    });
    return make("tr", "", heading, make("td", "", data.statuses[status]), ...numbers,
      make("td", "", stripOf(data, blocks, table)));
  }));
}

function sentenceOf(data, moment) {
  const [step, added, aborted] = data.moments[moment];
  const parts = [fill(words.step, { step, last: data.moments.at(-1)[0] })];
  if (added.length) parts.push(fill(words.added, { names: added.join(", ") }));
  if (aborted.length) parts.push(fill(words.aborted, { names: aborted.join(", ") }));
  return parts.join(" · ");
}

function start(play) {
  const data = JSON.parse(play.querySelector("script").textContent);
  const slider = play.querySelector("input"), picture = play.querySelector(".picture");
  const run = play.querySelector(".run"), plot = play.querySelector(".plot");
  let timer = null;

  function show() {
    const moment = Number(slider.value), [, , , , rows, totals] = data.moments[moment];
    const { blocks, tables } = stateAt(data, moment);
    drawMap(data, picture, blocks);
    drawTables(data, picture, blocks, tables, rows);
    const [held, cached, free, fenced, tokens, waste] = totals;
    const inNumbers = fill(words.totals, { held, cached, free, fenced, tokens, waste });
    picture.querySelector(".totals").textContent = inNumbers;
    picture.querySelector(".map").setAttribute("aria-label", inNumbers);
    const sentence = sentenceOf(data, moment);
    play.querySelector("output").textContent = sentence;
    slider.setAttribute("aria-valuetext", `${sentence}. ${inNumbers}`);
    play.querySelector(".timeline").style.setProperty("--at", moment);
  }

  function go(moment) {
    slider.value = moment;
    show();
  }

  function pause() {
    clearInterval(timer);
    timer = null;
    run.textContent = words.play;
  }

  function toggle() {
    if (timer) return pause();
    if (slider.value === slider.max) go(0);
    run.textContent = words.pause;
    timer = setInterval(() => (slider.value === slider.max ? pause() : go(Number(slider.value) + 1)), 400);
  }

  function choose(event) {
    const box = plot.getBoundingClientRect();
    go(Math.floor((event.clientX - box.left) / box.width * data.moments.length));
  }

  slider.addEventListener("input", show);
  run.addEventListener("click", toggle);
  play.querySelector(".back").addEventListener("click", () => go(Number(slider.value) - 1));
  play.querySelector(".on").addEventListener("click", () => go(Number(slider.value) + 1));
  plot.addEventListener("pointerdown", choose);
  plot.addEventListener("pointermove", (event) => event.buttons && choose(event));
  document.querySelectorAll(`a[href="#${CSS.escape(play.id)}"][data-moment]`).forEach((link) =>
    link.addEventListener("click", () => go(link.dataset.moment)));
  go(play.dataset.at);
}

// A cell says which block it is and what it means when it is pointed at.
document.addEventListener("pointerover", ({ target }) => {
  if (!target.matches(".map b")) return;
  const group = target.parentElement, figure = target.closest(".play, .exhibit");
  const first = Number(group.firstChild.textContent);
  const block = first + ([...group.children].indexOf(target) - 1) * Number(target.closest(".map").dataset.each);
  const entry = [...figure.querySelectorAll(".legend b")].find((sign) =>
    sign.textContent === target.textContent && sign.className === target.className);
  target.title = fill(words.block, { block, meaning: entry ? entry.nextSibling.textContent : "" });
});

// On paper nothing can be unfolded.
addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((part) => (part.open = true)));

document.documentElement.classList.add("moves");
document.querySelectorAll(".play").forEach(start);
