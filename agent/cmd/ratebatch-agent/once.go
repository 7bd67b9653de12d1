package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/ratebatch/ratebatch/agent"
	"github.com/ratebatch/ratebatch/agent/spool"
)

// defaultWait is the time between the two polls of once.
const defaultWait = 10 * time.Second

func newOnceCmd(p *program) *cobra.Command {
	wait := defaultWait
	cmd := &cobra.Command{
		Use: "once", Short: "Poll twice and print the records, for a look without Kafka",
		Long: "Once polls, waits, polls again and prints the records of the time between as JSON\n" +
			"lines. It neither reads nor changes the state directory and sends nothing.\n\n" +
			"Exit codes: 0 done, 1 a hypervisor did not answer, 2 bad flag or configuration,\n130 interrupted.",
		Example: "  ratebatch-agent once --no-ovn\n  ratebatch-agent once --no-ovn --wait 30s", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if wait < time.Second {
				return configError{fmt.Errorf("--wait %s: use at least a second", wait)}
			}
			return p.once(cmd.Context(), wait)
		},
	}
	cmd.Flags().DurationVar(&wait, "wait", wait, "time between the two polls")
	return cmd
}

func (p *program) once(ctx context.Context, wait time.Duration) error {
	dir, err := os.MkdirTemp("", "ratebatch-agent-once-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	p.config.StateDir = dir
	a, err := p.build(ctx, func(map[string]*spool.Spool) *agent.Metrics { return nil })
	if err != nil {
		return err
	}
	defer a.close()
	for _, poll := range []string{"first", "second"} {
		if poll == "second" {
			fmt.Fprintf(p.stderr, "waiting %s for the second poll\n", wait)
			timer := time.NewTimer(wait)
			defer timer.Stop()
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-timer.C:
			}
		}
		for _, h := range a.hosts {
			if err := h.Poll(ctx); err != nil {
				return fmt.Errorf("%s poll of %s: %w", poll, h.Name(), err)
			}
		}
	}
	printed := 0
	for _, h := range a.hosts {
		s := a.spools[h.Name()]
		for {
			batch, ok, err := s.Next(ctx)
			if err != nil {
				return err
			}
			if !ok {
				break
			}
			for _, r := range batch.Records {
				fmt.Fprintf(p.stdout, "%s\n", r.Value)
				printed++
			}
			if err := s.Done(batch.Number); err != nil {
				return err
			}
		}
		if n := h.Unresolved(); n > 0 {
			fmt.Fprintf(p.stderr, "%s: the traffic of %d vNICs is held, because OVN does not know their ports (yet)\n", h.Name(), n)
		}
	}
	fmt.Fprintf(p.stderr, "%d records\n", printed)
	return nil
}
