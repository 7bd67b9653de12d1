package main

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// systemd hears that the agent is ready, that its loops turn, and that it stops.
func TestSystemdIsTold(t *testing.T) {
	dir, err := os.MkdirTemp("", "notify") // a socket's path has to be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(dir, "s"), Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	t.Setenv("NOTIFY_SOCKET", filepath.Join(dir, "s"))
	t.Setenv("WATCHDOG_USEC", "300000")
	next := func() string {
		t.Helper()
		if err := socket.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
			t.Fatal(err)
		}
		buf := make([]byte, 256)
		n, err := socket.Read(buf)
		if err != nil {
			t.Fatal(err)
		}
		return string(buf[:n])
	}
	peer := startPeer(t, 1)
	agent := background(t, "run", "--no-ovn", "--libvirt-uri", peer.URI(), "--state-dir", t.TempDir(), "--bootstrap-servers", "127.0.0.1:1")
	heard := map[string]int{}
	for heard["READY=1"] == 0 || heard["WATCHDOG=1"] < 5 {
		heard[strings.TrimSpace(next())]++
	}
	agent.cancel()
	for heard["STOPPING=1"] == 0 {
		heard[strings.TrimSpace(next())]++
	}
	agent.stop()
}
