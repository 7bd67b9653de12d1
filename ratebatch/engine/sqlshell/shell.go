// Package sqlshell is 'ratebatch engine sql': statements from a flag, from
// standard input or from a prompt, results as tables, JSON, CSV or one value
// per line. It talks to whatever ClickHouse an engine.Engine is connected to.
package sqlshell

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/google/uuid"
	"golang.org/x/term"

	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/engine"
	"github.com/ratebatch/ratebatch/ratebatch/engine/internal/endpoint"
)

// Shell runs statements one after the other in one session, so SET and
// temporary tables last.
type Shell struct {
	Engine *engine.Engine
	Format string // one of Formats
	Stdin  io.Reader
	Stdout io.Writer
	Stderr io.Writer

	HistoryFile string // of the prompt; empty: none
	Pager       string // a command for long results on a terminal; empty: none

	session string
}

// errUse explains what a pool of connections cannot do.
var errUse = &ratebatch.ConfigError{Err: errors.New("USE"), Hint: "name the database with --database, or in front of the table: db.table"}

// Run runs all statements of a text and stops at the first that fails.
func (s *Shell) Run(ctx context.Context, text string) error {
	pieces, rest := endpoint.Split(text)
	if strings.TrimSpace(rest) != "" {
		pieces = append(pieces, endpoint.Piece{Statement: strings.TrimSpace(rest)})
	}
	if len(pieces) == 0 {
		return &ratebatch.ConfigError{Err: errors.New("no statement is given"), Hint: "give one with -q or on standard input"}
	}
	for _, p := range pieces {
		if _, err := s.run(ctx, p, s.Stdout); err != nil {
			return err
		}
	}
	return nil
}

// inSession makes the statements of this shell share a session. The native
// protocol has one per connection, and the shell's pool has one connection.
func (s *Shell) inSession(ctx context.Context) context.Context {
	if s.Engine.ClientOptions().Protocol != clickhouse.HTTP {
		return ctx
	}
	if s.session == "" {
		s.session = "sql-" + uuid.NewString()
	}
	return clickhouse.Context(ctx, clickhouse.WithSettings(clickhouse.Settings{"session_id": s.session, "session_timeout": 3600}))
}

// Statements that answer with rows; others are executed.
var withRows = []string{"SELECT", "WITH", "FROM", "(", "SHOW", "DESCRIBE", "DESC", "EXISTS", "EXPLAIN", "CHECK", "KILL", "VALUES"}

func (s *Shell) run(ctx context.Context, p endpoint.Piece, w io.Writer) (rows int, err error) {
	kind := endpoint.Kind(p.Statement)
	if kind == "USE" {
		return 0, errUse
	}
	ctx = s.inSession(ctx)
	if !slices.Contains(withRows, kind) {
		return 0, short(s.Engine.Conn().Exec(ctx, p.Statement))
	}
	format := s.Format
	if p.Vertical {
		format = "vertical"
	}
	statement, asked, err := cutFormat(p.Statement)
	if err != nil {
		return 0, err
	}
	if asked != "" {
		format = asked
	}
	result, err := s.Engine.Conn().Query(ctx, statement)
	if err != nil {
		return 0, short(err)
	}
	defer func() { err = errors.Join(err, result.Close()) }()
	buffered := bufio.NewWriter(w)
	rows, err = printRows(result, newPrinter(buffered, format, result))
	return rows, errors.Join(short(err), buffered.Flush())
}

var formatClause = regexp.MustCompile(`(?is)\sFORMAT\s+([A-Za-z0-9]+)\s*;?\s*$`)

// cutFormat takes a FORMAT clause off the end of a statement: rows come through
// the client, which reads the Native format only, and are printed here.
func cutFormat(statement string) (rest, format string, err error) {
	at := formatClause.FindStringSubmatchIndex(statement)
	if at == nil {
		return statement, "", nil
	}
	name := statement[at[2]:at[3]]
	switch strings.ToLower(name) {
	case "tsv", "tabseparated", "tsvwithnames", "tabseparatedwithnames":
		format = "tsv"
	case "csv", "csvwithnames":
		format = "csv"
	case "json", "jsoncompact":
		format = "json"
	case "jsoneachrow", "jsonlines", "ndjson":
		format = "jsonl"
	case "vertical":
		format = "vertical"
	case "pretty", "prettycompact", "prettyspace":
		format = "table"
	default:
		return "", "", &ratebatch.ConfigError{Err: fmt.Errorf("FORMAT %s is not printed here", name), Hint: "use table, vertical, json, jsonl, csv or tsv (--format), or curl against the endpoint"}
	}
	return statement[:at[0]], format, nil
}

