package casefile

import (
	"bufio"
	"io"
)

// lines reads lines of any length up to MaxLine.
type lines struct {
	s      *bufio.Scanner
	text   []byte
	number int
	err    error
}

func newLines(r io.Reader) *lines {
	s := bufio.NewScanner(r)
	s.Buffer(make([]byte, 0, 64<<10), MaxLine)
	return &lines{s: s}
}

func (l *lines) next() bool {
	if !l.s.Scan() {
		l.err = l.s.Err()
		return false
	}
	l.text = l.s.Bytes()
	l.number++
	return true
}
