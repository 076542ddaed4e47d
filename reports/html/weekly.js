/** Charts tell the figures of the week under the pointer or the focus; arrow keys move between weeks. */
(function charts() {
  document.querySelectorAll(".history").forEach((figure, number) => {
    const tip = figure.querySelector(".tip");
    const said = figure.querySelector(".said");
    const scroll = figure.querySelector(".scroll");
    const weeks = [...figure.querySelectorAll(".week")];
    const hide = () => { tip.hidden = true; };

    function tell(rect) {
      const [week, lines] = DATA.charts[number][Number(rect.dataset.week)];
      tip.replaceChildren(make("b", week), ...lines.map((line) => make("div", line)));
      said.textContent = week + ": " + lines.join("; ");
      tip.hidden = false;
      const box = figure.getBoundingClientRect();
      const area = rect.getBoundingClientRect();
      const right = area.right - box.left + 6;
      const left = area.left - box.left - tip.offsetWidth - 6;
      const place = right + tip.offsetWidth <= box.width ? right : left;
      tip.style.left = Math.max(0, Math.min(place, box.width - tip.offsetWidth)) + "px";
      tip.style.top = scroll.offsetTop + 40 + "px";
    }

    function go(rect) {
      for (const other of weeks) other.setAttribute("tabindex", other === rect ? "0" : "-1");
      rect.focus();
    }

    weeks.forEach((rect, at) => {
      rect.addEventListener("pointerenter", () => tell(rect));
      rect.addEventListener("click", () => go(rect));
      rect.addEventListener("focus", () => tell(rect));
      rect.addEventListener("blur", hide);
      rect.addEventListener("keydown", (event) => {
        const to = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: weeks.length - 1 }[event.key];
        if (event.key === "Escape") hide();
        if (to === undefined) return;
        event.preventDefault();
        if (weeks[to]) go(weeks[to]);
      });
    });
    figure.addEventListener("pointerleave", hide);
    scroll.addEventListener("scroll", hide);
    // Where the chart is wider than the screen, the latest weeks come first.
    scroll.scrollLeft = scroll.scrollWidth;
  });
})();
