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
    const picture = buttons[shown].firstElementChild.cloneNode(true);
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
  const { grid, images, colours } = JSON.parse(source.textContent);
  const STEPS = ["#E69F00", "#56B4E9", "#009E73", "#F0E442", "#CC79A7", "#D55E00"];
  const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  const table = bytes(colours);
  const colour = (strength) => `rgb(${table[3 * strength]} ${table[3 * strength + 1]} ${table[3 * strength + 2]})`;
  const home = document.getElementById("gallery");
  const find = (name) => home.querySelector(`.${name}`);
  const viewer = find("viewer");
  const state = { image: 0, look: 0, step: 1 };
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
    if (look.entropy) text += ` ${look.entropy[t].toFixed(3)} nats were unknown before it`;
    if (look.entropy && look.epe) text += `; it was expected to leave ${look.epe[t].toFixed(3)}${look.error ? ` ± ${look.error[t].toFixed(3)}` : ""}`;
    if (look.entropy) text += ".";
    if (look.entropy && t + 1 < total) text += ` It left ${look.entropy[t + 1].toFixed(3)}.`;
    if (look.answers) {
      const [name, share] = look.answers[t][0];
      const right = name === look.truth ? "right" : `wrong, it is ${look.truth}`;
      text += ` ${t + 1 === total ? "The network says" : "So far it would say"} ${name} (${percent(share)}): ${right}.`;
    }
    return text;
  };

  const draw = () => {
    const image = images[state.image];
    const look = image.looks[state.look];
    const total = look.pixels.length;
    const t = state.step - 1;
    const sofar = look.pixels.slice(0, state.step);
    const picture = pictures[state.image];
    find("name").textContent = `Image ${image.id}${image.label ? `: ${image.label}` : ""}`;
    find("where").textContent = image.split;
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
      ? (ours ? "expected entropy before this glimpse (nats)" : "chance of each location before this glimpse")
      : "no map of this step was kept";
    find("range").hidden = !map;
    if (map) {
      find("low").textContent = ours ? map.high : "0";
      find("high").textContent = ours ? map.low : percent(map.high);
    }
    find("answers").replaceChildren(...(look.answers ? look.answers[t] : []).map(([name, share]) => {
      const line = document.createElement("li");
      line.className = name === look.truth ? "true" : "";
      for (const part of ["name", "bar", "share"]) {
        const span = document.createElement("span");
        span.className = part;
        if (part === "name") span.textContent = `${name}${name === look.truth ? " ✓" : ""}`;
        if (part === "bar") span.style.width = `${100 * share}%`;
        if (part === "share") span.textContent = percent(share);
        line.append(span);
      }
      return line;
    }));
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
    button.addEventListener("click", () => { state.look = n; state.step = Math.min(state.step, look.pixels.length); draw(); });
    return button;
  }));
  const choose = (place) => {
    const who = images[state.image].looks[state.look].who;
    state.image = (place + images.length) % images.length;
    // the same one looks on, where it has looked at this image too
    state.look = Math.max(0, images[state.image].looks.findIndex((look) => look.who === who));
    state.step = Math.min(state.step, images[state.image].looks[state.look].pixels.length);
    lookers();
    const strip = find("thumbs"), thumb = all("button", strip)[state.image];
    strip.scrollLeft = thumb.offsetLeft - strip.offsetLeft - strip.clientWidth / 2 + 30;
    pictures[state.image].decode().then(draw, draw);
  };
  const go = (step) => {
    state.step = Math.min(Math.max(step, 1), images[state.image].looks[state.look].pixels.length);
    draw();
  };

  let timer = 0;
  const play = (on) => {
    clearInterval(timer);
    find("play").setAttribute("aria-pressed", on);
    find("play").textContent = on ? "stop" : "play";
    if (on) timer = setInterval(() => {
      const total = images[state.image].looks[state.look].pixels.length;
      go(state.step === total ? 1 : state.step + 1);
    }, 900);
  };
  const playing = () => find("play").getAttribute("aria-pressed") === "true";

  let group = images[0].split;
  images.forEach((image, place) => {
    if (image.split !== group) {
      const gap = document.createElement("span");
      gap.className = "gap";
      find("thumbs").append(gap);
      group = image.split;
    }
    const button = document.createElement("button");
    const picture = document.createElement("img");
    button.type = "button";
    button.title = `${image.id} ${image.label} (${image.split})`;
    picture.src = image.src;
    picture.alt = `Image ${image.id} ${image.label}`;
    button.append(picture);
    button.addEventListener("click", () => choose(place));
    find("thumbs").append(button);
  });
  const scale = find("scale").getContext("2d");
  for (let n = 0; n < 128; n += 1) { scale.fillStyle = colour(2 * n); scale.fillRect(n, 0, 1, 1); }

  find("back").addEventListener("click", () => go(state.step - 1));
  find("next").addEventListener("click", () => go(state.step + 1));
  find("play").addEventListener("click", () => play(!playing()));
  find("step").addEventListener("input", (event) => go(Number(event.target.value)));
  home.addEventListener("keydown", (event) => {
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    const inRange = event.target.matches("input");
    const acts = {
      ArrowLeft: inRange ? null : () => go(state.step - 1),
      ArrowRight: inRange ? null : () => go(state.step + 1),
      ArrowUp: () => choose(state.image - 1),
      ArrowDown: () => choose(state.image + 1),
      Home: () => go(1),
      End: () => go(Infinity),
      " ": event.target.matches("button") ? null : () => play(!playing()),
    };
    if (acts[event.key]) { event.preventDefault(); acts[event.key](); }
  });
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  new ResizeObserver(() => draw()).observe(viewer);
  choose(0);
})();
