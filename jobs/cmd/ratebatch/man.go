package main

import (
	"errors"
	"os"
	"strconv"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"github.com/ratebatch/ratebatch/ratebatch"
)

// newManCmd writes what packages ship beside the program; it is for 'make
// release' and stays out of the list of commands.
func newManCmd(p *program) *cobra.Command {
	var out string
	cmd := &cobra.Command{
		Use: "man", Short: "Write a manual page for each command", Hidden: true, Args: cobra.NoArgs,
		Long:    "Man writes manual pages, made from the same text as --help.\n\n" + exitCodesHelp,
		Example: "  ratebatch man --out /usr/local/share/man/man1",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if out == "" {
				return &ratebatch.ConfigError{Err: errors.New("no folder is given"), Hint: "name it with --out"}
			}
			if err := os.MkdirAll(out, 0o755); err != nil {
				return &ratebatch.ConfigError{Err: err}
			}
			root := cmd.Root()
			root.DisableAutoGenTag = true // the same program gives the same pages
			date := p.now().UTC()
			if seconds, err := strconv.ParseInt(os.Getenv("SOURCE_DATE_EPOCH"), 10, 64); err == nil {
				date = time.Unix(seconds, 0).UTC()
			}
			old := syscall.Umask(0o022) // the library's files are everybody's to write, but for the umask
			defer syscall.Umask(old)
			syscall.Umask(old | 0o022)
			return doc.GenManTree(root, &doc.GenManHeader{Title: "RATEBATCH", Section: "1", Source: "Ratebatch " + version, Manual: "Ratebatch", Date: &date}, out)
		},
	}
	cmd.Flags().StringVar(&out, "out", "", "folder to write to")
	return cmd
}
