package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Severity says whether a finding stops a plan from being applied.
type Severity string

const (
	Mistake Severity = "error"   // the plan is refused
	Warning Severity = "warning" // the plan works, probably not as meant
)

// Finding is one thing that is wrong with a plan, or looks wrong.
type Finding struct {
	Severity Severity `json:"severity"`
	File     string   `json:"file,omitempty"`
	Line     int      `json:"line,omitempty"`
	Column   int      `json:"column,omitempty"`
	Text     string   `json:"text"`
}

// String gives the form that editors and terminals make clickable.
func (f Finding) String() string {
	var b strings.Builder
	if f.File != "" {
		b.WriteString(f.File + ":")
	}
	if f.Line > 0 {
		fmt.Fprintf(&b, "%d:%d:", f.Line, f.Column)
	}
	if b.Len() > 0 {
		b.WriteByte(' ')
	}
	if f.Severity == Warning {
		b.WriteString("warning: ")
	}
	b.WriteString(f.Text)
	return b.String()
}

// Findings is a list of findings; as an error it stands for its mistakes.
type Findings []Finding

// Mistakes picks the findings that refuse the plan.
func (f Findings) Mistakes() Findings {
	var out Findings
	for _, x := range f {
		if x.Severity == Mistake {
			out = append(out, x)
		}
	}
	return out
}

// Err is the mistakes as one error, or nil when there is none.
func (f Findings) Err() error {
	if m := f.Mistakes(); len(m) > 0 {
		return m
	}
	return nil
}

// Error lists all findings, one a line.
func (f Findings) Error() string {
	lines := make([]string, len(f))
	for i, x := range f {
		lines[i] = x.String()
	}
	return strings.Join(lines, "\n")
}

func (f Findings) sorted() Findings {
	slices.SortStableFunc(f, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return f
}

// report collects findings of one file.
type report struct {
	file string
	list Findings
}

func (r *report) mistake(at Position, format string, args ...any) {
	r.list = append(r.list, Finding{Mistake, r.file, at.Line, at.Column, fmt.Sprintf(format, args...)})
}

func (r *report) warn(at Position, format string, args ...any) {
	r.list = append(r.list, Finding{Warning, r.file, at.Line, at.Column, fmt.Sprintf(format, args...)})
}
