package endpoint

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/ratebatch/ratebatch/ratebatch/engine/internal/chdb"
)

// Formats without a head, a tail or state between blocks. The engine writes
// each piece of a streamed result as a document of its own, so only these can
// be put together by just sending one piece after the other.
var streamable = map[string]bool{
	"native": true, "rowbinary": true, "null": true, "csv": true, "tskv": true,
	"tabseparated": true, "tsv": true, "tabseparatedraw": true, "tsvraw": true,
	"jsoneachrow": true, "jsonlines": true, "ndjson": true, "jsoncompacteachrow": true,
}

func streams(format string) bool { return streamable[strings.ToLower(format)] }

// outputFormat is the format of the answer.
func outputFormat(r *http.Request, req *request) string {
	if req.format != "" && req.data == nil {
		return req.format
	}
	if f := r.URL.Query().Get("default_format"); f != "" {
		return f
	}
	if f := r.Header.Get("X-ClickHouse-Format"); f != "" {
		return f
	}
	return "TabSeparated"
}

// run executes the statement in one of three ways: pushing an INSERT's data,
// streaming a result, or whole.
func (s *Server) run(ctx context.Context, out *response, conn *chdb.Conn, q url.Values, r *http.Request, req *request) error {
	out.format = outputFormat(r, req)
	if req.data != nil {
		if err := s.insert(ctx, out, conn, req); err != nil {
			return err
		}
		return out.finish()
	}
	var body io.Writer = out
	if revision, _ := strconv.Atoi(q.Get("client_protocol_version")); revision > 0 && strings.EqualFold(out.format, "Native") {
		body = &nativeWriter{out, revision}
	}
	run := s.whole
	if req.reads() && streams(out.format) {
		run = s.stream
	}
	if err := run(ctx, out, body, conn, req); err != nil {
		return err
	}
	return out.finish()
}

func (s *Server) insert(ctx context.Context, out *response, conn *chdb.Conn, req *request) error {
	head, format := req.insertHead()
	in, err := conn.Insert(head, format, req.params)
	if err != nil {
		return err
	}
	defer in.Close()
	buffer := make([]byte, 1<<20)
	for {
		n, readErr := req.data.Read(buffer)
		if n > 0 {
			if _, err := in.Write(buffer[:n]); err != nil {
				// Done knows what was wrong with the rows.
				if _, cause := in.Done(); cause != nil {
					return cause
				}
				return err
			}
		}
		if errors.Is(readErr, io.EOF) && !errors.Is(readErr, io.ErrUnexpectedEOF) {
			break
		}
		if readErr != nil {
			// Only a clean end ends the data: a body cut short must not count.
			in.Cancel()
			return bodyError(readErr)
		}
	}
	if ctx.Err() != nil {
		in.Cancel()
		return errCancelled
	}
	out.stats, err = in.Done()
	return err
}

func (s *Server) stream(ctx context.Context, out *response, body io.Writer, conn *chdb.Conn, req *request) error {
	stream, err := conn.Stream(req.text, out.format, req.params)
	if err != nil {
		return err
	}
	defer stream.Close()
	for pieces := 0; ; pieces++ {
		piece, err := stream.Next()
		out.stats = stream.Stats
		if err != nil {
			return err
		}
		if piece == nil {
			if pieces == 0 && strings.EqualFold(out.format, "Native") {
				return s.columnsOnly(body, conn, req)
			}
			return nil
		}
		if _, err := body.Write(piece); err != nil {
			stream.Cancel()
			return err
		}
		if ctx.Err() != nil {
			stream.Cancel()
			return errCancelled
		}
	}
}

// columnsOnly answers a query without rows: the columns still matter.
func (s *Server) columnsOnly(body io.Writer, conn *chdb.Conn, req *request) error {
	const settings = " SETTINGS print_pretty_type_names = 0"
	described, err := conn.Query("DESCRIBE TABLE ("+req.withoutFormat()+"\n)"+settings, "JSONCompactEachRow", req.params)
	if err != nil {
		return nil // it has no columns to show, such as a query that is none
	}
	defer described.Close()
	var names, types []string
	for rows := json.NewDecoder(bytes.NewReader(described.Bytes())); rows.More(); {
		var row []string
		if err := rows.Decode(&row); err != nil || len(row) < 2 {
			return fmt.Errorf("the columns of an empty result: %v, %w", row, err)
		}
		names, types = append(names, row[0]), append(types, row[1])
	}
	_, err = body.Write(emptyBlock(names, types))
	return err
}

func (s *Server) whole(_ context.Context, out *response, body io.Writer, conn *chdb.Conn, req *request) error {
	result, err := conn.Query(req.text, out.format, req.params)
	var engine *chdb.Error
	if errors.As(err, &engine) && engine.Code == 396 && req.reads() {
		return errorf(396, "TOO_MANY_ROWS_OR_BYTES", "The embedded engine can write %s only whole, and this result has more than %d MiB: "+
			"use a format that streams (Native, RowBinary, CSV, TabSeparated, JSONEachRow), fewer rows, or 'ratebatch engine dump'", out.format, MaxBufferedResult>>20)
	}
	if err != nil {
		return err
	}
	defer result.Close()
	out.stats = result.Stats
	_, err = body.Write(result.Bytes())
	return err
}
