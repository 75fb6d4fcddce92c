// Paints a run: tracks, bars, the times above and the nodes beside them.

const GUTTER = 96, HEAD = 22, GAP = 2, TALLEST = 640;
const SMALL = "11px system-ui, sans-serif";
const STEPS = [0.01, 0.1, 1, 5, 15, 60, 300, 900, 1800, 3600, 10800, 21600, 43200]
  .concat([1, 2, 7, 14, 28, 91, 182, 365, 1825].map((days) => days * DAY));

class Canvas {
  run = runAt(0);
  way = WAYS.user;
  line = 6; // pixels
  lit = -1; // the job that is pointed at
  right = 0; // where the drawing ends, and how far it is scrolled: as of the last time it was painted
  top = 0;
  asked = 0;

  constructor() {
    this.element = make("canvas", { tabindex: "0", role: "img" });
    this.spacer = make("div");
    this.rows = make("div", { class: "rows" }, this.element, this.spacer);
    this.pen = this.element.getContext("2d");
  }

  draw() {
    this.asked ||= requestAnimationFrame(() => this.paint());
  }

  // --- where things are ---

  get whole() { return HEAD + this.run.lines * this.line + this.run.nodes.length * GAP; }
  get tall() { return Math.min(this.whole, TALLEST); }
  x(seconds) { return GUTTER + ((seconds - view.begin) / view.length) * (this.right - GUTTER); }
  y(lines, node) { return HEAD + lines * this.line + node * GAP - this.top; }
  seconds(pixels) { return (pixels / (this.right - GUTTER)) * view.length; }
  moment(x) { return view.begin + this.seconds(x - GUTTER); }

  fit() {
    this.line = clamp((TALLEST - HEAD - this.run.nodes.length * GAP) / this.run.lines, 2, 18);
  }

  // The bar at a place; of several in one pixel the shortest, which is the hardest to hit.
  under(x, y) {
    if (x < GUTTER || y < HEAD) return null;
    const [now, slack, { start, run }] = [this.moment(x), this.seconds(1.5), this.run.jobs];
    let best = null;
    for (const bar of this.run.bars) {
      if (now < start[bar.job] - slack || now > start[bar.job] + run[bar.job] + slack) continue;
      if (y < this.y(bar.top, bar.node) || y >= this.y(bar.bottom, bar.node)) continue;
      if (!best || run[bar.job] < run[best.job]) best = bar;
    }
    return best;
  }

  // --- painting ---

  paint() {
    this.asked = 0;
    const [width, tall, dots] = [this.rows.clientWidth, this.tall, window.devicePixelRatio || 1];
    Object.assign(this.element, { width: Math.round(width * dots), height: Math.round(tall * dots) });
    Object.assign(this.element.style, { width: `${width}px`, height: `${tall}px` });
    this.spacer.style.height = `${Math.max(0, this.whole - tall)}px`;
    this.right = width - 1;
    this.top = this.rows.scrollTop;
    const style = getComputedStyle(document.documentElement);
    const hues = {};
    this.hue = (name) => (hues[name] ||= style.getPropertyValue(`--${name}`).trim());
    this.pen.setTransform(dots, 0, 0, dots, 0, 0);
    this.pen.textBaseline = "middle";
    this.fill("panel", 0, 0, width, tall);
    this.paintTracks();
    this.paintBars();
    this.paintTimes();
    this.paintNodes();
  }

  fill(hue, x, y, width, height) {
    this.pen.fillStyle = this.hue(hue);
    this.pen.fillRect(x, y, width, height);
  }

  write(text, x, y, font, align = "left") {
    Object.assign(this.pen, { font, textAlign: align });
    this.pen.fillText(text, x, y);
  }

  paintTracks() {
    for (const { line, number, height } of this.run.tracks) {
      const [top, bottom] = [this.y(line, number), this.y(line + height, number)];
      if (bottom < HEAD || top > this.tall) continue;
      this.fill("track", GUTTER, top, this.right - GUTTER, bottom - top - (this.line > 4 ? 1 : 0));
    }
  }

