package web

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/shopspring/decimal"

	"github.com/ratebatch/ratebatch/exporter"
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

// cursor is a place between two lines. It is bound to nothing else: with other
// filters it is a place in another list.
func parseCursor(text string) (*store.LineCursor, error) {
	raw, err := base64.RawURLEncoding.DecodeString(text)
	var at store.LineCursor
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
	w, err := c.window(b.calendar)
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
	if text := c.get("cursor"); text != "" {
		if page.After, err = parseCursor(text); err != nil {
			return nil, err
		}
	}
	closed, err := closedMonths(ctx, c.store)
	if err != nil {
		return nil, err
	}
	parts := months(b.calendar, w.from, w.to)
	if len(parts) > 1 && len(closed) > 0 {
		// The order is by project first, so months cannot be read one after the other.
		for _, p := range parts {
			if _, ok := closed[b.calendar.MonthAt(p.Begin).Date]; ok {
				return nil, badRequest("the window holds a closed month and another one", "ask for one month at a time")
			}
		}
	}
	page.CostWindow = costWindow(b.calendar, closed, w.from, w.to)
	if page.After == nil {
		if err := s.linesAgree(ctx, c, page); err != nil {
			return nil, err
		}
	}
	list, places, err := c.store.Lines(ctx, page)
	if err != nil {
		return nil, err
	}
	out := lineList{Begin: w.from, End: w.to, Lines: []line{}}
	if len(list) > limit {
		raw, err := json.Marshal(places[limit-1])
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

// linesAgree compares the lines that a list is taken from with their commits.
func (s *Server) linesAgree(ctx context.Context, c *call, page store.LinePage) error {
	if page.Scope != "" {
		return agrees(ctx, c.store, page.CostWindow, page.Scope)
	}
	b, err := readBilling(ctx, c.store)
	if err != nil {
		return err
	}
	_, err = s.costs.read(ctx, c.store, b.calendar, page.From, page.To)
	return err
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
	value, err := s.Explain(ctx, c.store, id.String(), scope, begin)
	if errors.Is(err, ErrNoLine) {
		return nil, notFound("there is no such line; if it was rated again, its period has other lines now")
	}
	if err != nil || c.id.Project == "" {
		return value, err
	}
	return ownRules(value, c.id.Project)
}

// ownRules leaves out of an explanation what it says of other projects' rules.
func ownRules(value any, project string) (any, error) {
	raw, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	var out map[string]json.RawMessage
	if err := json.Unmarshal(raw, &out); err != nil {
		return nil, err
	}
	for _, key := range []string{"rules_that_counted", "rules_that_did_not"} {
		var list []string
		if err := json.Unmarshal(out[key], &list); err != nil {
			return nil, err
		}
		list = slices.DeleteFunc(list, func(text string) bool {
			return strings.Contains(text, "scope ") && !strings.Contains(text, "scope "+project+":")
		})
		if out[key], err = json.Marshal(some(list)); err != nil {
			return nil, err
		}
	}
	return out, nil
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
	w, err := c.window(b.calendar)
	if err != nil {
		return in, "", err
	}
	closed, err := closedMonths(ctx, in.Store)
	if err != nil {
		return in, "", err
	}
	in.From, in.To = w.from, w.to
	month := b.calendar.MonthAt(w.from)
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
