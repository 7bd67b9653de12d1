// Package yamldepth refuses what a YAML parser would need unbounded memory for,
// before the parser sees it. Plans and metrics.yaml are files that people send to
// one another.
package yamldepth

import "bytes"

// Crowded is the first line, counted from 1, with more than most of YAML's own
// marks in a row ("- - - …", "? ? …", "a: a: …"); 0 if there is none. Each opens a
// list or a mapping inside the one before, and the parser's memory grows with the
// square of them: 4 MB of dashes took 22 GB.
func Crowded(data []byte, most int) int {
	line := 0
	for text := range bytes.Lines(data) {
		line++
		run := 0
		for mark := range bytes.FieldsSeq(text) {
			if mark[0] == '#' {
				break
			}
			if run++; len(mark) > 1 && mark[len(mark)-1] != ':' {
				run = 0
			}
			if run > most {
				return line
			}
		}
	}
	return 0
}
