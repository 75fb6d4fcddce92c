"use strict";

const read = (id) => JSON.parse(document.getElementById(id).textContent);
const time = read("time-data");
const runs = read("gantt-data");

const DAY = 86400;
const clamp = (value, low, high) => Math.min(Math.max(value, low), high);
const two = (number) => String(number).padStart(2, "0");

// Elements are made, never parsed: a name is text and nothing else.
const make = (tag, attributes = {}, ...inside) => {
  const made = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...inside);
  return made;
};

// --- times, as the rest of the page writes them ---

const since = (seconds) => {
  const whole = Math.round(seconds);
  const days = Math.floor(whole / DAY);
  const rest = whole % DAY;
  if (days && !rest) return `${days} d`;
  const left = rest % 60 ? `:${two(rest % 60)}` : "";
  const hours = `${two(Math.floor(rest / 3600))}:${two(Math.floor((rest % 3600) / 60))}${left}`;
  return days ? `${days} d ${hours}` : hours;
};

// To the minute, where there are days.
const clock = (seconds) => since(time.length > DAY ? Math.round(seconds / 60) * 60 : seconds);

const duration = (seconds) => {
  if (seconds > 0 && seconds < 10 && seconds % 1) return `${seconds.toFixed(1)}s`;
  const whole = Math.floor(seconds);
  if (whole < 60) return `${whole}s`;
  if (whole < 3600) return `${Math.floor(whole / 60)}m${two(whole % 60)}s`;
  if (whole < DAY) return `${Math.floor(whole / 3600)}h${two(Math.floor((whole % 3600) / 60))}m`;
  return `${Math.floor(whole / DAY)}d${two(Math.floor((whole % DAY) / 3600))}h`;
};

// --- the window of time that the Gantt chart shows; charts over time mark it, and can set it ---

const view = {
  begin: 0,
  end: time.length,
  listeners: [],
  get length() { return this.end - this.begin; },
  set(begin, end) {
    const length = clamp(end - begin, time.length / 20000, time.length);
    this.begin = clamp(begin, 0, time.length - length);
    this.end = this.begin + length;
    this.listeners.forEach((listener) => listener());
  },
  move(by) { this.set(this.begin + by, this.end + by); },
  zoom(factor, middle = (this.begin + this.end) / 2) {
    this.set(middle - (middle - this.begin) * factor, middle + (this.end - middle) * factor);
  },
  all() { this.set(0, time.length); },
};
