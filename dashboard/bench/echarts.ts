/* Only the parts of ECharts that a line chart needs, so that its size is a fair one. */
import { LineChart } from "echarts/charts";
import { GridComponent } from "echarts/components";
import { init, use } from "echarts/core";
import { CanvasRenderer } from "echarts/renderers";

use([LineChart, GridComponent, CanvasRenderer]);
export { init };
