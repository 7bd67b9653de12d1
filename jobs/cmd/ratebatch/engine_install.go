package main

import (
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"

	"github.com/ratebatch/ratebatch/ratebatch/engine/install"
)

func newEngineInstallCmd(p *program) *cobra.Command {
	var o install.Options
	cmd := &cobra.Command{
		Use:   "install",
		Short: "Install the embedded engine's library",
		Long: fmt.Sprintf(`Fetches %s@%s with the npm client of this machine,
checks its SHA-512 against the one this version was released with, and unpacks
the library into the user's cache folder, which all checkouts share. Does
nothing if it is there already. %s names another copy.

`, install.Package, install.Version, install.EnvLib) + exitCodesHelp,
		Example: `  ratebatch engine install
  npm pack ` + install.Package + `@` + install.Version + `   # on a machine with a network
  ratebatch engine install --from chdb-lib-linux-x64-gnu-` + install.Version + `.tgz`,
		Args: engineArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			show := newInstallProgress(p.stderr)
			o.Progress = show.update
			path, installed, err := install.Run(cmd.Context(), o)
			show.finish(err == nil)
			if err != nil {
				return err
			}
			if p.output == "json" {
				return json.NewEncoder(p.stdout).Encode(map[string]any{"library": path, "version": install.Version, "installed": installed})
			}
			state := "is already installed in"
			if installed {
				state = "installed in"
			}
			_, err = fmt.Fprintf(p.stdout, "embedded engine %s %s %s\n", install.Version, state, path)
			return err
		},
	}
	cmd.Flags().StringVar(&o.From, "from", "", "tarball made by 'npm pack', for machines without a network")
	cmd.Flags().BoolVar(&o.Force, "force", false, "install again even if it is there")
	return cmd
}

// installProgress shows a bar per step on a terminal, else a line per step and
// per ten seconds.
type installProgress struct {
	w    io.Writer
	bars *mpb.Progress
	bar  *mpb.Bar
	step string
	told time.Time
}

func newInstallProgress(w io.Writer) *installProgress {
	s := &installProgress{w: w}
	if isTerminal(w) {
		s.bars = mpb.New(mpb.WithOutput(w), mpb.WithWidth(40))
	}
	return s
}

func (s *installProgress) update(step string, done, total int64) {
	if s.bars == nil {
		if step != s.step || time.Since(s.told) > 10*time.Second {
			s.step, s.told = step, time.Now()
			fmt.Fprintf(s.w, "embedded engine: %s, %d of about %d MiB\n", step, done>>20, total>>20)
		}
		return
	}
	if step != s.step {
		if s.bar != nil {
			s.bar.SetTotal(-1, true)
		}
		s.step = step
		s.bar = s.bars.AddBar(total,
			mpb.PrependDecorators(decor.Name(fmt.Sprintf("%-9s", step)), decor.CountersKibiByte("% .0f / % .0f")),
			mpb.AppendDecorators(decor.Percentage()))
	}
	s.bar.SetCurrent(done)
}

func (s *installProgress) finish(ok bool) {
	if s.bars == nil || s.bar == nil {
		return
	}
	if ok {
		s.bar.SetTotal(-1, true)
	} else {
		s.bar.Abort(false)
	}
	s.bars.Wait()
}
