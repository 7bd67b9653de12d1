package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/metric"
	"github.com/ratebatch/ratebatch/ratebatch/plan"
	"github.com/ratebatch/ratebatch/ratebatch/store"
)

const metricsHelp = `
A set must have every metric that a rate plan in force in its time prices, with
the attributes that its tiers are counted by.
`

// metricVersions is the metric set as a versioned file.
func metricVersions() versioned {
	return versioned{kind: store.MetricVersions, noun: "metric set", limit: metricsLimit, fits: metricsFit, warns: metricsWarn, help: metricsHelp, read: func(name string, body []byte) (string, string, []string, error) {
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

// metricsWarn names the tables and columns that a metric set reads and that there
// are not. It warns only, since a table may be made before the set is in force;
// a pass would stop at it.
func metricsWarn(ctx context.Context, s *store.Store, d draft) ([]string, error) {
	set, err := metric.Parse(d.file, []byte(d.Body))
	if err != nil {
		return nil, err
	}
	var out []string
	for _, m := range set.Metrics {
		there, err := s.TableColumns(ctx, m.Table)
		if err != nil {
			return nil, err
		}
		if m.Tiered() || len(there) == 0 {
			if !m.Tiered() {
				out = append(out, fmt.Sprintf("metric %s reads the table %s, which there is not: make it before this set is in force, or no period can be rated", m.Name, m.Table))
			}
			continue
		}
		for _, column := range m.Columns() {
			if !slices.Contains(there, column) {
				out = append(out, fmt.Sprintf("metric %s reads the column %s of %s, which has %s", m.Name, column, m.Table, strings.Join(there, ", ")))
			}
		}
	}
	return out, nil
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
		Use:     "default",
		Short:   "Print the built-in metrics.yaml, a start for your own",
		Long:    "Default prints the metrics.yaml that counts until another is applied.\n\n" + exitCodesHelp,
		Example: "  ratebatch metrics default > metrics.yaml",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			_, err := p.stdout.Write(metric.Default())
			return err
		},
	})
	return cmd
}