  paintBars() {
    const { start, run } = this.run.jobs;
    this.pen.save();
    this.pen.beginPath();
    this.pen.rect(GUTTER, HEAD, this.right - GUTTER, this.tall - HEAD);
    this.pen.clip();
    for (const bar of this.run.bars) {
      if (start[bar.job] > view.end || start[bar.job] + run[bar.job] < view.begin) continue;
      if (this.y(bar.top, bar.node) > this.tall || this.y(bar.bottom, bar.node) < HEAD) continue;
      this.paintBar(bar, start[bar.job], run[bar.job]);
    }
    this.pen.restore();
  }

  paintBar({ job, node, top, bottom }, start, run) {
    const y = this.y(top, node);
    const high = (bottom - top) * this.line - (this.line > 4 ? 1 : 0);
    const left = Math.max(this.x(start), GUTTER - 4);
    const long = Math.min(this.x(start + run), this.right + 4) - left;
    // Less than a pixel is painted as that much of one: crowds of short jobs look as full as they are.
    this.fill(this.way.of(this.run, job), left, y, Math.max(long > 4 ? long - 1 : long, 0.3), Math.max(high, 0.5));
    if (job === this.lit) this.light(job, left, y, long, high);
    if (long > 60 && high > 12) this.label(job, Math.max(left, GUTTER) + 5, y + high / 2, long - 10);
  }

  // Framed, with a line from the submit to the start.
  light(job, left, y, long, high) {
    Object.assign(this.pen, { strokeStyle: this.hue("ink"), lineWidth: 1.5 });
    this.pen.strokeRect(left, y, Math.max(long - 1, 2), high);
    const submit = this.x(this.run.jobs.start[job] - this.run.jobs.wait[job]);
    this.fill("ink", submit, y + high / 2 - 0.5, left - submit, 1);
  }

  // On a patch of paper, since bars have all colours.
  label(job, left, y, room) {
    const name = this.run.users[this.run.jobs.user[job]];
    this.pen.font = SMALL;
    const long = (text) => this.pen.measureText(text).width;
    let shown = name;
    for (let cut = name.length - 1; long(shown) > room - 8; cut--) {
      if (cut < 3) return;
      shown = `${name.slice(0, cut)}…`;
    }
    this.pen.globalAlpha = 0.82;
    this.fill("panel", left - 2, y - 7, long(shown) + 5, 14);
    this.pen.globalAlpha = 1;
    this.pen.fillStyle = this.hue("ink");
    this.write(shown, left, y + 0.5, SMALL);
  }

  paintTimes() {
    const most = Math.max((this.right - GUTTER) / 100, 2);
    const step = STEPS.find((each) => view.length / each <= most) || STEPS.at(-1);
    this.fill("panel", 0, 0, this.right + 1, HEAD);
    for (let tick = Math.ceil(view.begin / step) * step; tick <= view.end; tick += step) {
      const x = this.x(tick);
      this.pen.globalAlpha = 0.25;
      this.fill("soft", x, HEAD - 4, 1, this.tall);
      this.pen.globalAlpha = 1;
      if (x < this.right - 20) this.write(since(tick), x, HEAD / 2, SMALL, "center");
    }
  }

  paintNodes() {
    this.fill("panel", 0, HEAD, GUTTER - 1, this.tall);
    this.pen.fillStyle = this.hue("soft");
    let [free, before] = [HEAD, -1];
    for (const { line, number, node, name } of this.run.tracks) {
      const top = this.y(line, number);
      const middle = top + this.line / 2;
      const shown = top > HEAD - this.line && top < this.tall;
      if (shown && name && this.line >= 11) this.write(name, GUTTER - 8, middle, SMALL, "right");
      if (shown && number !== before && top >= free - 1) {
        this.write(node.length > 11 ? `${node.slice(0, 10)}…` : node, 0, Math.max(middle, top + 6), SMALL);
        free = top + 14;
      }
      before = number;
    }
  }
}
