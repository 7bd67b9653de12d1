package web

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/shopspring/decimal"

	"github.com/ratebatch/ratebatch/exporter"
	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/store"
)

// line is a rated line with the id that exports give it.
type line struct {
	LineID     uuid.UUID         `json:"line_id"`
	Region     string            `json:"region"`
	Project    string            `json:"project"`
	Begin      time.Time         `json:"begin"`
	End        time.Time         `json:"end"`
	Metric     string            `json:"metric"`
	Resource   string            `json:"resource"`
	Attributes map[string]string `json:"attributes"`
	Unit       string            `json:"unit"`
	Qty        decimal.Decimal   `json:"qty"`
	Price      decimal.Decimal   `json:"price"`
	Currency   string            `json:"currency"`
	Rule       string            `json:"rule"`
	Bucket     string            `json:"bucket"`
	Part       uint16            `json:"part"`
	Revision   uint32            `json:"revision"`
}

// lineList is a page of lines.
type lineList struct {
	Begin time.Time `json:"begin"`
	End   time.Time `json:"end"`
	Lines []line    `json:"lines"`
	Next  *string   `json:"next_cursor"`
}

// cursor is a place between two lines, and the state of the window that they
// are of: pages of two states would add up to what was never anybody's price. It
// is bound to nothing else: with other filters it is a place in another list.
type cursor struct {
	store.LineCursor
	State string `json:"v"`
}

func parseCursor(text string) (*cursor, error) {
	raw, err := base64.RawURLEncoding.DecodeString(text)
	var at cursor
	if err == nil {
		err = json.Unmarshal(raw, &at)
	}
	if err != nil || at.Begin.Year() < 1970 || at.Begin.Year() > 2106 {
		return nil, badRequest("cursor is none that this server gave", "begin without one")
	}
	return &at, nil
}

func (s *Server) lines(ctx context.Context, c *call) (any, error) {
	b, err := readBilling(ctx, c.store)
	if err != nil {
		return nil, err
	}
	w, err := c.window(b.Calendar)
	if err != nil {
		return nil, err
	}
	limit, err := c.number("limit", defaultLimit, 1, maxLimit)
	if err != nil {
		return nil, err
	}
	page := store.LinePage{Metric: c.get("metric"), Resource: c.get("resource"), Bucket: c.get("bucket"), Limit: limit + 1}
	if page.Scope, err = c.project(); err != nil {
		return nil, err
	}
	if page.Bucket != "" && !slices.Contains([]string{"lines", "unpriced", "rejected", "skipped"}, page.Bucket) {
		return nil, badRequest("bucket="+shorten(page.Bucket), "use lines, unpriced, rejected or skipped")
	}
	if text := c.get("instance"); text != "" {
		id, err := c.uuid("instance", text)
		if err != nil {
			return nil, err
		}
		page.Instance = id.String()
	}
	var after *cursor
	if text := c.get("cursor"); text != "" {
		if after, err = parseCursor(text); err != nil {
			return nil, err
		}
		page.After = &after.LineCursor
	}
	closed, err := closedMonths(ctx, c.store)
	if err != nil {
		return nil, err
	}
	if len(parts(b.Calendar, closed, w.from, w.to)) > 1 {
		// The order is by project first, so months cannot be read one after the other.
		return nil, badRequest("the window holds a closed month and another one", "ask for one month at a time")
	}
	page.CostWindow = costWindow(b.Calendar, closed, w.from, w.to)
	if err := s.linesAgree(ctx, c, b.Calendar, page.CostWindow, page.Scope); err != nil {
		return nil, err
	}
	// Before the first page is read and after each later one: a rating meanwhile is
	// noticed with the next page at the latest.
	var state string
	if after == nil {
		if state, err = c.store.LineState(ctx, page.CostWindow, page.Scope); err != nil {
			return nil, err
		}
	}
	list, places, err := c.store.Lines(ctx, page)
	if err != nil {
		return nil, err
	}
	if after != nil {
		if state, err = c.store.LineState(ctx, page.CostWindow, page.Scope); err != nil {
			return nil, err
		}
		if state != after.State {
			return nil, conflict("lines of this window were rated again since the first page", "begin again without cursor; pages of both would not add up")
		}
	}
	out := lineList{Begin: w.from, End: w.to, Lines: []line{}}
	if len(list) > limit {
		raw, err := json.Marshal(cursor{places[limit-1], state})
		if err != nil {
			return nil, err
		}
		next := base64.RawURLEncoding.EncodeToString(raw)
		list, out.Next = list[:limit], &next
	}
	currencies, err := lineCurrencies(ctx, c.store, list)
	if err != nil {
		return nil, err
	}
	for i := range list {
		l := &list[i]
		out.Lines = append(out.Lines, line{LineID: exporter.IDOf(l), Region: l.Region, Project: l.Scope, Begin: l.Begin, End: l.End, Metric: l.Metric, Resource: l.Resource, Attributes: l.Attributes,
			Unit: l.Unit, Qty: l.Qty, Price: l.Price, Currency: currencies[commitOf(l)], Rule: l.Rule, Bucket: l.Bucket, Part: l.Part, Revision: l.Revision})
	}
	return out, nil
}

// comparedLines is up to how many lines of a window are compared with their
// commits each time that some of them are shown, which takes a twentieth of a
// second. For more than that the sums vouch that were compared when their days
// were read.
const comparedLines = 1_000_000

