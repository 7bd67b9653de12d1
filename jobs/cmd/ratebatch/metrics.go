package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/metric"
	"github.com/ratebatch/ratebatch/ratebatch/plan"
	"github.com/ratebatch/ratebatch/ratebatch/store"
)

// metricVersions is the metric set as a versioned file.
func metricVersions() versioned {
	return versioned{kind: store.MetricVersions, noun: "metric set", read: func(name string, body []byte) (string, string, []string, error) {
		set, err := metric.Parse(name, body)
		if err != nil {
			return "", "", nil, err
		}
		for _, derived := range plan.DerivedMetrics() {
			if _, taken := set.Get(derived); taken {
				return "", "", nil, &ratebatch.ConfigError{Err: fmt.Errorf("%s: metric %s: lines of this name come from other lines", name, derived), Hint: "rename the metric with alt_name"}
			}
		}
		return set.Digest(), "", nil, nil
	}}
}

func newMetricsCmd(p *program) *cobra.Command {
	v := metricVersions()
	cmd := &cobra.Command{
		Use:   "metrics",
		Short: "How usage is collected: apply, list and show metrics.yaml",
		Long: `Metrics say how the quantity of each metric comes about from ClickHouse tables.
Until one is applied the built-in set counts ('ratebatch metrics default').`,
	}
	cmd.AddCommand(p.applyCmd(v), p.listCmd(v), p.showCmd(v), &cobra.Command{
		Use:   "default",
		Short: "Print the built-in metrics.yaml, a start for your own",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			_, err := p.stdout.Write(metric.Default())
			return err
		},
	})
	return cmd
}
