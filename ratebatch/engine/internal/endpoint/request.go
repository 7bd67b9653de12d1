package endpoint

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"compress/zlib"
	"errors"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/ClickHouse/ch-go/proto"
	"github.com/klauspost/compress/zstd"
)

const (
	maxStatement = 256 << 20 // bytes of SQL text
	maxValues    = 1 << 20   // bytes of VALUES data whose expressions are looked at
)

// request is one statement with everything that came along with it.
type request struct {
	statement
	data      io.Reader // of an INSERT, else nil
	database  string
	params    map[string]string
	settings  []setting // sorted by name
	tables    []externalTable
	literalOK bool // the VALUES are too long to look at: literals only
}

type setting struct{ name, value string }

// URL parameters that are no settings of a statement.
var notSettings = []string{
	"query", "database", "default_format", "session_id", "session_timeout", "session_check", "close_session", "user", "password",
	"query_id", "compress", "decompress", "buffer_size", "wait_end_of_query", "quota_key", "role", "stacktrace",
	"client_protocol_version", "enable_http_compression", "http_zlib_compression_level", "send_progress_in_http_headers",
	"network_compression_method", "network_zstd_compression_level", "http_write_exception_in_output_format",
	"cancel_http_readonly_queries_on_client_close", "http_wait_end_of_query", "http_response_buffer_size", accessParameter,
}

var settingName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// readRequest finds the statement, which may begin in ?query= and go on in the
// body, and the data that follows an INSERT.
func readRequest(r *http.Request, q url.Values) (*request, error) {
	body, err := decodedBody(r, q)
	if err != nil {
		return nil, err
	}
	req := &request{params: map[string]string{}}
	if body, err = req.readForm(r, q, body); err != nil {
		return nil, err
	}
	in := bufio.NewReaderSize(body, 1<<20)
	text := q.Get("query")
	if text != "" {
		text += "\n"
	}
	req.statement = parse(text)
	if req.kind != "INSERT" || req.dataStart < 0 {
		// More of the statement stands in the body. The head of an INSERT is
		// short; everything else is read whole.
		peeked, err := in.Peek(1 << 18)
		if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, bufio.ErrBufferFull) {
			return nil, bodyError(err)
		}
		if s := parse(text + string(peeked)); s.kind == "INSERT" && s.dataStart >= 0 {
			_, _ = in.Discard(len(peeked))
			req.statement = s
		} else {
			rest, err := io.ReadAll(io.LimitReader(in, maxStatement+1))
			if err != nil {
				return nil, bodyError(err)
			}
			if len(rest) > maxStatement {
				return nil, errorf(62, "SYNTAX_ERROR", "The statement is longer than %d MiB", maxStatement>>20)
			}
			req.statement = parse(text + string(rest))
		}
	}
	if req.kind == "" {
		return nil, errorf(62, "SYNTAX_ERROR", "Empty query")
	}
	if req.dataStart >= 0 && !req.fromFile {
		if err := req.takeData(in); err != nil {
			return nil, err
		}
	} else if req.second >= 0 {
		return nil, errorf(62, "SYNTAX_ERROR", "Syntax error (Multi-statements are not allowed): failed at position %d (end of query)", req.second+1)
	}
	for name, values := range q {
		value := values[len(values)-1]
		switch {
		case strings.HasPrefix(name, "param_"):
			req.params[strings.TrimPrefix(name, "param_")] = value
		case slices.Contains(notSettings, name):
		case !settingName.MatchString(name):
			return nil, errorf(115, "UNKNOWN_SETTING", "Unknown setting '%s'", name)
		default:
			req.settings = append(req.settings, setting{name, value})
		}
	}
	slices.SortFunc(req.settings, func(a, b setting) int { return strings.Compare(a.name, b.name) })
	req.database = q.Get("database")
	if req.database == "" {
		req.database = r.Header.Get("X-ClickHouse-Database")
	}
	return req, nil
}

