(function timeline() {
  const data = DATA.timeline;
  if (!data || !data.cycles.length) return;
  const canvas = byId("tl-canvas"), tip = byId("tl-tip"), said = byId("tl-said");
  const LABEL = 64, AXIS = 24, PHASE = 7, GAP = 2, OPS = 7;
  const PER_OP = 7;
  const view = { cycle: 0, from: 0, to: 1, rank: 0, op: -1, late: -1, mark: null };
  const hidden = { phases: new Set(), activities: new Set(), classNumber: -1 };
  const colours = {};

  const cycles = data.cycles.map((cycle) => ({
    ...cycle,
    ranks: cycle.ranks.map((rank) => {
      const segments = unpackSegments(rank);
      return { ...rank, segments, phases: joined(segments), ops: unpackOps(rank.ops) };
    }),
  }));

  function unpackSegments(rank) {
    const found = [];
    let at = rank.start;
    for (let i = 0; i < rank.segments.length; i += 2) {
      const length = rank.segments[i], code = rank.segments[i + 1];
      found.push({ start: at, end: at + length, phase: code >> 3, activity: code & 7 });
      at += length;
    }
    return found;
  }

  /** Neighbouring segments of one phase as one. */
  function joined(segments) {
    const found = [];
    for (const segment of segments) {
      const last = found[found.length - 1];
      if (last && last.phase === segment.phase) last.end = segment.end;
      else found.push({ ...segment });
    }
    return found;
  }

  function unpackOps(flat) {
    const found = [];
    let at = 0;
    for (let i = 0; i < flat.length; i += PER_OP) {
      at += flat[i];
      found.push({ start: at, end: at + flat[i + 1], name: flat[i + 2], kind: flat[i + 3],
        phase: flat[i + 4] >> 3, activity: flat[i + 4] & 7, wait: flat[i + 5], ordinal: flat[i + 6] });
    }
    return found;
  }

  function readColours() {
    const style = getComputedStyle(document.documentElement);
    const read = (name) => style.getPropertyValue("--" + name.replaceAll("_", "-")).trim();
    colours.phases = data.phases.map((p) => read("phase-" + p));
    colours.activities = data.activities.map((a) => read("activity-" + a));
    for (const name of ["text", "muted", "grid", "background", "surface", "accent"]) colours[name] = read(name);
  }

  const now = () => cycles[view.cycle];
  const whole = () => [Math.min(...now().ranks.map((r) => r.start)), Math.max(...now().ranks.map((r) => r.end))];
  const rowHeight = () => (now().ranks.length > 16 ? 12 : 18);
  const row = () => PHASE + GAP + rowHeight() + OPS + 9;
  const width = () => canvas.clientWidth - LABEL - 4;
  const toX = (ns) => LABEL + (ns - view.from) / (view.to - view.from) * width();
  const toNs = (x) => view.from + (x - LABEL) / width() * (view.to - view.from);
  const shown = (phase, activity) => !hidden.phases.has(phase) && !hidden.activities.has(activity);

  function setView(from, to) {
    const [first, last] = whole();
    const total = last - first;
    let length = Math.min(Math.max(to - from, 200), total * 1.02);
    let begin = Math.min(Math.max(from, first - total * 0.01), last + total * 0.01 - length);
    view.from = begin; view.to = begin + length;
    draw();
  }
  function reset() { const [first, last] = whole(); setView(first, last); }
  function zoom(factor, at) {
    const centre = at === undefined ? (view.from + view.to) / 2 : at;
    setView(centre - (centre - view.from) * factor, centre + (view.to - centre) * factor);
  }
  function pan(share) { const step = (view.to - view.from) * share; setView(view.from + step, view.to + step); }

  /** First item that ends after ns; items are in order and do not overlap much. */
  function firstAfter(items, ns) {
    let low = 0, high = items.length;
    while (low < high) { const middle = (low + high) >> 1; if (items[middle].end <= ns) low = middle + 1; else high = middle; }
    return low;
  }

  function step(length) {
    const raw = length / 6, power = 10 ** Math.floor(Math.log10(raw));
    return [1, 2, 5, 10].map((m) => m * power).find((s) => s >= raw);
  }

  function drawAxis(context, height) {
    const tick = step(view.to - view.from), small = tick < 1e5;
    context.font = "11px system-ui, sans-serif";
    context.textBaseline = "middle";
    context.textAlign = "center";
    for (let t = Math.ceil(view.from / tick) * tick; t <= view.to; t += tick) {
      const x = toX(t);
      context.fillStyle = colours.grid;
      context.fillRect(x, AXIS - 6, 1, height - AXIS + 6);
      context.fillStyle = colours.muted;
      context.fillText(small ? (t / 1e3).toFixed(tick < 1e3 ? 1 : 0) + " us" : (t / 1e6).toFixed(tick < 1e6 ? 1 : 0) + " ms", x, 9);
    }
  }

  /** Items as boxes where they are wide enough to see, else each pixel column split by their shares of its time. */
  function drawStrip(context, items, y, height, palette, key, dim) {
    const first = firstAfter(items, view.from);
    let last = first;
    while (last < items.length && items[last].start < view.to) last += 1;
    if (last - first > 0.6 * width()) { drawColumns(context, items, first, last, y, height, palette, key, dim); return; }
    for (let i = first; i < last; i += 1) {
      const item = items[i];
      if (key(item) < 0) continue;
      const x = Math.max(toX(item.start), LABEL), end = Math.min(toX(item.end), LABEL + width());
      context.globalAlpha = dim(item) ? 0.1 : 1;
      context.fillStyle = palette[key(item)];
      context.fillRect(x, y, Math.max(end - x, 0.4), height);
    }
    context.globalAlpha = 1;
  }

  function drawColumns(context, items, first, last, y, height, palette, key, dim) {
    const scale = window.devicePixelRatio || 1, columns = Math.ceil(width() * scale), kinds = palette.length;
    const shares = new Float64Array(columns * kinds * 2), perColumn = (view.to - view.from) / (width() * scale);
    for (let i = first; i < last; i += 1) {
      const item = items[i], kind = key(item);
      if (kind < 0) continue;
      const slot = kind + (dim(item) ? kinds : 0);
      const from = Math.max((item.start - view.from) / perColumn, 0);
      const to = Math.min((item.end - view.from) / perColumn, columns);
      for (let c = Math.floor(from); c < to; c += 1) shares[c * kinds * 2 + slot] += Math.min(to, c + 1) - Math.max(from, c);
    }
    for (let c = 0; c < columns; c += 1) {
      let bottom = y + height;
      for (let slot = 0; slot < kinds * 2; slot += 1) {
        const share = shares[c * kinds * 2 + slot];
        if (share <= 0) continue;
        const tall = height * Math.min(share, 1);
        bottom -= tall;
        context.globalAlpha = slot >= kinds ? 0.1 : 1;
        context.fillStyle = palette[slot % kinds];
        context.fillRect(LABEL + c / scale, Math.max(bottom, y), 1 / scale, tall);
      }
    }
    context.globalAlpha = 1;
  }

  function draw() {
    const ranks = now().ranks, height = AXIS + ranks.length * row() + 2, scale = window.devicePixelRatio || 1;
    const wide = canvas.clientWidth;
    canvas.style.height = height + "px";
    if (canvas.width !== Math.round(wide * scale) || canvas.height !== Math.round(height * scale)) {
      canvas.width = Math.round(wide * scale); canvas.height = Math.round(height * scale);
    }
    const context = canvas.getContext("2d");
    context.setTransform(scale, 0, 0, scale, 0, 0);
    context.clearRect(0, 0, wide, height);
    drawAxis(context, height);
    ranks.forEach((rank, r) => {
      const y = AXIS + r * row();
      context.textAlign = "right";
      context.font = (r === view.rank ? "600 " : "") + "12px system-ui, sans-serif";
      context.fillStyle = r === view.rank ? colours.text : colours.muted;
      context.fillText(rank.label, LABEL - 8, y + PHASE + GAP + rowHeight() / 2);
      const dim = (item) => !shown(item.phase, item.activity) || (hidden.classNumber >= 0);
      drawStrip(context, rank.phases, y, PHASE, colours.phases, (s) => s.phase, (s) => hidden.phases.has(s.phase));
      drawStrip(context, rank.segments, y + PHASE + GAP, rowHeight(), colours.activities, (s) => s.activity, dim);
      if (hidden.classNumber >= 0) {
        drawStrip(context, rank.ops, y + PHASE + GAP, rowHeight(), colours.activities,
          (op) => (op.kind === hidden.classNumber ? op.activity : -1), (op) => !shown(op.phase, op.activity));
      }
      drawWaits(context, rank, y + PHASE + GAP + rowHeight() + 1);
    });
    drawMarks(context);
  }

  /** Waiting for late ranks as a thin line under the strip, at its own place in time. */
  function drawWaits(context, rank, y) {
    context.fillStyle = colours.text;
    for (let i = firstAfter(rank.ops, view.from); i < rank.ops.length && rank.ops[i].start < view.to; i += 1) {
      const op = rank.ops[i];
      if (op.wait <= 0 || !shown(op.phase, op.activity)) continue;
      const x = toX(op.start), end = toX(op.start + op.wait);
      if (end - x >= 0.35) context.fillRect(Math.max(x, LABEL), y, Math.min(end, LABEL + width()) - Math.max(x, LABEL), 3);
    }
  }

  function drawMarks(context) {
    if (view.mark) {
      const x = toX(view.mark.start), end = toX(view.mark.end), y = AXIS + view.mark.rank * row();
      context.strokeStyle = colours.text; context.lineWidth = 2;
      context.strokeRect(Math.max(x, LABEL) - 1, y - 2, Math.min(Math.max(end - x, 2), width()) + 2, row() - 3);
    }
    if (view.hover !== null && view.hover !== undefined) {
      context.fillStyle = colours.muted;
      context.fillRect(view.hover, AXIS - 4, 1, now().ranks.length * row());
    }
  }

  function what(rank, op) {
    const words = [now().ranks[rank].label, data.phases[op.phase].replace("_", " "), DATA.activity_names[op.activity]];
    const lines = [words.join(" · ")];
    const name = op.name === undefined ? "" : data.names[op.name];
    if (name) lines.push(name);
    if (op.kind !== undefined) lines.push("class " + data.classes[op.kind]);
    let time = `${span(op.end - op.start)}, from ${span(Math.max(op.start, 0))}`;
    if (op.wait >= 0) time += `; transfer ${span(op.end - op.start - op.wait)}, waiting ${span(op.wait)}`;
    lines.push(time);
    return lines;
  }

  /** The op (or the idle segment) of a rank at a time. */
  function at(rank, ns) {
    const ops = now().ranks[rank].ops, segments = now().ranks[rank].segments;
    const segment = segments[firstAfter(segments, ns)];
    if (!segment || segment.start > ns) return null;
    let best = null;
    for (let i = Math.max(firstAfter(ops, ns) - 8, 0); i < ops.length && ops[i].start <= ns; i += 1) {
      if (ops[i].end > ns && (best === null || ops[i].activity < best.activity)) best = ops[i];
    }
    return best || segment;
  }

  function place(event) {
    const box = canvas.getBoundingClientRect();
    const x = event.clientX - box.left, y = event.clientY - box.top;
    const rank = Math.floor((y - AXIS) / row());
    return { x, y, rank: rank >= 0 && rank < now().ranks.length ? rank : -1, ns: toNs(x) };
  }

  function showTip(event) {
    const spot = place(event);
    view.hover = spot.x >= LABEL ? spot.x : null;
    const found = spot.rank >= 0 && spot.x >= LABEL ? at(spot.rank, spot.ns) : null;
    tip.hidden = !found;
    if (found) {
      const lines = what(spot.rank, found);
      tip.replaceChildren(make("b", lines[0]), ...lines.slice(1).map((line) => make("div", line)));
      const left = Math.min(spot.x + 14, canvas.clientWidth - tip.offsetWidth - 4);
      tip.style.left = Math.max(left, 0) + "px";
      tip.style.top = spot.y + 18 + "px";
    }
    draw();
  }

  function select(rank, op, index) {
    view.rank = rank; view.op = index === undefined ? now().ranks[rank].ops.indexOf(op) : index;
    view.mark = { rank, start: op.start, end: op.end };
    said.textContent = what(rank, op).join(", ");
    draw();
  }

  function walk(direction) {
    const ops = now().ranks[view.rank].ops;
    const chosen = (op) => shown(op.phase, op.activity) && (hidden.classNumber < 0 || op.kind === hidden.classNumber);
    let i = view.op < 0 ? firstAfter(ops, view.from) - direction : view.op;
    do i += direction; while (i >= 0 && i < ops.length && !chosen(ops[i]));
    if (i < 0 || i >= ops.length) { said.textContent = "no further op"; return; }
    const op = ops[i];
    if (op.start < view.from || op.end > view.to) {
      const half = Math.max(view.to - view.from, (op.end - op.start) * 1.5) / 2, middle = (op.start + op.end) / 2;
      setView(middle - half, middle + half);
    }
    select(view.rank, op, i);
  }

  function nextStraggler() {
    const late = now().stragglers;
    if (!late.length) { said.textContent = "No collective of this cycle is matched over ranks."; return; }
    view.late = (view.late + 1) % late.length;
    const call = late[view.late], pad = Math.max((call.end - call.start) * 1.2, 2000);
    setView(call.start - pad, call.end + pad);
    view.rank = call.rank; view.op = -1;
    const ops = now().ranks[call.rank].ops;
    const op = ops.find((o) => o.start >= call.start && o.end <= call.end + 2000 && o.wait >= 0) || call;
    view.mark = { rank: call.rank, start: op.start, end: op.end };
    said.textContent = `${view.late + 1} of ${late.length}: ${call.name.replaceAll("_", " ")} — ` +
      `${now().ranks[call.rank].label} came last, another rank waited ${span(call.wait)} for it`;
    draw();
  }

  function chips(box, words, keys, kind, set) {
    words.forEach((word, i) => {
      const present = cycles.some((c) => c.ranks.some((r) => r.segments.some((s) => s[kind] === i)));
      if (!present) return;
      const chip = make("button", null, { type: "button", "aria-pressed": "true" });
      const dot = make("i");
      dot.style.background = `var(--${kind}-${keys[i].replaceAll("_", "-")})`;
      chip.append(dot, word);
      chip.addEventListener("click", () => {
        if (set.has(i)) set.delete(i); else set.add(i);
        chip.setAttribute("aria-pressed", String(!set.has(i)));
        draw();
      });
      box.append(chip);
    });
  }

  const fingers = new Map();
  let drag = null;
  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    fingers.set(event.pointerId, event.clientX);
    drag = { x: event.clientX, from: view.from, to: view.to, moved: false };
    canvas.classList.add("dragging");
  });
  canvas.addEventListener("pointermove", (event) => {
    if (!fingers.has(event.pointerId)) { showTip(event); return; }
    if (fingers.size === 2) {
      const [a, b] = [...fingers.values()], before = Math.abs(a - b) || 1;
      fingers.set(event.pointerId, event.clientX);
      const [c, d] = [...fingers.values()], after = Math.abs(c - d) || 1;
      zoom(before / after, toNs((c + d) / 2 - canvas.getBoundingClientRect().left));
      drag = null;
      return;
    }
    fingers.set(event.pointerId, event.clientX);
    if (!drag) return;
    const moved = event.clientX - drag.x;
    if (Math.abs(moved) > 3) drag.moved = true;
    const ns = moved / width() * (drag.to - drag.from);
    tip.hidden = true;
    setView(drag.from - ns, drag.to - ns);
  });
  function release(event) {
    fingers.delete(event.pointerId);
    canvas.classList.remove("dragging");
    if (event.type === "pointerup" && drag && !drag.moved) {
      const spot = place(event);
      const found = spot.rank >= 0 ? at(spot.rank, spot.ns) : null;
      if (found) select(spot.rank, found);
    }
    drag = null;
  }
  canvas.addEventListener("pointerup", release);
  canvas.addEventListener("pointercancel", release);
  canvas.addEventListener("pointerleave", () => { tip.hidden = true; view.hover = null; draw(); });
  canvas.addEventListener("dblclick", (event) => zoom(0.4, place(event).ns));
  canvas.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.metaKey) {
      if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) { event.preventDefault(); pan(event.deltaX / width()); }
      return;
    }
    event.preventDefault();
    zoom(event.deltaY > 0 ? 1.25 : 0.8, place(event).ns);
  }, { passive: false });
  const keys = {
    ArrowLeft: () => pan(-0.2), ArrowRight: () => pan(0.2), "+": () => zoom(0.6), "=": () => zoom(0.6), "-": () => zoom(1.6),
    ArrowUp: () => { view.rank = Math.max(view.rank - 1, 0); view.op = -1; said.textContent = now().ranks[view.rank].label; draw(); },
    ArrowDown: () => { view.rank = Math.min(view.rank + 1, now().ranks.length - 1); view.op = -1; said.textContent = now().ranks[view.rank].label; draw(); },
    n: () => walk(1), p: () => walk(-1), s: nextStraggler, 0: reset, Home: reset,
  };
  canvas.addEventListener("keydown", (event) => {
    const action = keys[event.key] || keys[event.key.toLowerCase()];
    if (!action || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    action();
  });
  byId("tl-in").addEventListener("click", () => zoom(0.6));
  byId("tl-out").addEventListener("click", () => zoom(1.6));
  byId("tl-left").addEventListener("click", () => pan(-0.3));
  byId("tl-right").addEventListener("click", () => pan(0.3));
  byId("tl-all").addEventListener("click", () => { view.mark = null; reset(); });
  byId("tl-late").addEventListener("click", nextStraggler);
  cycles.forEach((cycle, i) => byId("tl-cycle").append(make("option", `${cycle.title}, ${span(cycle.wall)}`, { value: i })));
  data.classes.map((name, i) => [name, i]).sort((a, b) => (a[0] < b[0] ? -1 : 1))
    .forEach(([name, i]) => byId("tl-class").append(make("option", name, { value: i })));
  byId("tl-cycle").addEventListener("change", (event) => {
    Object.assign(view, { cycle: Number(event.target.value), op: -1, late: -1, mark: null });
    view.rank = Math.min(view.rank, now().ranks.length - 1);
    reset();
  });
  byId("tl-class").addEventListener("change", (event) => {
    hidden.classNumber = event.target.value === "" ? -1 : Number(event.target.value);
    draw();
  });
  chips(byId("tl-phases"), DATA.phase_names, data.phases, "phase", hidden.phases);
  chips(byId("tl-activities"), DATA.activity_names, data.activities, "activity", hidden.activities);
  new ResizeObserver(() => draw()).observe(canvas.parentElement);
  document.addEventListener("themechange", () => { readColours(); draw(); });
  window.addEventListener("beforeprint", () => { view.hover = null; reset(); });
  readColours();
  reset();
  window.profkitTimeline = { view, hidden };
})();
