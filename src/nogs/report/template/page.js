"use strict";
// The page's own script: tables that sort, figures that enlarge, and the gallery. Nothing is fetched.
(() => {
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];

  for (const table of all("table")) {
    const heads = all("th", table);
    heads.forEach((head, column) => head.querySelector("button").addEventListener("click", () => {
      const up = head.getAttribute("aria-sort") !== "ascending";
      heads.forEach((other) => other.setAttribute("aria-sort", "none"));
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      const body = table.tBodies[0];
      const key = (row) => row.cells[column].dataset.value;
      const number = (text) => (text === "inf" ? Infinity : Number(text));
      const numeric = [...body.rows].every((row) => key(row) !== "" && !Number.isNaN(number(key(row))));
      const order = numeric
        ? (a, b) => { const [x, y] = [number(key(a)), number(key(b))]; return x === y ? 0 : x < y ? -1 : 1; }
        : (a, b) => key(a).localeCompare(key(b), undefined, { numeric: true });
      body.append(...[...body.rows].sort((a, b) => (up ? order(a, b) : order(b, a))));
    }));
  }

  const light = document.querySelector("dialog.light");
  const held = light.querySelector(".held");
  const buttons = all(".enlarge");
  let shown = 0;
  const show = (place) => {
    shown = (place + buttons.length) % buttons.length;
    // the version for phones or for wide screens, whichever is visible
    const seen = all(":scope > span", buttons[shown]).find((part) => part.getClientRects().length) ?? buttons[shown].firstElementChild;
    const picture = seen.firstElementChild.cloneNode(true);
    held.style.cssText = buttons[shown].style.cssText;
    held.replaceChildren(picture);
    light.querySelector(".title").textContent = buttons[shown].parentElement.querySelector("h3").textContent;
    if (!light.open) light.showModal();
  };
  buttons.forEach((button, place) => button.addEventListener("click", () => show(place)));
  light.querySelector(".before").addEventListener("click", () => show(shown - 1));
  light.querySelector(".after").addEventListener("click", () => show(shown + 1));
  light.addEventListener("click", (event) => { if (event.target === light) light.close(); });
  light.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (step) { event.preventDefault(); show(shown + step); }
  });

  const source = document.getElementById("looks");
  if (!source) return;
  const { grid, images, colours, opening } = JSON.parse(source.textContent);
  const STEPS = ["#E69F00", "#56B4E9", "#009E73", "#F0E442", "#CC79A7", "#D55E00"];
  const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  const table = bytes(colours);
  const colour = (strength) => `rgb(${table[3 * strength]} ${table[3 * strength + 1]} ${table[3 * strength + 2]})`;
  const home = document.getElementById("gallery");
  const find = (name) => home.querySelector(`.${name}`);
  const viewer = find("viewer");
  const state = { image: opening, look: 0, step: 1 };
  const pictures = images.map((image) => { const picture = new Image(); picture.src = image.src; return picture; });

  const borders = (positions) => {
    const centre = positions.map((p) => p + grid.glimpse / 2);
    if (centre.length === 1) return [centre[0] - grid.glimpse / 2, centre[0] + grid.glimpse / 2];
    const middle = centre.slice(1).map((c, n) => (c + centre[n]) / 2);
    return [2 * centre[0] - middle[0], ...middle, 2 * centre.at(-1) - middle.at(-1)];
  };
  const [tops, lefts] = [borders(grid.rows), borders(grid.columns)];

  // a canvas as sharp as the screen, in the image's own coordinates
  const open = (canvas, width) => {
    const wide = width ?? canvas.clientWidth;
    const ratio = window.devicePixelRatio || 1;
    canvas.width = Math.max(1, Math.round(wide * ratio));
    canvas.height = Math.max(1, Math.round((canvas.width * grid.height) / grid.width));
    const pen = canvas.getContext("2d");
    pen.setTransform(canvas.width / grid.width, 0, 0, canvas.height / grid.height, 0, 0);
    pen.imageSmoothingEnabled = false;
    return { pen, pixel: grid.width / canvas.width * ratio };
  };
  const boxes = ({ pen, pixel }, pixels, line) => pixels.forEach(([row, column], n) => {
    pen.lineWidth = line * pixel;
    pen.strokeStyle = STEPS[n % STEPS.length];
    pen.strokeRect(column, row, grid.glimpse, grid.glimpse);
    if (line < 2) return;
    pen.font = `bold ${13 * pixel}px system-ui, sans-serif`;
    pen.textBaseline = "top";
    pen.lineWidth = 3 * pixel;
    pen.strokeStyle = "#000";
    const again = pixels.slice(0, n).filter(([r, c]) => r === row && c === column).length;
    const place = [column + (3 + 10 * again) * pixel, row + 2 * pixel];
    pen.strokeText(n + 1, ...place);
    pen.fillStyle = STEPS[n % STEPS.length];
    pen.fillText(n + 1, ...place);
  });
  const paper = () => getComputedStyle(document.documentElement).getPropertyValue("--unseen");

  const drawWhole = (canvas, picture, pixels, line, width) => {
    const tools = open(canvas, width);
    tools.pen.drawImage(picture, 0, 0, grid.width, grid.height);
    boxes(tools, pixels, line);
  };
  const drawSeen = (canvas, picture, pixels) => {
    const { pen } = open(canvas);
    pen.fillStyle = paper();
    pen.fillRect(0, 0, grid.width, grid.height);
    const [x, y] = [picture.naturalWidth / grid.width, picture.naturalHeight / grid.height], side = grid.glimpse;
    for (const [row, column] of pixels) {
      pen.drawImage(picture, column * x, row * y, side * x, side * y, column, row, side, side);
    }
  };
  const drawMap = (canvas, map, [row, column]) => {
    const { pen, pixel } = open(canvas);
    pen.fillStyle = paper();
    pen.fillRect(0, 0, grid.width, grid.height);
    if (!map) return;
    const strengths = bytes(map.data);
    strengths.forEach((strength, place) => {
      if (!strength) return;
      const [i, j] = [Math.floor(place / grid.columns.length), place % grid.columns.length];
      pen.fillStyle = colour(strength);
      // a hair wider than the cell, so that no seam shows
      pen.fillRect(lefts[j], tops[i], lefts[j + 1] - lefts[j] + pixel / 2, tops[i + 1] - tops[i] + pixel / 2);
    });
    const [x, y, arm] = [column + grid.glimpse / 2, row + grid.glimpse / 2, 7 * pixel];
    for (const [ink, line] of [["#fff", 6], ["#D55E00", 3]]) {
      pen.strokeStyle = ink;
      pen.lineWidth = line * pixel;
      pen.beginPath();
      pen.moveTo(x - arm, y - arm); pen.lineTo(x + arm, y + arm);
      pen.moveTo(x - arm, y + arm); pen.lineTo(x + arm, y - arm);
      pen.stroke();
    }
  };

  const percent = (share) => `${(100 * share).toFixed(share < 0.1 ? 1 : 0)} %`;
  const told = (look, t, total) => {
    const [row, column] = look.pixels[t];
    let text = `Glimpse ${t + 1} of ${total}, at row ${row}, column ${column}.`;
    if (look.entropy) text += ` The posterior's entropy before it was ${look.entropy[t].toFixed(2)} nats (0 is certainty)`;
    if (look.entropy && look.epe) text += `, expected after it ${look.epe[t].toFixed(2)}${look.error ? ` ± ${look.error[t].toFixed(2)}` : ""}`;
    if (look.entropy) text += ".";
    if (look.entropy && t + 1 < total) text += ` After it, it was ${look.entropy[t + 1].toFixed(2)}.`;
    if (look.answers) {
      const [name, share] = look.answers[t + 1];
      const right = name === look.truth ? "right" : `wrong, it is ${look.truth}`;
      text += ` ${t + 1 === total ? "It says" : "So far it would say"} ${name} (${percent(share)}): ${right}.`;
    }
    return text;
  };

  // after every glimpse: the probability of each class, or the entropy along a sequence
  const INK = ["#009E73", "#56B4E9", "#E69F00", "#CC79A7", "#D55E00", "#0072B2", "#A83260", "#999999"];
  const shape = (tag, attributes, text) => {
    const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
    if (text !== undefined) node.textContent = text;
    return node;
  };
  const drawBelief = (look, step) => {
    const chart = find("chart"), words = find("chart-words");
    const lines = look.beliefs
      ? look.names.map((name, k) => ({ name, ink: INK[k], values: look.beliefs.map((row) => row[k]), from: 0 }))
      : look.entropy ? [{ name: "entropy (nats)", ink: INK[1], values: look.entropy, from: 0 }] : [];
    chart.parentElement.hidden = !lines.length;
    if (!lines.length) return;
    const last = look.pixels.length, top = look.beliefs ? 1 : Math.max(...look.entropy, 1e-6) * 1.05;
    const [left, right, high, low] = [42, 308, 14, 208];
    const x = (n) => left + ((right - left) * n) / Math.max(1, last);
    const y = (value) => low - ((low - high) * value) / top;
    const parts = [0, 0.5, 1].map((share) => shape("line", { class: "axis", x1: left, x2: right, y1: y(share * top), y2: y(share * top) }));
    parts.push(...[0, 0.5, 1].map((share) => shape("text", { x: left - 6, y: y(share * top) + 4, "text-anchor": "end" }, look.beliefs ? `${100 * share}%` : (share * top).toFixed(1))));
    for (let n = 0; n <= last; n += 1) parts.push(shape("text", { x: x(n), y: low + 18, "text-anchor": "middle" }, n));
    parts.push(shape("text", { x: right, y: low + 31, "text-anchor": "end" }, "glimpses seen"));
    const at = look.beliefs ? step : step - 1;
    parts.push(shape("line", { class: "now", x1: x(at), x2: x(at), y1: high, y2: low }));
    for (const line of [...lines].reverse()) {
      parts.push(shape("polyline", { class: line.name === look.truth ? "true" : "", points: line.values.map((value, n) => `${x(n)},${y(value)}`).join(" "), stroke: line.ink }));
      parts.push(...line.values.map((value, n) => shape("circle", { cx: x(n), cy: y(value), r: n === at ? 5 : 2.5, fill: line.ink })));
    }
    chart.replaceChildren(...parts);
    const key = document.createElement("ul");
    key.className = "key";
    key.append(...lines.map((line) => {
      const entry = document.createElement("li"), dot = document.createElement("i"), value = line.values[Math.min(at, line.values.length - 1)];
      dot.style.background = line.ink;
      entry.className = line.name === look.truth ? "true" : "";
      entry.append(dot, `${line.name}${line.name === look.truth ? " (true)" : ""}: ${look.beliefs ? percent(value) : value.toFixed(2)}`);
      return entry;
    }));
    words.replaceChildren(look.beliefs ? "probability of each class after each glimpse" : "entropy before each glimpse", key);
    chart.setAttribute("aria-label", words.textContent);
  };

  const draw = () => {
    const image = images[state.image];
    const look = image.looks[state.look];
    const total = look.pixels.length;
    const t = state.step - 1;
    const sofar = look.pixels.slice(0, state.step);
    const picture = pictures[state.image];
    find("name").textContent = image.label || image.id;
    find("where").textContent = image.split;
    find("id").textContent = image.id;
    const range = find("step");
    range.max = total;
    range.value = state.step;
    range.setAttribute("aria-valuetext", `glimpse ${state.step} of ${total}`);
    find("back").disabled = state.step === 1;
    find("next").disabled = state.step === total;
    find("told").textContent = told(look, t, total);
    const map = look.maps[t];
    const ours = look.kind === "sequence";
    find("meaning").textContent = map
      ? (ours ? "expected entropy after looking there (nats); brightest is least"
        : look.greedy ? "score of each location; the network takes the brightest" : "probability of each location for this glimpse")
      : "no map of this step was kept";
    find("range").hidden = !map || look.greedy;
    if (map) {
      find("low").textContent = ours ? map.high : "0";
      find("high").textContent = ours ? map.low : percent(map.high);
    }
    drawBelief(look, state.step);
    const strip = look.completions && look.completions[t];
    find("completed").hidden = !strip;
    if (strip) find("completions").src = strip;
    const file = find("source");
    file.href = look.source;
    file.textContent = decodeURIComponent(look.source);
    const whole = find("whole"), seen = find("seen"), place = find("map");
    whole.setAttribute("aria-label", `The image with ${state.step} glimpses`);
    seen.setAttribute("aria-label", `All that ${state.step} glimpses show of the image`);
    place.setAttribute("aria-label", find("meaning").textContent);
    drawWhole(whole, picture, sofar, 2.5);
    drawSeen(seen, picture, sofar);
    drawMap(place, map, look.pixels[t]);
    all(".lookers button", home).forEach((button, n) => {
      button.setAttribute("aria-pressed", n === state.look);
      drawWhole(button.firstElementChild, picture, image.looks[n].pixels.slice(0, state.step), 1.5, 52);
    });
    all(".thumbs button", home).forEach((button, n) => button.setAttribute("aria-current", n === state.image));
    viewer.dataset.at = `${state.image}/${state.look}/${state.step}`;
  };

  const lookers = () => find("lookers").replaceChildren(...images[state.image].looks.map((look, n) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(document.createElement("canvas"), look.who);
    button.addEventListener("click", () => { play(false); state.look = n; state.step = Math.min(state.step, look.pixels.length); draw(); });
    return button;
  }));
  const choose = (place) => {
    const who = images[state.image].looks[state.look].who;
    state.image = place;
    // keep the same network or sequence, if it has looked at this image
    state.look = Math.max(0, images[state.image].looks.findIndex((look) => look.who === who));
    state.step = Math.min(state.step, images[state.image].looks[state.look].pixels.length);
    lookers();
    const strip = find("thumbs"), thumb = thumbs[state.image];
    strip.scrollLeft = thumb.offsetLeft - strip.offsetLeft - strip.clientWidth / 2 + 30;
    pictures[state.image].decode().then(draw, draw);
  };
  // the next or previous picture among those that the filters leave
  const turn = (by) => {
    const left = images.map((_, n) => n).filter((n) => !thumbs[n].hidden);
    if (!left.length) return;
    const at = left.indexOf(state.image);
    choose(left[at < 0 ? 0 : (at + by + left.length) % left.length]);
  };
  const go = (step) => {
    state.step = Math.min(Math.max(step, 1), images[state.image].looks[state.look].pixels.length);
    draw();
  };

  const still = window.matchMedia("(prefers-reduced-motion: reduce)").matches;
  const waiting = new IntersectionObserver((entries) => {
    if (!entries.some((entry) => entry.isIntersecting)) return;
    if (still) { waiting.disconnect(); go(Infinity); } else play(true);
  }, { threshold: 0.3 });
  // plays once from the first glimpse and holds the last
  let timer = 0;
  const play = (on) => {
    clearInterval(timer);
    waiting.disconnect();
    find("play").setAttribute("aria-pressed", on);
    find("play").textContent = on ? "stop" : "play";
    if (!on) return;
    const total = () => images[state.image].looks[state.look].pixels.length;
    if (state.step === total()) go(1);
    timer = setInterval(() => {
      if (state.step < total()) go(state.step + 1);
      if (state.step >= total()) play(false);
    }, 900);
  };
  const playing = () => find("play").getAttribute("aria-pressed") === "true";

  const thumbs = images.map((image, place) => {
    if (place && image.split !== images[place - 1].split) {
      const gap = document.createElement("span");
      gap.className = "gap";
      find("thumbs").append(gap);
    }
    const button = document.createElement("button");
    const picture = document.createElement("img");
    button.type = "button";
    button.className = image.right === false ? "wrong" : "";
    button.title = `${image.label || image.id} (${image.split}${image.right === null ? "" : image.right ? ", right" : ", wrong"})`;
    picture.src = image.src;
    picture.alt = button.title;
    button.append(picture);
    button.addEventListener("click", () => { play(false); choose(place); });
    find("thumbs").append(button);
    return button;
  });
  const options = (name, values) => {
    const select = find(name);
    select.append(...values.map((value) => { const option = document.createElement("option"); option.value = option.textContent = value; return option; }));
    select.parentElement.hidden = values.length + select.options.length - values.length < 2 || (values.length < 2 && name !== "by-answer");
    select.addEventListener("change", () => { play(false); filter(); });
  };
  const filter = () => {
    const [name, answer, split] = ["by-class", "by-answer", "by-split"].map((one) => find(one).value);
    images.forEach((image, n) => {
      thumbs[n].hidden = (name && image.label !== name) || (split && image.split !== split)
        || (answer && image.right !== (answer === "right"));
    });
    const left = thumbs.filter((button) => !button.hidden).length;
    all(".gap", home).forEach((gap) => { gap.hidden = left < thumbs.length; });
    find("count").textContent = left < thumbs.length ? (left ? `${left} of ${thumbs.length}` : "none of them") : "";
    if (left && thumbs[state.image].hidden) turn(1);
  };
  options("by-class", [...new Set(images.map((image) => image.label).filter(Boolean))]);
  options("by-answer", []);
  options("by-split", [...new Set(images.map((image) => image.split))]);
  find("by-answer").parentElement.hidden = images.every((image) => image.right === null);
  const scale = find("scale").getContext("2d");
  for (let n = 0; n < 128; n += 1) { scale.fillStyle = colour(2 * n); scale.fillRect(n, 0, 1, 1); }

  const stepped = (step) => { play(false); go(step); };
  find("back").addEventListener("click", () => stepped(state.step - 1));
  find("next").addEventListener("click", () => stepped(state.step + 1));
  find("play").addEventListener("click", () => play(!playing()));
  find("step").addEventListener("input", (event) => stepped(Number(event.target.value)));
  // keys work wherever the focus is; those that scroll a page do so until the viewer has the focus
  document.addEventListener("keydown", (event) => {
    if (event.altKey || event.ctrlKey || event.metaKey || light.open || event.target.matches("select, textarea")) return;
    const inRange = event.target.matches("input"), inViewer = viewer.contains(event.target);
    const near = inViewer || event.target === document.body || home.contains(event.target);
    const acts = {
      ArrowLeft: inRange || !near ? null : () => stepped(state.step - 1),
      ArrowRight: inRange || !near ? null : () => stepped(state.step + 1),
      n: () => { play(false); turn(1); },
      p: () => { play(false); turn(-1); },
      ArrowUp: inViewer ? () => { play(false); turn(-1); } : null,
      ArrowDown: inViewer ? () => { play(false); turn(1); } : null,
      Home: inViewer ? () => stepped(1) : null,
      End: inViewer ? () => stepped(Infinity) : null,
      " ": near && !event.target.matches("button, a, input, summary") ? () => play(!playing()) : null,
    };
    const act = acts[event.key.length === 1 ? event.key.toLowerCase() : event.key];
    if (act) { event.preventDefault(); act(); }
  });
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  new ResizeObserver(() => draw()).observe(viewer);
  // plays when first seen; with reduced motion, the last glimpse is shown at once
  waiting.observe(viewer);
  choose(opening);
})();