// takeData cuts the statement where its data begins. The data of VALUES may
// hold expressions, which the engine would evaluate, so it is parsed as well
// while it is short; longer data must consist of literals.
func (req *request) takeData(in *bufio.Reader) error {
	head := req.text[req.dataStart:]
	head = head[skipDataStart(head):]
	if req.values >= 0 {
		rest, err := io.ReadAll(io.LimitReader(in, maxValues))
		if err != nil {
			return bodyError(err)
		}
		head += string(rest)
		if len(rest) == maxValues {
			req.literalOK = true
		} else {
			for i := 0; ; {
				t := nextToken(head, i)
				if t.kind == endOfSQL {
					break
				}
				i = t.end
				t.start, t.end = t.start+len(req.text), t.end+len(req.text)
				req.tokens = append(req.tokens, t)
			}
			req.text += head
		}
	}
	req.data = io.MultiReader(strings.NewReader(head), in)
	return nil
}

// insertHead is an INSERT without its VALUES or FORMAT clause, and its format.
func (req *request) insertHead() (head, format string) {
	if req.values >= 0 {
		return req.text[:req.values], "Values"
	}
	return req.text[:req.formatStart], req.format
}

// bodyError names an error of reading the client's body; a body that was cut
// short must not be taken for a complete one.
func bodyError(err error) error {
	var limit *http.MaxBytesError
	if errors.As(err, &limit) {
		return err
	}
	return errorf(33, "CANNOT_READ_ALL_DATA", "The request's body ended early or is damaged: %v", err)
}

func decodedBody(r *http.Request, q url.Values) (io.Reader, error) {
	var body io.Reader = r.Body
	if r.Method == http.MethodGet {
		body = http.NoBody
	}
	switch encoding := strings.ToLower(r.Header.Get("Content-Encoding")); encoding {
	case "", "identity":
	case "gzip":
		z, err := gzip.NewReader(body)
		if err != nil {
			return nil, bodyError(err)
		}
		body = z
	case "deflate":
		z, err := zlib.NewReader(body)
		if err != nil {
			return nil, bodyError(err)
		}
		body = z
	case "zstd":
		z, err := zstd.NewReader(body, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(256<<20))
		if err != nil {
			return nil, bodyError(err)
		}
		body = z
	default:
		return nil, errorf(89, "UNKNOWN_COMPRESSION_METHOD", "Content-Encoding %s: use gzip, deflate or zstd, or decompress=1 with ClickHouse's own frames", encoding)
	}
	if q.Get("decompress") == "1" {
		frames := proto.NewReader(body)
		frames.EnableCompression()
		body = plainEOF{frames}
	}
	return body, nil
}

// plainEOF turns the wrapped io.EOF of ch-go's reader into io.EOF itself. An
// unexpected end stays what it is.
type plainEOF struct{ r io.Reader }

func (p plainEOF) Read(b []byte) (int, error) {
	n, err := p.r.Read(b)
	if err != nil && errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		err = io.EOF
	}
	return n, err
}

// externalTable is a table that came as a file of a multipart form.
type externalTable struct {
	name, format, structure string
	data                    []byte
}

// readForm takes a multipart form apart; other bodies pass as they are.
func (req *request) readForm(r *http.Request, q url.Values, body io.Reader) (io.Reader, error) {
	kind, options, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if kind != "multipart/form-data" {
		return body, nil
	}
	form := multipart.NewReader(body, options["boundary"])
	var text bytes.Buffer
	left := int64(maxStatement)
	for {
		part, err := form.NextPart()
		if errors.Is(err, io.EOF) {
			return &text, nil
		}
		if err != nil {
			return nil, bodyError(err)
		}
		value, err := io.ReadAll(io.LimitReader(part, left+1))
		if err != nil {
			return nil, bodyError(err)
		}
		if left -= int64(len(value)); left < 0 {
			return nil, errorf(36, "BAD_ARGUMENTS", "The form is longer than %d MiB", maxStatement>>20)
		}
		switch name := part.FormName(); {
		case name == "query":
			text.Write(value)
		case strings.HasPrefix(name, "param_"):
			q.Set(name, string(value))
		case !settingName.MatchString(name):
			return nil, errorf(36, "BAD_ARGUMENTS", "External table %q: not an identifier", name)
		default:
			req.tables = append(req.tables, externalTable{name, q.Get(name + "_format"), q.Get(name + "_structure"), value})
			q.Del(name + "_format")
			q.Del(name + "_structure")
		}
	}
}
