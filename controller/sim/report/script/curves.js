// Charts over time are there without this; here they learn to be read at a moment, and to choose a window.

const HINT = "Point at a time to read its values; drag over a range to see which jobs held what in it.";

const follow = (figure) => {
  const svg = figure.querySelector("svg");
  const curves = time.charts[figure.dataset.chart];
  const [cursor, mark] = [svg.querySelector(".cursor"), svg.querySelector(".window")];
  const [left, right] = [Number(svg.dataset.left), Number(svg.dataset.right)];
  const reading = figure.nextElementSibling;
  let from = null;

  const place = (seconds) => left + (seconds / time.length) * (right - left);
  const moment = (event) => {
    const box = svg.getBoundingClientRect();
    const x = ((event.clientX - box.left) / box.width) * svg.viewBox.baseVal.width;
    return clamp((x - left) / (right - left), 0, 1) * time.length;
  };
  const said = (now) => curves.map(({ label, values, unit }) => {
    const value = values[Math.min(Math.floor((now / time.length) * values.length), values.length - 1)];
    return `${curves.length > 1 ? `${label} ` : ""}${value} ${unit}`;
  });

  svg.addEventListener("pointermove", (event) => {
    const now = moment(event);
    cursor.setAttribute("x1", place(now));
    cursor.setAttribute("x2", place(now));
    cursor.style.visibility = "visible";
    reading.textContent = [clock(now), ...said(now)].join(" · ");
    const dragged = from !== null && Math.abs(now - from) > time.length / 200;
    if (dragged) view.set(Math.min(from, now), Math.max(from, now));
  });
  svg.addEventListener("pointerleave", () => {
    cursor.style.visibility = "hidden";
    reading.textContent = HINT;
  });
  svg.addEventListener("pointerdown", (event) => {
    if (event.pointerType === "touch") return; // a finger scrolls the page
    from = moment(event);
    svg.setPointerCapture(event.pointerId);
    event.preventDefault();
  });
  for (const over of ["pointerup", "pointercancel"]) svg.addEventListener(over, () => { from = null; });
  svg.addEventListener("dblclick", () => view.all());

  view.listeners.push(() => {
    const whole = view.length >= time.length * 0.9999;
    mark.setAttribute("x", place(view.begin));
    mark.setAttribute("width", whole ? 0 : place(view.end) - place(view.begin));
  });
  reading.textContent = HINT;
};

document.querySelectorAll("figure[data-chart]").forEach(follow);
