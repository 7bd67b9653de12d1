package web

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/store"
)

// Bounds of lists and texts.
const (
	defaultLimit = 50
	maxLimit     = 500
	maxOffset    = 10_000_000
	maxText      = 256
)

// call is one request: who asks, for what, and with which store.
type call struct {
	*http.Request
	id    Identity
	store *store.Store
	now   time.Time
}

// check refuses parameters that are not known, that come twice or are too long.
func (c *call) check(allowed []string) error {
	for name, values := range c.URL.Query() {
		switch {
		case !slices.Contains(allowed, name):
			return badRequest(fmt.Sprintf("there is no parameter %q", shorten(name)), "known ones: "+orNone(allowed))
		case len(values) > 1:
			return badRequest(fmt.Sprintf("%s is given twice", name), "")
		case len(values[0]) > maxText && name != "cursor" || len(values[0]) > 8192:
			return badRequest(fmt.Sprintf("%s is too long", name), "")
		}
	}
	return nil
}

func orNone(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}

func shorten(text string) string { return ratebatch.Shorten(text, 60) }

func (c *call) get(name string) string { return c.URL.Query().Get(name) }

func (c *call) number(name string, fallback, least, most int) (int, error) {
	text := c.get(name)
	if text == "" {
		return fallback, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < least || n > most {
		return 0, badRequest(fmt.Sprintf("%s=%s", name, shorten(text)), fmt.Sprintf("use a whole number from %d to %d", least, most))
	}
	return n, nil
}

func (c *call) page() (limit, offset int, err error) {
	if limit, err = c.number("limit", defaultLimit, 1, maxLimit); err != nil {
		return 0, 0, err
	}
	offset, err = c.number("offset", 0, 0, maxOffset)
	return limit, offset, err
}

func (c *call) oneOf(name, fallback string, values ...string) (string, error) {
	text := c.get(name)
	if text == "" {
		text = fallback
	}
	if !slices.Contains(values, text) {
		return "", badRequest(fmt.Sprintf("%s=%s", name, shorten(text)), "use one of "+strings.Join(values, ", "))
	}
	return text, nil
}

func (c *call) moment(name string) (time.Time, error) {
	text := c.get(name)
	if text == "" {
		return time.Time{}, nil
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil || t.Year() < 1971 || t.Year() > 2100 {
		return time.Time{}, badRequest(fmt.Sprintf("%s=%s", name, shorten(text)), "write it as 2026-11-01T00:00:00Z")
	}
	return t.UTC().Truncate(time.Second), nil
}

func (c *call) uuid(name, text string) (uuid.UUID, error) {
	if len(text) != 36 {
		return uuid.Nil, badRequest(fmt.Sprintf("%s %q is no UUID", name, shorten(text)), "")
	}
	id, err := uuid.Parse(text)
	if err != nil {
		return uuid.Nil, badRequest(fmt.Sprintf("%s %q is no UUID", name, shorten(text)), "")
	}
	return id, nil
}

// project is the project that is asked for, or the only one the caller sees.
func (c *call) project() (string, error) {
	asked := c.get("project")
	if c.id.Project == "" || asked == c.id.Project {
		return asked, nil
	}
	if asked != "" {
		return "", notFound("there is no such project")
	}
	return c.id.Project, nil
}

// window is the time that month, day, or begin and end name; the current month
// without any.
type window struct {
	from, to time.Time
	month    *ratebatch.Month // when it is one
}

// maxWindow bounds what one answer sums up.
const maxWindow = 400 * 24 * time.Hour

func (c *call) window(calendar ratebatch.Calendar) (window, error) {
	from, err := c.moment("begin")
	if err != nil {
		return window{}, err
	}
	to, err := c.moment("end")
	if err != nil {
		return window{}, err
	}
	month, day := c.get("month"), c.get("day")
	if c.get("months") != "" && (day != "" || !from.IsZero() || !to.IsZero()) {
		return window{}, badRequest("months without a month", "give month, or neither for the current one")
	}
	given := 0
	for _, set := range []bool{month != "", day != "", !from.IsZero() || !to.IsZero()} {
		if set {
			given++
		}
	}
	if given > 1 {
		return window{}, badRequest("more than one of month, day, and begin with end", "give one")
	}
	switch {
	case day != "":
		date, err := time.Parse(time.DateOnly, day)
		if err != nil {
			return window{}, badRequest("day="+shorten(day), "write it as 2026-11-01")
		}
		return window{from: calendar.DayBegin(date), to: calendar.DayBegin(date.AddDate(0, 0, 1))}, nil
	case !from.IsZero() || !to.IsZero():
		if from.IsZero() || to.IsZero() || !from.Before(to) || to.Sub(from) > maxWindow {
			return window{}, badRequest("begin and end make no window", "give both, begin before end, at most 400 days apart")
		}
		return window{from: from, to: to}, nil
	case month != "":
		m, err := calendar.ParseMonth(month)
		if err != nil || m.Date.Year() < 1971 || m.Date.Year() > 2100 {
			return window{}, badRequest("month="+shorten(month), "write it as 2026-11")
		}
		return c.months(calendar, m)
	}
	return c.months(calendar, calendar.MonthAt(c.now))
}

// months is a month, or as many up to it as the parameter months says.
func (c *call) months(calendar ratebatch.Calendar, m ratebatch.Month) (window, error) {
	n, err := c.number("months", 1, 1, 13)
	if err != nil || n == 1 {
		return window{m.From, m.To, &m}, err
	}
	first := m
	for range n - 1 {
		first = calendar.MonthAt(first.From.Add(-time.Second))
	}
	return window{from: first.From, to: m.To}, nil
}

// operator refuses callers that see one project only.
func (c *call) operator() error {
	if c.id.Project != "" {
		return errForbidden
	}
	return nil
}
