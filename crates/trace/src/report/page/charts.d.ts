// What the page uses of the vendored charts; options are ECharts' own, and are not checked.

interface Chart {
  setOption(option: object, how: { notMerge: boolean }): void;
  resize(): void;
}

declare const echarts: { init(element: HTMLElement, theme: null, how: { renderer: "canvas" }): Chart };
