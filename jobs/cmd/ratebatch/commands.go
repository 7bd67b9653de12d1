package main

import "github.com/spf13/cobra"

// commands lists every subcommand; each lives in a file named after it.
func commands(p *program) []*cobra.Command {
	return []*cobra.Command{
		newMigrateCmd(p),
		newIngestCmd(p),
		newRollupCmd(p),
		newRateCmd(p),
		newReprocessCmd(p),
		newBackfillCmd(p),
		newResetCmd(p),
		newCloseCmd(p),
		newReopenCmd(p),
		newRetentionCmd(p),
		newExportCmd(p),
		newReconcileCmd(p),
		newFocusCmd(p),
		newPlanCmd(p),
		newMetricsCmd(p),
		newQuoteCmd(p),
		newExplainCmd(p),
		newScopesCmd(p),
		newWatermarkCmd(p),
		newStatusCmd(p),
		newSettingsCmd(p),
		newTopicsCmd(p),
		newSimulateCmd(p),
		newDemoCmd(p),
		newBenchCmd(p),
		newEngineCmd(p),
		newDevCmd(p),
	}
}