// linesAgree compares the lines that a list is taken from with their commits.
func (s *Server) linesAgree(ctx context.Context, c *call, calendar ratebatch.Calendar, w store.CostWindow, scope string) error {
	if scope == "" {
		list, err := s.costs.read(ctx, c.store, calendar, w.From, w.To)
		if err != nil {
			return err
		}
		lines := uint64(0)
		for _, d := range list {
			for _, x := range d.cells {
				lines += x.Lines
			}
		}
		if lines > comparedLines {
			return nil
		}
	}
	return agrees(ctx, c.store, w, scope)
}

func commitOf(l *store.FoundLine) store.CommitID {
	return store.CommitID{Scope: l.Scope, Begin: l.Begin.Unix(), RunID: l.RunID}
}

// lineCurrencies are the currencies of the commits that lines count by.
func lineCurrencies(ctx context.Context, st *store.Store, list []store.FoundLine) (map[store.CommitID]string, error) {
	if len(list) == 0 {
		return nil, nil
	}
	var scopes []string
	from, to := list[0].Begin, list[0].Begin
	for _, l := range list {
		if len(scopes) == 0 || scopes[len(scopes)-1] != l.Scope {
			scopes = append(scopes, l.Scope)
		}
		if l.Begin.Before(from) {
			from = l.Begin
		}
		if l.Begin.After(to) {
			to = l.Begin
		}
	}
	return st.CommitCurrencies(ctx, scopes, from, to.Add(time.Second))
}

func (s *Server) explain(ctx context.Context, c *call) (any, error) {
	id, err := c.uuid("line_id", c.PathValue("line_id"))
	if err != nil {
		return nil, err
	}
	scope, err := c.project()
	if err != nil {
		return nil, err
	}
	begin, err := c.moment("begin")
	if err != nil {
		return nil, err
	}
	if scope == "" || begin.IsZero() {
		return nil, badRequest("project or begin is missing", "give those of the line; they make it quick to find")
	}
	b, err := readBilling(ctx, c.store)
	if err != nil {
		return nil, err
	}
	closed, err := closedMonths(ctx, c.store)
	if err != nil {
		return nil, err
	}
	if err := agrees(ctx, c.store, costWindow(b.Calendar, closed, begin, begin.Add(time.Second)), scope); err != nil {
		return nil, err
	}
	value, err := s.Explain(ctx, c.store, LineRef{ID: id, Scope: scope, Begin: begin, Project: c.id.Project})
	if errors.Is(err, ErrNoLine) {
		return nil, notFound("there is no such line; if it was rated again, its period has other lines now")
	}
	return value, err
}

// LineRef names a line that is to be explained, and who asks.
type LineRef struct {
	ID      uuid.UUID
	Scope   string
	Begin   time.Time
	Project string // the only one that is shown anything of; empty: all
}

// ErrNoLine says that Options.Explain knows no such line.
var ErrNoLine = errors.New("no rated line matches")

// download writes the lines of a window as a file. It is checked while it is
// written, so a difference ends the connection: a reader sees an error and not a
// short file.
func (s *Server) download(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), s.Limits.Download)
	defer cancel()
	c := &call{Request: r, id: IdentityOf(r), now: s.Now().UTC()}
	in, name, err := s.downloadInput(ctx, c)
	if err != nil {
		s.fail(w, r, asAPIError(ctx, err))
		return
	}
	out := &lateHeader{ResponseWriter: w, set: func(h http.Header) {
		h.Set("Content-Type", map[string]string{exporter.CSV: "text/csv; charset=utf-8", exporter.Parquet: "application/vnd.apache.parquet"}[in.Format])
		h.Set("Content-Disposition", fmt.Sprintf("attachment; filename=%q", name))
		h.Set("Cache-Control", "private, no-store")
	}}
	if err := exporter.Download(ctx, in, out); err != nil {
		if !out.begun {
			s.fail(w, r, asAPIError(ctx, err))
			return
		}
		s.Log.ErrorContext(ctx, "download was cut", "request_id", w.Header().Get("X-Request-Id"), "error", err.Error())
		panic(http.ErrAbortHandler)
	}
}

// lateHeader sets the headers of success with the first byte, so that what
// fails before it can still be an error.
type lateHeader struct {
	http.ResponseWriter
	set   func(http.Header)
	begun bool
}

func (w *lateHeader) Write(b []byte) (int, error) {
	if !w.begun {
		w.begun = true
		w.set(w.Header())
	}
	return w.ResponseWriter.Write(b)
}

func (s *Server) downloadInput(ctx context.Context, c *call) (in exporter.DownloadInput, name string, err error) {
	if err = c.check([]string{"format", "month", "begin", "end", "project"}); err != nil {
		return in, "", err
	}
	if in.Format, err = c.oneOf("format", "", exporter.CSV, exporter.Parquet); err != nil {
		return in, "", err
	}
	if in.Scope, err = c.project(); err != nil {
		return in, "", err
	}
	if in.Store, err = s.ready(ctx); err != nil {
		return in, "", err
	}
	b, err := readBilling(ctx, in.Store)
	if err != nil {
		return in, "", err
	}
	w, err := c.window(b.Calendar)
	if err != nil {
		return in, "", err
	}
	closed, err := closedMonths(ctx, in.Store)
	if err != nil {
		return in, "", err
	}
	in.From, in.To = w.from, w.to
	month := b.Calendar.MonthAt(w.from)
	if w.to.After(month.To) && len(closed) > 0 {
		return in, "", badRequest("the window is longer than a month", "download one month at a time: closed months are read as they were billed")
	}
	in.Month, in.Closed, in.Log = month.Date, closed[month.Date].Number, s.Log
	name = "lines-" + w.from.Format("20060102T150405Z") + "-" + w.to.Format("20060102T150405Z") + "." + in.Format
	if w.month != nil {
		name = "lines-" + w.month.String() + "." + in.Format
	}
	return in, name, nil
}
