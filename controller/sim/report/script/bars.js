// A run as the Gantt chart wants it, from the columns of numbers it came in; and what its colours mean.

const summed = (steps) => {
  let sum = 0;
  return Float64Array.from(steps, (step) => (sum += step));
};

const tracksOf = (packed) => {
  const tracks = [];
  let line = 0;
  packed.nodes.forEach(([node, parts], number) => {
    for (const [name, height] of parts) {
      tracks.push({ node, number, name, line, height });
      line += height;
    }
  });
  return tracks;
};

// A bar goes from line to line, on one node; a line is one GPU high.
const barsOf = ({ whole, part }, tracks) => {
  const bars = [];
  for (let at = 0; at < whole.length; at += 3) {
    const first = tracks[whole[at + 1]];
    const last = tracks[whole[at + 1] + whole[at + 2] - 1];
    bars.push({ job: whole[at], node: first.number, top: first.line, bottom: last.line + last.height });
  }
  for (let at = 0; at < part.length; at += 4) {
    const { number, line, height } = tracks[part[at + 1]];
    const [low, high] = [part[at + 2] / 1000, part[at + 3] / 1000];
    bars.push({ job: part[at], node: number, top: line + low * height, bottom: line + high * height });
  }
  return bars;
};

const unpack = (packed) => {
  const seconds = (ticks) => Float64Array.from(ticks, (tick) => tick * packed.unit_s);
  const { job, start, wait, run } = packed.jobs;
  const tracks = tracksOf(packed);
  return {
    ...packed,
    jobs: { ...packed.jobs, job: summed(job), start: seconds(summed(start)), wait: seconds(wait), run: seconds(run) },
    tracks,
    bars: barsOf(packed, tracks),
    lines: tracks.reduce((lines, track) => lines + track.height, 0),
  };
};

const unpacked = [];
const runAt = (at) => (unpacked[at] ||= unpack(runs[at]));

const COLOURS = 8;
const WAITS = [60, 600, 3600, 6 * 3600, DAY];

const ranked = (rank) => (rank < COLOURS ? `job${rank}` : "other");
const named = (names) => {
  const shown = names.slice(0, COLOURS).map((name, at) => [`job${at}`, name]);
  return names.length > COLOURS ? [...shown, ["other", `${(names.length - COLOURS).toLocaleString("en")} others`]] : shown;
};
const ramp = (...texts) => texts.map((text, at) => [`ramp${at}`, text]);
const waited = (seconds) => WAITS.filter((limit) => seconds >= limit).length;
const doublings = (size) => clamp(Math.ceil(Math.log2(Math.max(size, 0.5))) + 1, 0, 5);
const ended = (state) => (state.startsWith("completed") ? "job0" : state.startsWith("failed") ? "job1" : "other");

// How jobs can be coloured: the colour of one, and the legend.
const WAYS = {
  user: { of: (run, job) => ranked(run.jobs.user[job]), legend: (run) => named(run.users) },
  project: { of: (run, job) => ranked(run.jobs.project[job]), legend: (run) => named(run.projects) },
  size: {
    of: (run, job) => `ramp${doublings(run.jobs.size[job])}`,
    legend: (run) => ramp("less than one", `1 ${run.unit}`, "2", "3–4", "5–8", "more"),
  },
  wait: {
    of: (run, job) => `ramp${waited(run.jobs.wait[job])}`,
    legend: () => ramp("below 1m", "10m", "1h", "6h", "1d", "more"),
  },
  outcome: {
    of: (run, job) => ended(run.states[run.jobs.state[job]]),
    legend: () => [["job0", "completed"], ["job1", "failed"], ["other", "otherwise"]],
  },
};

const about = (run, job) => {
  const { jobs } = run;
  const [size, limit] = [jobs.size[job], jobs.limit[job]];
  const nodes = [...new Set(run.bars.filter((bar) => bar.job === job).map((bar) => run.nodes[bar.node][0]))];
  const more = nodes.length > 4 ? ` and ${nodes.length - 4} more nodes` : "";
  const attempt = jobs.attempts && jobs.attempts[job] > 1 ? `, attempt ${jobs.attempts[job]}` : "";
  return [
    `Job ${jobs.job[job]} of ${run.users[jobs.user[job]]}`,
    `${size} ${run.unit}${size === 1 ? "" : "s"} on ${nodes.slice(0, 4).join(", ")}${more}`,
    `project ${run.projects[jobs.project[job]]}`,
    `submitted at ${clock(jobs.start[job] - jobs.wait[job])}, waited ${duration(jobs.wait[job])}`,
    `ran ${duration(jobs.run[job])}${limit === null ? "" : ` of at most ${duration(limit)}`}`,
    run.states[jobs.state[job]] + attempt,
  ];
};
