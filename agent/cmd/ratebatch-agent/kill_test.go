package main

import (
	"math/rand/v2"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/ratebatch/ratebatch/fixtures/kafkatest"
	"github.com/ratebatch/ratebatch/fixtures/libvirtpeer"
)

// The agent's process is killed by SIGKILL again and again, at random moments
// of polls, writes and deliveries, while domains work. By identity every byte
// arrives once. (package spool breaks each of its steps in turn.)
func TestKilledAtAnyMoment(t *testing.T) {
	peer := startPeer(t, 4)
	b := kafkatest.Start(t, kafkatest.Config{})
	topics := b.Topics(t, 1)
	got := deliveries(t, b, topics)
	args := append([]string{"run", "--no-ovn", "--libvirt-uri", peer.URI(), "--state-dir", t.TempDir(), "--poll-interval", "1", "--hostname", "h", "--sasl-password", b.Options.Password}, kafkaFlags(b, topics)...)
	var log buffer
	defer func() {
		if t.Failed() {
			t.Log(log.String())
		}
	}()
	start := func() *exec.Cmd {
		cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
		cmd.Env = append(os.Environ(), "RATEBATCH_AGENT_TEST_PROCESS=1")
		cmd.Stderr = &log
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		return cmd
	}
	kill := func(cmd *exec.Cmd) {
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait() // it was killed
	}
	var seconds uint64
	work := func() {
		peer.Advance(10 * time.Second)
		seconds += 10
	}
	cmd := start()
	waitFor(t, "a first record, so that the baseline is saved", func() bool { got.more(t); return len(got.seen) > 0 })
	for range 10 {
		work()
		time.Sleep(rand.N(1200 * time.Millisecond))
		kill(cmd)
		work()
		cmd = start()
		// Polls are aligned to the second, so the kills come around them too.
		time.Sleep(time.Until(time.Now().Truncate(time.Second).Add(time.Second)) + rand.N(100*time.Millisecond))
	}
	waitFor(t, "all traffic", func() bool { got.more(t); return got.rx >= 4*3000*seconds && got.read >= 8*4096*seconds })
	calls := peer.Calls(libvirtpeer.ProcStats)
	waitFor(t, "two more polls", func() bool { got.more(t); return peer.Calls(libvirtpeer.ProcStats) >= calls+2 })
	kill(cmd)
	got.more(t)
	if got.rx != 4*3000*seconds || got.read != 8*4096*seconds {
		t.Errorf("%d bytes received and %d read arrived, want %d and %d", got.rx, got.read, 4*3000*seconds, 8*4096*seconds)
	}
}
