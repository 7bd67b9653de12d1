package main

import "github.com/spf13/cobra"

// operating lists the commands that run a deployment rather than bill.
func operating(p *program) []*cobra.Command {
	return []*cobra.Command{
		newServeCmd(p),
		newScheduleCmd(p),
		newConfigCmd(p),
		newDoctorCmd(p),
		newCompareCmd(p),
		newManCmd(p),
		newDocsCmd(p),
	}
}