const help = `Statements end with ; or with \G (one value per line) and may span lines.
  \f FORMAT   print as table, vertical, json, jsonl, csv or tsv
  \d          list the tables, \d TABLE describes one
  \?          this help
  \q          leave, as do exit, quit and Ctrl-D; Ctrl-C ends a statement or drops a line
`

// Interactive reads statements from a terminal until its user leaves.
func (s *Shell) Interactive(ctx context.Context, terminal *os.File) error {
	// Ctrl-C ends the statement, not the shell, so the command's own context,
	// which it ends, is not for statements; SIGTERM still ends everything.
	ctx, stop := signal.NotifyContext(context.WithoutCancel(ctx), syscall.SIGTERM)
	defer stop()
	_, _ = fmt.Fprintf(s.Stderr, "ClickHouse %s, %s, database %s. \\? for help.\n", s.Engine.Version(), s.Engine.Address(), s.Engine.Database())
	history := s.openHistory()
	defer history.close()
	line := newPrompt(terminal, s.Stderr, history)
	const first, next = "ratebatch> ", "        -> "
	pending := ""
	for ctx.Err() == nil {
		line.SetPrompt(first)
		if pending != "" {
			line.SetPrompt(next)
		}
		if width, height, err := term.GetSize(int(terminal.Fd())); err == nil {
			_ = line.SetSize(width, height) // a wrong size only wraps badly
		}
		input, err := line.read()
		if errors.Is(err, io.EOF) && line.interrupted {
			// The editor is of no more use after that key.
			_, _ = fmt.Fprint(s.Stderr, "\n")
			pending, line = "", newPrompt(terminal, s.Stderr, history)
			continue
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if pending == "" {
			leave, done := s.command(ctx, strings.TrimSpace(input))
			if leave {
				return nil
			}
			if done {
				continue
			}
		}
		pieces, rest := endpoint.Split(pending + input + "\n")
		pending = rest
		for _, p := range pieces {
			if !s.runAtPrompt(ctx, p) {
				pending = ""
				break
			}
		}
		select {
		case <-s.Engine.Lost():
			return s.Engine.ErrLost()
		default:
		}
	}
	return context.Canceled
}

// command runs what begins with a backslash.
func (s *Shell) command(ctx context.Context, input string) (leave, done bool) {
	name, argument, _ := strings.Cut(input, " ")
	argument = strings.TrimSpace(strings.TrimSuffix(argument, ";"))
	switch strings.TrimSuffix(name, ";") {
	case `\q`, "exit", "quit":
		return true, true
	case `\?`, `\h`, "help":
		_, _ = fmt.Fprint(s.Stderr, help)
	case `\f`:
		if !slices.Contains(Formats, argument) {
			_, _ = fmt.Fprintf(s.Stderr, "formats: %s\n", strings.Join(Formats, ", "))
			break
		}
		s.Format = argument
	case `\d`:
		statement := "SELECT name, engine, total_rows AS rows, formatReadableSize(total_bytes) AS size FROM system.tables WHERE database = currentDatabase() ORDER BY name"
		if argument != "" {
			statement = "DESCRIBE TABLE " + argument
		}
		s.runAtPrompt(ctx, endpoint.Piece{Statement: statement})
	case "":
	default:
		return false, false
	}
	return false, true
}

// runAtPrompt runs one statement, which Ctrl-C ends, and tells how it went.
func (s *Shell) runAtPrompt(ctx context.Context, p endpoint.Piece) bool {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt)
	defer stop()
	started := time.Now() //nolint:forbidigo // how long a statement took
	out, closePager := s.page(ctx)
	rows, err := s.run(ctx, p, out)
	closePager()
	switch {
	case errors.Is(err, syscall.EPIPE), errors.Is(err, io.ErrClosedPipe):
		return true // the pager was left before the end
	case ctx.Err() != nil:
		_, _ = fmt.Fprintln(s.Stderr, "cancelled")
		return false
	case err != nil:
		_, _ = fmt.Fprintf(s.Stderr, "%v\n", err)
		return false
	}
	_, _ = fmt.Fprintf(s.Stderr, "%d rows, %s\n\n", rows, time.Since(started).Round(time.Millisecond))
	return true
}

