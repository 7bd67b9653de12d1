package main

import (
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"github.com/ratebatch/ratebatch/ratebatch"
)

// newDocsCmd writes docs/reference; it is for who changes the program and stays
// out of the list of commands.
func newDocsCmd(p *program) *cobra.Command {
	cmd := &cobra.Command{Use: "docs", Short: "Write what of the documentation is generated", Hidden: true}
	cmd.AddCommand(&cobra.Command{
		Use:     "reference DIR",
		Short:   "Write the reference: commands, tables, records, API, files, exit codes",
		Long:    "Reference writes the pages of docs/reference, made from the program itself.\n\n" + exitCodesHelp,
		Example: "  ratebatch docs reference docs/reference",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			pages, err := referencePages(cmd.Root())
			if err != nil {
				return err
			}
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return &ratebatch.ConfigError{Err: err}
			}
			for _, name := range slices.Sorted(mapKeys(pages)) {
				if err := os.WriteFile(filepath.Join(args[0], name), pages[name], 0o644); err != nil {
					return &ratebatch.ConfigError{Err: err}
				}
			}
			return nil
		},
	})
	return cmd
}
