package main

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/ratebatch/ratebatch/fixtures/kafkatest"
)

// Whatever the umask of whoever starts it, what the agent keeps on disk is its
// user's alone: who uses what is nobody else's business.
func TestModesOfTheStateDirectory(t *testing.T) {
	for _, umask := range []string{"000", "077"} {
		t.Run("umask "+umask, func(t *testing.T) {
			peer := startPeer(t, 2)
			b := kafkatest.Start(t, kafkatest.Config{})
			topics := b.Topics(t, 1)
			got := deliveries(t, b, topics)
			dir := filepath.Join(t.TempDir(), "state", "agent")
			args := append([]string{"-c", "umask " + umask + `; exec "$0" "$@"`, os.Args[0], "run", "--no-ovn", "--libvirt-uri", peer.URI(), "--state-dir", dir, "--poll-interval", "1", "--hostname", "h", "--sasl-password", b.Options.Password}, kafkaFlags(b, topics)...)
			cmd := exec.CommandContext(t.Context(), "sh", args...)
			cmd.Env = append(os.Environ(), "RATEBATCH_AGENT_TEST_PROCESS=1")
			cmd.Stderr = t.Output()
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			peer.Advance(10 * time.Second)
			waitFor(t, "records", func() bool { got.more(t); return len(got.seen) > 0 })
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait() // it was killed
			files := 0
			err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
				if err != nil {
					return err
				}
				info, err := d.Info()
				if err != nil {
					return err
				}
				want := os.FileMode(0o600)
				if d.IsDir() {
					want = 0o700
				} else {
					files++
				}
				if info.Mode().Perm() != want {
					t.Errorf("%s is %s, want %s", path, info.Mode().Perm(), want)
				}
				return nil
			})
			if err != nil || files == 0 {
				t.Errorf("%d files: %v", files, err)
			}
		})
	}
}
