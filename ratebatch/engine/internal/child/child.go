// Package child remembers the engines that this process started, so that tests
// can wait until all have left.
package child

import (
	"os/exec"
	"sync"
)

var started sync.WaitGroup

// Reap waits for the process in the background: an engine may outlive the
// command that started it, and must not stay a zombie if it does not.
func Reap(cmd *exec.Cmd) {
	started.Go(func() {
		_ = cmd.Wait() // how it ended stands in its log
	})
}

// WaitAll returns when every engine that this process started has ended.
func WaitAll() { started.Wait() }
