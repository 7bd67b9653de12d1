package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A configuration is taken or refused with its mistakes; a password in it never
// shows.
func FuzzConfig(f *testing.F) {
	for _, s := range []string{
		"interval: 30s\nhostname: h\nkafka: {bootstrap_servers: \"a:9092,b:9092\", sasl_username: u, sasl_password: hunter2, tls: true}\n",
		"nodes:\n  - {host: a, libvirt_uri: \"qemu+tcp://a/system\", libvirt_password: hunter2}\n  - {host: a}\n", "spool: {max_age: 1h, max_bytes: -1}\n", "ovn: {nb_db: \"tcp:1.2.3.4:6641\", hold: x}\n",
		"kafka: &k\n  sasl_password: hunter2\nx: *k\n", "- a\n", "interval: [\n", "libvirt: {password: [hunter2]}\n",
	} {
		f.Add([]byte(s))
	}
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, text []byte) {
		if len(text) > 4000 {
			return
		}
		file := filepath.Join(dir, "agent.yaml")
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := load(map[string]string{"config": file}, func(string) string { return "" })
		if err != nil && strings.TrimSpace(err.Error()) == "" {
			t.Fatalf("an error without a word about %q", text)
		}
	})
}