// page gives a pager's input, or standard output if there is none. The pager
// starts with the first output, so statements without any do not clear the
// screen.
func (s *Shell) page(ctx context.Context) (io.Writer, func()) {
	f, ok := s.Stdout.(*os.File)
	if s.Pager == "" || !ok || !term.IsTerminal(int(f.Fd())) {
		return s.Stdout, func() {}
	}
	p := &pager{ctx: ctx, command: s.Pager, out: f}
	return p, p.close
}

type pager struct {
	ctx     context.Context
	command string
	out     *os.File
	once    sync.Once
	cmd     *exec.Cmd
	in      io.WriteCloser
}

func (p *pager) Write(b []byte) (int, error) {
	p.once.Do(func() {
		cmd := exec.CommandContext(p.ctx, "sh", "-c", p.command) //nolint:gosec // the user's own PAGER
		cmd.Stdout, cmd.Stderr = p.out, p.out
		cmd.Env = append(os.Environ(), "LESS=FRSX")
		in, err := cmd.StdinPipe()
		if err != nil || cmd.Start() != nil {
			return // without it, then
		}
		p.cmd, p.in = cmd, in
	})
	if p.cmd == nil {
		return p.out.Write(b)
	}
	return p.in.Write(b)
}

func (p *pager) close() {
	if p.cmd != nil {
		_ = p.in.Close()
		_ = p.cmd.Wait() // how a pager ends does not matter
	}
}

// prompt is a line editor on a terminal.
type prompt struct {
	*term.Terminal
	terminal    *os.File
	interrupted bool // Ctrl-C was pressed, which the editor reports as an end
}

func newPrompt(terminal *os.File, out io.Writer, h *history) *prompt {
	p := &prompt{terminal: terminal}
	p.Terminal = term.NewTerminal(struct {
		io.Reader
		io.Writer
	}{p, out}, "")
	p.History = h
	return p
}

// Read is the editor's view of the keyboard.
func (p *prompt) Read(b []byte) (int, error) {
	const controlC = 3
	n, err := p.terminal.Read(b)
	p.interrupted = slices.Contains(b[:n], controlC)
	return n, err
}

// read reads a line with the terminal in raw mode, which it is in for no
// longer than that: a running statement must see Ctrl-C as a signal.
func (p *prompt) read() (string, error) {
	if fd := int(p.terminal.Fd()); term.IsTerminal(fd) {
		state, err := term.MakeRaw(fd)
		if err != nil {
			return "", err
		}
		defer func() { _ = term.Restore(fd, state) }()
	}
	text, err := p.ReadLine()
	if errors.Is(err, term.ErrPasteIndicator) {
		err = nil
	}
	return text, err
}

// history keeps the prompt's lines over runs.
type history struct {
	lines []string // newest last
	path  string
}

const historyLines = 1000

func (s *Shell) openHistory() *history {
	h := &history{path: s.HistoryFile}
	if text, err := os.ReadFile(h.path); err == nil {
		h.lines = strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
	}
	return h
}

func (h *history) Add(entry string) {
	if strings.TrimSpace(entry) == "" || len(h.lines) > 0 && h.lines[len(h.lines)-1] == entry {
		return
	}
	h.lines = append(h.lines, entry)
}

func (h *history) Len() int { return len(h.lines) }

// At counts from the newest.
func (h *history) At(i int) string { return h.lines[len(h.lines)-1-i] }

// close writes the lines for the next time; a prompt without a history is no
// reason to fail.
func (h *history) close() {
	if h.path == "" || len(h.lines) == 0 {
		return
	}
	if os.MkdirAll(filepath.Dir(h.path), 0o700) != nil {
		return
	}
	lines := h.lines[max(0, len(h.lines)-historyLines):]
	_ = os.WriteFile(h.path, []byte(strings.Join(lines, "\n")+"\n"), 0o600)
}
