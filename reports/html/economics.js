(function economics() {
  const table = DATA.whatif;
  if (!table) return;
  const accept = byId("eco-accept"), us = byId("eco-us"), draft = byId("eco-draft");
  const counts = Object.keys(table.by_draft_tokens).map(Number).sort((a, b) => a - b);
  const state = { accept: null, us: null, draft: table.draft_tokens };

  /** [value, low, high] on the straight lines between [us, value, low, high]. */
  function between(knots, at) {
    let i = 1;
    while (i < knots.length - 1 && knots[i][0] < at) i += 1;
    const [a, b] = [knots[i - 1], knots[i]];
    const share = Math.min(Math.max((at - a[0]) / (b[0] - a[0]), 0), 1);
    return [1, 2, 3].map((k) => a[k] + share * (b[k] - a[k]));
  }

  const over = (tokens, cycle) => [tokens[0] / cycle[0], tokens[1] / cycle[2], tokens[2] / cycle[1]].map((v) => 1000 * v);
  const scattered = (figure, by) => [figure[0], figure[1] * by[0], figure[2] * by[1]];

  /** Both arms after the change: the same as the command whatif. */
  function project(change) {
    const row = table.by_draft_tokens[String(change.draft || 0)];
    const own = change.draft === table.draft_tokens;
    const tokens = change.accept !== null ? [change.accept, change.accept, change.accept] : row.accept_len;
    const cycle = change.us === null ? row.cycle : row.knots && between(row.knots, change.us);
    const result = { accept: tokens, cycle, throughput: null, baseline: null, even: null };
    if (cycle && tokens) {
      result.throughput = over(tokens.map((t) => t * table.running), cycle);
      if (own && change.accept === null) {
        result.throughput = change.us === null ? table.now : scattered(result.throughput, table.scatter);
      }
    }
    const base = table.baseline;
    if (base) {
      const step = change.us === null ? base.cycle : base.knots && between(base.knots, change.us);
      if (step) {
        const each = [base.tokens_per_cycle, base.tokens_per_cycle, base.tokens_per_cycle];
        result.baseline = change.us === null ? base.now : scattered(over(each, step), base.scatter);
        if (cycle) result.even = [cycle[0] / step[0], cycle[1] / step[2], cycle[2] / step[1]];
      }
    }
    return result;
  }

  /** Whether speculation pays: true, false, or null where the ranges overlap or a figure is missing. */
  function pays(now) {
    if (!now.throughput || !now.baseline) return null;
    if (now.throughput[1] > now.baseline[2]) return true;
    return now.throughput[2] < now.baseline[1] ? false : null;
  }

  function bar(name, figure, was, most, colour) {
    const row = make("div", null, { class: "eco-row" });
    row.append(make("div", name, { class: "name" }));
    const track = make("div", null, { class: "eco-track" });
    const share = (value) => 100 * Math.min(value / most, 1);
    if (figure) {
      const fill = make("div", null, { class: "eco-fill" });
      fill.style.width = share(figure[0]) + "%";
      fill.style.background = `var(--${colour})`;
      track.append(fill);
      if (was) {
        const mark = make("div", null, { class: "eco-was", title: "as measured" });
        mark.style.left = `calc(${share(was)}% - 1px)`;
        track.append(mark);
      }
      const ranged = figure[2] - figure[1] > 0.002 * figure[0];
      if (ranged) {
        const line = make("div", null, { class: "eco-range" });
        line.style.left = share(figure[1]) + "%";
        line.style.width = share(figure[2]) - share(figure[1]) + "%";
        track.append(line);
      }
      const value = make("span", fixed(figure[0], 1) + " tok/s", { class: "eco-value" });
      if (ranged) value.append(make("span", ` (${fixed(figure[1], 1)} to ${fixed(figure[2], 1)})`, { class: "eco-more" }));
      value.dataset.end = share(figure[0]);
      value.dataset.range = ranged ? [figure[1], figure[2]].map(share) : "";
      value.dataset.edges = [figure[0], ...(ranged ? [figure[1], figure[2]] : []), ...(was ? [was] : [])].map(share);
      value.dataset.inside = `var(--on-${colour})`;
      track.append(value);
    } else track.append(make("span", "unknown", { class: "eco-value" }));
    row.append(track);
    return row;
  }

  /** Put each figure between the marks of its bar, never under one: before the bar's end, else where it fits best. */
  function place() {
    for (const value of byId("eco-bars").querySelectorAll(".eco-value[data-edges]")) {
      const end = Number(value.dataset.end), more = value.querySelector(".eco-more");
      const wanted = () => 100 * value.offsetWidth / value.parentElement.clientWidth;
      const edges = [0, ...value.dataset.edges.split(",").map(Number), 100].sort((a, b) => a - b);
      const [low, high] = (value.dataset.range || "101,101").split(",").map(Number);
      const gaps = edges.slice(1).map((right, i) => ({ left: edges[i], right })).reverse()
        .filter((g) => g.right <= low || g.left >= high);
      const roomy = () => { const w = wanted(); return gaps.filter((g) => g.right - g.left >= w); };
      if (more) more.hidden = false;
      if (more && !roomy().length) more.hidden = true;
      const fits = roomy();
      const widest = gaps.reduce((a, b) => (b.right - b.left > a.right - a.left ? b : a));
      const gap = fits.find((g) => g.right <= end) || fits.at(-1) || widest;
      const inside = gap.right <= end;
      value.style.left = inside ? "auto" : gap.left + "%";
      value.style.right = inside ? 100 - gap.right + "%" : "auto";
      value.style.color = inside ? value.dataset.inside : "";
    }
  }

  function verdict(now) {
    if (!now.throughput) return "The throughput after this change is not known.";
    if (!now.baseline || !now.even) return `${fixed(now.throughput[0], 1)} tok/s; without a baseline run no verdict.`;
    const speed = fixed(now.throughput[0] / now.baseline[0], 2);
    const range = now.even[2] - now.even[1] > 0.01 ? ` (${fixed(now.even[1], 2)} to ${fixed(now.even[2], 2)})` : "";
    const even = `break-even accept length ${fixed(now.even[0], 2)}${range}, here ${fixed(now.accept[0], 2)}`;
    const answer = { true: "Speculation pays", false: "Speculation does not pay", null: "Cannot say" }[String(pays(now))];
    return `${answer}: ${speed} times the baseline (${even}).`;
  }

  function command() {
    const words = ["profkit whatif RUN"];
    if (table.baseline) words.push("--baseline BASELINE");
    if (state.accept !== null) words.push(`--accept-len ${state.accept}`);
    if (state.us !== null) words.push(`--allreduce-us ${state.us}`);
    if (state.draft !== table.draft_tokens) words.push(`--draft-tokens ${state.draft}`);
    return words.join(" ");
  }

  function update() {
    const now = project(state), own = project({ accept: null, us: null, draft: table.draft_tokens });
    byId("eco-accept-out").textContent = (now.accept ? fixed(now.accept[0], 2) : "unknown") +
      (state.accept === null ? (state.draft === table.draft_tokens ? " (measured)" : " (expected)") : "");
    byId("eco-us-out").textContent = state.us === null ? "as measured" : `${state.us} us`;
    byId("eco-draft-out").textContent = state.draft === null ? "" : String(state.draft);
    if (state.accept === null && now.accept) accept.value = now.accept[0];
    const figures = [now.throughput, now.baseline, own.throughput, own.baseline].filter(Boolean).map((f) => f[2]);
    const most = 1.04 * Math.max(...figures);
    byId("eco-bars").replaceChildren(
      bar(DATA.names.candidate, now.throughput, table.throughput, most, "activity-compute"),
      ...(table.baseline ? [bar(DATA.names.baseline, now.baseline, table.baseline.throughput, most, "phase-draft")] : []));
    place();
    const said = verdict(now);
    byId("eco-said").textContent = said;
    byId("eco-bars").setAttribute("aria-label", `Throughput of both arms. ${said}`);
    byId("eco-command").textContent = command();
  }

  accept.max = table.draft_tokens || Math.max(2, Math.ceil(table.accept_len));
  accept.value = table.accept_len;
  if (table.most_us) { us.max = table.most_us; us.value = Math.round(table.allreduce_us); } else byId("eco-us-box").hidden = true;
  if (table.draft_tokens) {
    draft.min = counts[0]; draft.max = counts[counts.length - 1]; draft.value = table.draft_tokens;
  } else { byId("eco-draft-box").hidden = true; byId("eco-accept-box").hidden = true; }
  accept.addEventListener("input", () => { state.accept = Number(accept.value); update(); });
  us.addEventListener("input", () => { state.us = Number(us.value); update(); });
  draft.addEventListener("input", () => {
    state.draft = Number(draft.value);
    accept.max = state.draft;
    if (state.accept !== null && state.accept > state.draft) state.accept = state.draft;
    update();
  });
  byId("eco-reset").addEventListener("click", () => {
    state.accept = null; state.us = null; state.draft = table.draft_tokens;
    accept.max = table.draft_tokens || accept.max;
    accept.value = table.accept_len;
    if (table.most_us) us.value = Math.round(table.allreduce_us);
    if (table.draft_tokens) draft.value = table.draft_tokens;
    update();
  });
  byId("eco-notes").textContent = "Upright marks: as measured; whiskers and ranges: the model's. Assumed: " + table.assumptions.join("; ") + ".";
  window.profkitProject = (change) => { const now = project(change); return { ...now, pays: pays(now) }; };
  update();
  addEventListener("resize", place);
  addEventListener("beforeprint", place);
})();
