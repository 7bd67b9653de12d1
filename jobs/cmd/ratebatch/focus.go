package main

import (
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/ratebatch/ratebatch/exporter"
	"github.com/ratebatch/ratebatch/ratebatch"
)

func newFocusCmd(p *program) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "focus",
		Short: "Work with FOCUS cost and usage files",
		Args:  cobra.NoArgs,
	}
	cmd.AddCommand(newFocusCheckCmd(p))
	return cmd
}

func newFocusCheckCmd(p *program) *cobra.Command {
	var version string
	cmd := &cobra.Command{
		Use:   "check FILE",
		Short: "Hold a Parquet or CSV file against the rules of FOCUS",
		Long: `Check reads a file of any provider and lists the rules of FOCUS it breaks, with
the number of rows and the first example of each. Numbers are compared as
decimals, so 0.1 × 3 = 0.3 holds. Exit code 3 says that rules are broken.

` + exitCodesHelp,
		Example: `  ratebatch focus check /srv/finance/v1/dataset=focus/month=2026-11/delivery=…/day=2026-11-01/part-00000.parquet
  ratebatch focus check charges.csv --focus-version 1.3 --output json`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !slices.Contains(exporter.FocusVersions(), version) {
				return &ratebatch.ConfigError{Err: fmt.Errorf("--focus-version %q", version), Hint: "there are " + strings.Join(exporter.FocusVersions(), ", ")}
			}
			report, err := exporter.FocusCheck(cmd.Context(), args[0], version)
			if err != nil {
				return err
			}
			if err := p.print(report, func() { printFocusReport(p, report) }); err != nil {
				return err
			}
			if n := len(report.Findings); n > 0 {
				return fmt.Errorf("%s breaks %d rules of FOCUS %s: %w", args[0], n, version, ratebatch.ErrRejected)
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&version, "focus-version", exporter.FocusVersions()[0], "version to check against: "+strings.Join(exporter.FocusVersions(), ", "))
	return cmd
}

func printFocusReport(p *program, r exporter.FocusReport) {
	fmt.Fprintf(p.stdout, "FOCUS %s: %d rows, %d invoices\n", r.Version, r.Rows, r.Invoices)
	w := tabwriter.NewWriter(p.stdout, 0, 8, 2, ' ', 0)
	for _, currency := range slices.Sorted(mapKeys(r.Totals)) {
		fmt.Fprintf(w, "BilledCost\t%s %s\n", r.Totals[currency], currency)
	}
	for _, f := range r.Findings {
		fmt.Fprintf(w, "%s\t%d rows\t%s\n", f.Rule, f.Rows, f.Example)
	}
	w.Flush()
	if len(r.Findings) == 0 {
		fmt.Fprintln(p.stdout, "every rule holds")
	}
}
