// The Gantt chart with its tools: what a pointer, a wheel and keys do to it.

const HELP = "Drag to move; Ctrl and wheel, double-click, + and − to zoom; arrow keys; 0 for all.";

class Gantt {
  canvas = new Canvas();
  legend = make("ul", { class: "legend" });
  reading = make("p", { class: "reading", "aria-live": "polite" });
  card = make("div", { class: "card", hidden: "" });
  find = make("input", { type: "search", inputmode: "numeric", placeholder: "number" });
  height = make("input", { type: "range", min: "2", max: "24", step: "0.5" });
  held = null; // what a drag began with

  constructor(host) {
    host.append(this.tools(), this.legend, this.canvas.rows, this.reading, this.card);
    this.listen();
    this.show(0);
  }

  // --- tools ---

  tools() {
    const several = runs.some((run) => run.projects.length > 1);
    const ways = Object.keys(WAYS).filter((way) => several || way !== "project");
    const labels = runs.map((run, at) => [at, run.label]);
    const tools = make("div", { class: "tools" });
    if (runs.length > 1) tools.append(this.choice("Run", labels, (at) => this.show(Number(at))));
    tools.append(
      this.choice("Colour by", ways.map((way) => [way, way]), (way) => this.colour(WAYS[way])),
      make("label", {}, "Job", this.find),
      make("label", {}, "Lines", this.height),
      make("span", {},
        this.button("−", "Zoom out", () => view.zoom(2)), " ",
        this.button("+", "Zoom in", () => view.zoom(0.5)), " ",
        this.button("All", "Show all of the time", () => view.all())),
    );
    return tools;
  }

  choice(label, options, act) {
    const made = make("select");
    options.forEach(([value, text]) => made.append(make("option", { value }, text)));
    made.addEventListener("change", () => act(made.value));
    return make("label", {}, label, made);
  }

  button(text, title, act) {
    const made = make("button", { type: "button", "aria-label": title, title }, text);
    made.addEventListener("click", act);
    return made;
  }

  show(at) {
    const { canvas } = this;
    canvas.run = runAt(at);
    const { label, bars, nodes } = canvas.run;
    const said = `Gantt chart of ${label}: ${bars.length} bars on ${nodes.length} nodes; the table below has figures.`;
    canvas.element.setAttribute("aria-label", said);
    canvas.fit();
    this.height.value = canvas.line;
    this.colour(canvas.way);
    this.point(-1);
  }

  colour(way) {
    this.canvas.way = way;
    this.legend.replaceChildren(...way.legend(this.canvas.run).map(([hue, text]) => {
      const patch = make("i");
      patch.style.background = `var(--${hue})`;
      return make("li", {}, patch, text);
    }));
    this.canvas.draw();
  }

  // Light a job up and say what there is to say about it.
  point(job) {
    this.canvas.lit = job;
    this.reading.textContent = job < 0 ? HELP : about(this.canvas.run, job).join(" · ");
    this.canvas.draw();
  }

  seek() {
    const { canvas, find } = this;
    const { jobs, bars } = canvas.run;
    const wanted = find.value.trim();
    const job = wanted ? jobs.job.indexOf(Number(wanted)) : -1;
    const bar = bars.find((each) => each.job === job);
    this.point(bar ? job : -1);
    if (bar) {
      const [begin, end] = [jobs.start[job] - jobs.wait[job], jobs.start[job] + jobs.run[job]];
      const margin = Math.max((end - begin) / 2, time.length / 1000);
      canvas.rows.scrollTop = bar.top * canvas.line + bar.node * GAP - TALLEST / 2;
      view.set(begin - margin, end + margin);
    } else if (wanted) {
      this.reading.textContent = `Job ${wanted} is not drawn here.`;
    }
  }

  // --- what people do ---

  listen() {
    const { element, rows } = this.canvas;
    const draw = () => this.canvas.draw();
    const x = (event) => event.clientX - element.getBoundingClientRect().left;
    element.addEventListener("pointerdown", (event) => this.hold(event));
    element.addEventListener("pointermove", (event) => (this.held ? this.drag(event) : this.hover(event)));
    for (const over of ["pointerup", "pointercancel"]) element.addEventListener(over, () => { this.held = null; });
    element.addEventListener("pointerleave", () => { this.card.hidden = true; this.point(-1); });
    element.addEventListener("dblclick", (event) => view.zoom(0.4, this.canvas.moment(x(event))));
    element.addEventListener("wheel", (event) => this.wheel(event, x(event)), { passive: false });
    element.addEventListener("keydown", (event) => this.key(event));
    rows.addEventListener("scroll", draw);
    this.find.addEventListener("change", () => this.seek());
    this.height.addEventListener("input", () => { this.canvas.line = Number(this.height.value); draw(); });
    view.listeners.push(draw);
    new ResizeObserver(draw).observe(rows);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
    // On paper everything is light, and a canvas has to be painted again for that.
    const { classList } = document.documentElement;
    addEventListener("beforeprint", () => { classList.add("paper"); this.canvas.paint(); });
    addEventListener("afterprint", () => { classList.remove("paper"); this.canvas.paint(); });
  }

  hold(event) {
    const { element, rows } = this.canvas;
    this.held = { x: event.clientX, y: event.clientY, begin: view.begin, end: view.end, top: rows.scrollTop };
    element.setPointerCapture(event.pointerId);
  }

  drag(event) {
    const { x, y, begin, end, top } = this.held;
    const moved = this.canvas.seconds(event.clientX - x);
    this.card.hidden = true;
    if (event.pointerType !== "touch") this.canvas.rows.scrollTop = top - (event.clientY - y);
    view.set(begin - moved, end - moved);
  }

  hover(event) {
    const { canvas, card } = this;
    const box = canvas.element.getBoundingClientRect();
    const bar = canvas.under(event.clientX - box.left, event.clientY - box.top);
    const job = bar ? bar.job : -1;
    card.hidden = !bar;
    if (job !== canvas.lit) {
      this.point(job);
      if (bar) {
        const [title, ...more] = about(canvas.run, job);
        card.replaceChildren(make("b", {}, title), ...more.map((text) => make("span", {}, text)));
      }
    }
    const { width, height } = card.getBoundingClientRect();
    const below = event.clientY + 20;
    const top = below + height > window.innerHeight ? event.clientY - height - 12 : below;
    card.style.left = `${clamp(event.clientX + 16, 4, window.innerWidth - width - 4)}px`;
    card.style.top = `${top}px`;
  }

  // The bare wheel belongs to the page.
  wheel(event, x) {
    const aside = event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY);
    const turned = event.ctrlKey || event.metaKey;
    if (turned) view.zoom(Math.exp(clamp(event.deltaY, -120, 120) / 240), this.canvas.moment(x));
    else if (aside) view.move(this.canvas.seconds(event.deltaX || event.deltaY));
    if (turned || aside) event.preventDefault();
  }

  key(event) {
    const { rows } = this.canvas;
    const acts = {
      ArrowLeft: () => view.move(-view.length / 8),
      ArrowRight: () => view.move(view.length / 8),
      ArrowUp: () => { rows.scrollTop -= 40; },
      ArrowDown: () => { rows.scrollTop += 40; },
      "+": () => view.zoom(0.5),
      "=": () => view.zoom(0.5),
      "-": () => view.zoom(2),
      0: () => view.all(),
    };
    if (!acts[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    acts[event.key]();
  }
}

if (runs.some((run) => run.nodes.length)) new Gantt(document.getElementById("gantt"));
document.documentElement.dataset.ready = "yes";
