"""How the page of a report looks: on a phone, on a wide screen, in the dark, on paper."""

from __future__ import annotations

STYLE = """
:root {
  color-scheme: light dark;
  --page: #f6f7f9; --card: #ffffff; --ink: #1b1f27; --dim: #5f6675; --line: #e1e4ea; --code: #f1f3f6;
  --accent: #1a5fb4; --bad: #b3261e; --bad-soft: #fdeceb; --warn: #8a5a00; --good: #1e7b3a;
    --good-soft: #e8f5ec;
  --p0: #b5651d; --p1: #1a5fb4; --p2: #4a8fe0; --p3: #1e7b3a; --p4: #a33b6f; --p5: #8b93a3;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #14171d; --card: #1c2028; --ink: #e4e7ee; --dim: #98a0b3; --line: #2e343f; --code: #232833;
    --accent: #8ab4f8; --bad: #ff8a80; --bad-soft: #3a2324; --warn: #f2c062; --good: #7fd6a0;
      --good-soft: #1d3327;
    --p0: #e0a36b; --p1: #6ba4f5; --p2: #a9cbfb; --p3: #7fd6a0; --p4: #eb9bc2; --p5: #6c7587;
  }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink); font: 16px/1.5 system-ui, sans-serif;
  overflow-wrap: anywhere; }
main { max-width: 68rem; margin: 0 auto; padding: 1.5rem 1rem 3rem; }
h1 { font-size: 1.35rem; line-height: 1.3; margin: 0; } h2 { font-size: 1.05rem; margin: 2rem 0 .6rem; }
h3 { font-size: 1rem; margin: 0 0 .3rem; } p { margin: .3rem 0; }
.dim { color: var(--dim); } .small { font-size: .875rem; }
.state { display: inline-block; margin: .6rem 0 .2rem; padding: .3rem .8rem; border-radius: 1rem;
  font-weight: 600;
  background: var(--code); }
.state.bad { color: var(--bad); background: var(--bad-soft); }
.state.good { color: var(--good); background: var(--good-soft); }
.facts { display: grid; grid-template-columns: repeat(auto-fit, minmax(8.5rem, 1fr)); gap: .6rem;
  margin: 1rem 0; }
.facts div, section, figure, details { background: var(--card); border: 1px solid var(--line);
  border-radius: .6rem; }
.facts div { padding: .6rem .8rem; } .facts b { display: block; font-size: 1.1rem;
  font-variant-numeric: tabular-nums; }
section { padding: .8rem 1rem; margin: .6rem 0; } section.bad { border-left: .3rem solid var(--bad); }
section.warn { border-left: .3rem solid var(--warn); } section ul { margin: .3rem 0; padding-left: 1.2rem; }
pre, code, td { font: .8125rem/1.5 ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; }
code { background: var(--code); padding: .1em .3em; border-radius: .3em; }
pre { background: var(--code); padding: .7rem .8rem; border-radius: .5rem; margin: .5rem 0;
  overflow-x: auto;
  overflow-wrap: normal; }
pre.wrap { white-space: pre-wrap; overflow-wrap: anywhere; }
details { margin: .6rem 0; padding: .1rem 1rem; } summary { cursor: pointer; padding: .5rem 0;
  font-weight: 600; }
summary span { font-weight: 400; }
.scroll { overflow-x: auto; } table { border-collapse: collapse; width: 100%; }
th { text-align: left; font-size: .8125rem; color: var(--dim); font-weight: 600; }
td, th { padding: .25rem 1rem .25rem 0; vertical-align: top; border-top: 1px solid var(--line); }
tr:first-child > * { border-top: 0; } td.time { white-space: nowrap; color: var(--dim); width: 1%; }
.time + td { font: .875rem/1.5 system-ui, sans-serif; }
.error { color: var(--bad); } .warning { color: var(--warn); }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 22rem), 1fr));
  gap: .6rem; }
figure { margin: 0; padding: .7rem 1rem; } figcaption { display: flex; justify-content: space-between; }
figure p { font-size: .8125rem; }
.plot { position: relative; height: 9rem; margin: .4rem 0 .1rem; padding-left: 4.2rem; }
.plot svg { width: 100%;
  height: 100%; display: block; }
.plot path { fill: none; stroke: var(--accent); stroke-width: 2; vector-effect: non-scaling-stroke;
  stroke-linejoin: round; stroke-linecap: round; }
.plot path.grid { stroke: var(--line); stroke-width: 1; }
.plot span { position: absolute; left: 0; font-size: .75rem; color: var(--dim);
  line-height: 1.2; } .plot .high { top: 0; } .plot .low { bottom: 0; } .plot .middle { top: 45%; }
.axis { padding-left: 4.2rem; display: flex; justify-content: space-between; font-size: .75rem;
  color: var(--dim); }
.phases { display: flex; height: 1.4rem; border-radius: .4rem; overflow: hidden; margin: .5rem 0; }
.legend { display: flex; flex-wrap: wrap; gap: .2rem 1rem; font-size: .875rem; }
.legend i { display: inline-block; width: .8em; height: .8em; border-radius: .2em; margin-right: .4em; }
.p0 { background: var(--p0); } .p1 { background: var(--p1); } .p2 { background: var(--p2); }
.p3 { background: var(--p3); } .p4 { background: var(--p4); } .p5 { background: var(--p5); }
footer { margin-top: 2rem; color: var(--dim); font-size: .875rem; }
@media (max-width: 30rem) { main { padding: 1rem .7rem 2rem; } td, th { padding-right: .6rem; } }
@media print {
  :root { --page: #fff; --card: #fff; --ink: #000; --dim: #444; --line: #bbb; --code: #f4f4f4; }
  body { font-size: 11px; } main { max-width: none; padding: 0; }
  pre { white-space: pre-wrap; overflow-wrap: anywhere; } .scroll { overflow: visible; }
  details::details-content { content-visibility: visible; block-size: auto; }
  figure, section, .facts, tr { break-inside: avoid; } h2, summary { break-after: avoid; }
}
"""
