package endpoint

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
)

// Whatever a client sends as a request, the endpoint either finds one statement
// in it or refuses it; it neither hangs nor falls over, and what it takes for the
// data of an INSERT comes out of it again in full.
func FuzzRequest(f *testing.F) {
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	_, _ = z.Write([]byte("INSERT INTO t FORMAT TSV\n1\t2\n"))
	_ = z.Close()
	for _, s := range []struct {
		query, kind, encoding string
		body                  []byte
	}{
		{"query=SELECT+1&param_x=%27&max_threads=1", "", "", nil},
		{"query=INSERT+INTO+t+VALUES&database=d", "", "", []byte("(1, 'a'), (2, 'b')")},
		{"query=INSERT+INTO+t+FORMAT+TSV", "", "", []byte("1\t\\N\n")},
		{"", "", "", []byte("SELECT 1; SELECT 2")},
		{"", "", "gzip", zipped.Bytes()},
		{"", "", "zstd", []byte("\x28\xb5\x2f\xfd\x04\x00\x41\x00\x00SELECT 1")},
		{"decompress=1", "", "", []byte("0123456789abcdef\x82\x19\x00\x00\x00\x08\x00\x00\x00SELECT 1")},
		{"x_format=TSV&x_structure=a+UInt8", "multipart/form-data; boundary=b", "", []byte("--b\r\nContent-Disposition: form-data; name=\"query\"\r\n\r\nSELECT {a:String}\r\n--b\r\nContent-Disposition: form-data; name=\"param_a\"\r\n\r\n'\r\n--b\r\nContent-Disposition: form-data; name=\"x\"; filename=\"x\"\r\n\r\n1\n\r\n--b--\r\n")},
		{"bad%20name=1&query=SELECT", "", "deflate", []byte("\x78\x9c")},
	} {
		f.Add(s.query, s.kind, s.encoding, s.body)
	}
	f.Fuzz(func(t *testing.T, query, kind, encoding string, body []byte) {
		q, err := url.ParseQuery(query)
		if err != nil || len(query)+len(body) > 20_000 {
			return
		}
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			r := &http.Request{Method: method, Header: http.Header{"Content-Type": {kind}, "Content-Encoding": {encoding}}, Body: io.NopCloser(bytes.NewReader(body))}
			req, err := readRequest(r, q)
			if err != nil {
				continue
			}
			if req.kind == "" {
				t.Fatalf("no statement, and no error, in %q %q", query, body)
			}
			for name := range req.params {
				if strings.HasPrefix(name, "param_") && !q.Has("param_"+name) {
					t.Fatalf("parameter %q was made up", name)
				}
			}
			for _, s := range req.settings {
				if !settingName.MatchString(s.name) {
					t.Fatalf("setting %q", s.name)
				}
			}
			if req.data != nil {
				data, err := io.ReadAll(req.data)
				if err == nil && encoding == "" && kind == "" && q.Get("decompress") == "" && method == http.MethodPost && !strings.HasSuffix(q.Get("query")+"\n"+string(body), string(data)) {
					t.Fatalf("the data of %q %q came out as %q", query, body, data)
				}
			}
		}
	})
}
