package spool

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// victim counts up until it is killed, and prints what it "delivers".
func victim(dir string) {
	ctx := context.Background()
	s, state, err := Open(ctx, Options{Dir: dir, Log: quiet, Clock: (&ticker{}).now})
	if err != nil {
		fmt.Println("error", err)
		return
	}
	at := 0
	if state != nil {
		_, _ = fmt.Sscan(string(state), &at)
	}
	for ; ; at++ {
		next := fmt.Append(nil, at+1)
		if err := s.Append(ctx, []Record{{Topic: 'p', Key: []byte("k"), Value: next}}, next); err != nil {
			fmt.Println("error", err)
			return
		}
		batch, ok, err := s.Next(ctx)
		if err != nil || !ok {
			fmt.Println("error", err, ok)
			return
		}
		for _, r := range batch.Records {
			fmt.Fprintf(os.Stdout, "sent %s\n", r.Value)
		}
		if err := s.Done(batch.Number); err != nil {
			fmt.Println("error", err)
			return
		}
	}
}

// A real process is killed by SIGKILL again and again, at random moments.
func TestKilledAtAnyMoment(t *testing.T) {
	dir := t.TempDir()
	sent := map[int]int{}
	last := 0
	// On a slow machine a victim may die before it does anything: more follow.
	for kills := 0; kills < 25 || last < 50 && kills < 500; kills++ {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^$")
		cmd.Env = append(os.Environ(), "SPOOL_TEST_VICTIM="+dir)
		var out bytes.Buffer
		cmd.Stdout = &out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(20+rand.IntN(60)) * time.Millisecond)
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait() // it was killed
		for _, line := range strings.Split(out.String(), "\n") {
			var n int
			if _, err := fmt.Sscanf(line, "sent %d", &n); err == nil {
				sent[n]++
				last = max(last, n)
			} else if line != "" {
				t.Fatalf("the victim says %q", line)
			}
		}
	}
	if last < 50 {
		t.Errorf("only %d batches were made", last)
	}
	for n := 1; n <= last; n++ {
		if sent[n] == 0 {
			t.Errorf("%d was never sent", n)
		}
	}
}
