/* Draws one series of n points with either library and times whole frames. */
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";

const n = 10_000;
const x = Array.from({ length: n }, (_, i) => 1_700_000_000 + i * 60);
const y = x.map((_, i) => 50 + 40 * Math.sin(i / 300) + 10 * Math.sin(i * 7.1));
const frame = () => new Promise<number>((f) => requestAnimationFrame(f));

async function times(draw: (shift: number) => void): Promise<number[]> {
  const out: number[] = [];
  for (let i = 0; i < 30; i++) {
    await frame();
    const t = performance.now();
    draw(i);
    out.push(performance.now() - t);
  }
  return out.sort((a, b) => a - b);
}

const shifted = (i: number) => y.map((v) => v + i);

async function uplot(): Promise<number[]> {
  const el = document.getElementById("u")!;
  const u = new uPlot({ width: 800, height: 240, series: [{}, { stroke: "#1f6fc4", width: 1.5, points: { show: false } }] }, [x, y], el);
  return times((i) => {
    u.setData([x, shifted(i)], false);
    u.redraw(true, false);
    // setData draws in a microtask; a second draw at once makes the time whole.
    (u as unknown as { _commit?: () => void })._commit?.();
    u.batch(() => u.setScale("x", { min: x[0]!, max: x[n - 1]! }), true);
  });
}

async function echarts(): Promise<number[]> {
  const { init } = await import("./echarts");
  const c = init(document.getElementById("e")!, null, { renderer: "canvas" });
  c.setOption({ animation: false, xAxis: { type: "time" }, yAxis: {}, series: [{ type: "line", showSymbol: false, data: x.map((t, i) => [t * 1000, y[i]]) }] });
  return times((i) => {
    const v = shifted(i);
    c.setOption({ series: [{ data: x.map((t, k) => [t * 1000, v[k]]) }] });
    c.getZr().flush();
  });
}

Object.assign(window, { bench: { uplot, echarts } });
