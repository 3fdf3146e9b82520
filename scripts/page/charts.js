// What the page uses of Apache ECharts, and no more: `scripts/check-page charts` makes vendor/echarts.min.js of it.
import { init, use } from "echarts/core";
import { CustomChart, HeatmapChart, LineChart, ScatterChart } from "echarts/charts";
import { GridComponent, MarkLineComponent, TitleComponent, TooltipComponent, VisualMapContinuousComponent } from "echarts/components";
import { CanvasRenderer } from "echarts/renderers";

use([
  CustomChart, HeatmapChart, LineChart, ScatterChart,
  GridComponent, MarkLineComponent, TitleComponent, TooltipComponent, VisualMapContinuousComponent,
  CanvasRenderer,
]);

export { init };
