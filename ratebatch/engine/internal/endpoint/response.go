package endpoint

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/ClickHouse/ch-go/compress"

	"github.com/ratebatch/ratebatch/ratebatch/engine/internal/chdb"
)

// prefetch is how much of a result is held back before the status line goes
// out. An error within it is a plain error response, and a small result
// carries complete counters in its headers.
const prefetch = 1 << 20

// response is the body of one answer: it holds the first bytes back, then
// compresses and streams.
type response struct {
	w       http.ResponseWriter
	started time.Time
	stats   chdb.Stats // as far as known
	format  string
	tag     string // frames an error that comes after the headers

	held    bytes.Buffer
	holdAll bool // wait_end_of_query: headers go out with the whole result
	sent    bool

	useGzip bool
	gzip    *gzip.Writer
	frames  *compress.Writer // compress=1: ClickHouse's own compressed frames
	buffer  *bufio.Writer
}

func (r *response) Write(p []byte) (int, error) {
	if !r.sent {
		if r.holdAll || r.held.Len()+len(p) <= prefetch {
			return r.held.Write(p)
		}
		if err := r.start(); err != nil {
			return 0, err
		}
	}
	return len(p), r.encode(p)
}

// start sends the headers and what was held back.
func (r *response) start() error {
	r.sent = true
	h := r.w.Header()
	h.Set("X-ClickHouse-Format", r.format)
	h.Set("X-ClickHouse-Exception-Tag", r.tag)
	h.Set("X-ClickHouse-Summary", r.summary())
	h.Set("Content-Type", contentType(r.format))
	r.buffer = bufio.NewWriterSize(r.w, 256<<10)
	if r.useGzip {
		h.Set("Content-Encoding", "gzip")
		r.gzip, _ = gzip.NewWriterLevel(r.buffer, gzip.BestSpeed)
	}
	r.w.WriteHeader(http.StatusOK)
	held := r.held.Bytes()
	r.held = bytes.Buffer{}
	return r.encode(held)
}

func (r *response) summary() string {
	n := func(v uint64) string { return strconv.FormatUint(v, 10) }
	text, _ := json.Marshal(map[string]string{
		"read_rows": n(r.stats.ReadRows), "read_bytes": n(r.stats.ReadBytes),
		"written_rows": n(r.stats.WrittenRows), "written_bytes": n(r.stats.WrittenBytes),
		"result_rows": n(r.stats.ResultRows), "result_bytes": n(r.stats.ResultBytes),
		"total_rows_to_read": "0", "elapsed_ns": strconv.FormatInt(time.Since(r.started).Nanoseconds(), 10),
	})
	return string(text)
}

func (r *response) encode(p []byte) error {
	if r.frames == nil {
		return r.raw(p)
	}
	const frame = 1 << 20
	for len(p) > 0 {
		n := min(len(p), frame)
		if err := r.frames.Compress(p[:n]); err != nil {
			return err
		}
		if err := r.raw(r.frames.Data); err != nil {
			return err
		}
		p = p[n:]
	}
	return nil
}

func (r *response) raw(p []byte) error {
	var out io.Writer = r.buffer
	if r.gzip != nil {
		out = r.gzip
	}
	_, err := out.Write(p)
	return err
}

// finish sends what is left.
func (r *response) finish() error {
	if !r.sent {
		if err := r.start(); err != nil {
			return err
		}
	}
	return r.flush()
}

func (r *response) flush() error {
	if r.gzip != nil {
		if err := r.gzip.Close(); err != nil {
			return err
		}
	}
	return r.buffer.Flush()
}

// fail tells the client of an error. Before the headers it is an error
// response; after them the error goes into the body, framed as a server does,
// and the connection is cut so that nobody takes the result for complete.
func (r *response) fail(e *Error, version string) {
	message := strings.TrimRight(e.Message, "\n") + " (version " + version + ")\n"
	h := r.w.Header()
	if !r.sent {
		h.Set("X-ClickHouse-Exception-Code", strconv.Itoa(e.Code))
		h.Set("Content-Type", "text/plain; charset=UTF-8")
		r.w.WriteHeader(statusOf(e.Code))
		body := []byte(message)
		if r.frames != nil && r.frames.Compress(body) == nil {
			body = r.frames.Data
		}
		_, _ = r.w.Write(body)
		return
	}
	framed := fmt.Sprintf("\r\n__exception__\r\n%s\r\n%s%d %s\r\n__exception__\r\n", r.tag, message, len(message), r.tag)
	if r.raw([]byte(framed)) == nil && r.flush() == nil {
		_ = http.NewResponseController(r.w).Flush()
	}
	panic(http.ErrAbortHandler)
}

// statusOf maps an error code to the HTTP status that a server uses for it.
func statusOf(code int) int {
	switch code {
	case 516, 192, 193, 194, 497, 164, 291:
		return http.StatusForbidden
	case 62, 26, 27, 36, 38, 41, 42, 43, 44, 53, 69, 72, 117, 130, 179, 352, 386, 6, 70, 456, 457, 471, 489, 115:
		return http.StatusBadRequest
	case 46, 47, 50, 60, 61, 63, 81, 16, 66, 71, 73, 79, 80:
		return http.StatusNotFound
	case 159, 209:
		return http.StatusRequestTimeout
	case 48, 1:
		return http.StatusNotImplemented
	case CodeLeaving:
		return http.StatusServiceUnavailable
	}
	return http.StatusInternalServerError
}

func contentType(format string) string {
	switch strings.ToLower(format) {
	case "json", "jsoncompact", "jsoneachrow", "jsonlines", "ndjson", "jsonstrings":
		return "application/json; charset=UTF-8"
	case "csv", "csvwithnames":
		return "text/csv; charset=UTF-8"
	case "tabseparated", "tsv", "tabseparatedwithnames", "tsvwithnames":
		return "text/tab-separated-values; charset=UTF-8"
	case "native", "rowbinary", "parquet", "arrow", "arrowstream", "orc", "rowbinarywithnamesandtypes":
		return "application/octet-stream"
	}
	return "text/plain; charset=UTF-8"
}
