package dump

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"reflect"
	"strings"

	chproto "github.com/ClickHouse/ch-go/proto"
	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/column"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"github.com/ClickHouse/clickhouse-go/v2/lib/proto"
	"github.com/klauspost/compress/zstd"

	"github.com/ratebatch/ratebatch/ratebatch/engine"
	"github.com/ratebatch/ratebatch/ratebatch/sqltext"
)

// writeFile makes a file from what fill writes; a partial one is removed.
func writeFile(path string, fill func(io.Writer) error) (err error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(path))
		}
	}()
	err = fill(file)
	if err == nil {
		err = file.Sync()
	}
	return errors.Join(err, file.Close())
}

func dumpNative(ctx context.Context, e *engine.Engine, path string, t *Table) error {
	return writeFile(path, func(w io.Writer) error {
		z, err := zstd.NewWriter(w, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(2))
		if err != nil {
			return err
		}
		if e.ClientOptions().Protocol == clickhouse.HTTP {
			err = download(ctx, e, "SELECT * FROM "+sqltext.Name(t.Name)+t.final()+" FORMAT Native", z)
		} else {
			err = copyRows(ctx, e, "SELECT * FROM "+sqltext.Name(t.Name)+t.final(), z)
		}
		return errors.Join(err, z.Close())
	})
}

func loadNative(ctx context.Context, e *engine.Engine, path, table string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	z, err := zstd.NewReader(file, zstd.WithDecoderConcurrency(1))
	if err != nil {
		return err
	}
	defer z.Close()
	if e.ClientOptions().Protocol == clickhouse.HTTP {
		return upload(ctx, e, "INSERT INTO "+sqltext.Name(table)+" FORMAT Native", z)
	}
	return insertBlocks(ctx, e, table, z)
}

// dumpParquet has the embedded engine write the file itself: it can stream
// Parquet into a file and not through the endpoint.
func dumpParquet(ctx context.Context, e *engine.Engine, path string, t *Table) error {
	if !e.Embedded() {
		return writeFile(path, func(w io.Writer) error {
			return download(ctx, e, "SELECT * FROM "+sqltext.Name(t.Name)+t.final()+" FORMAT Parquet", w)
		})
	}
	structure, err := structureOf(ctx, e, t.Name)
	if err != nil {
		return err
	}
	err = e.Conn().Exec(e.WithFileAccess(ctx), "INSERT INTO FUNCTION file("+literal(path)+", 'Parquet', "+literal(structure)+") SELECT * FROM "+sqltext.Name(t.Name)+t.final())
	if err != nil {
		return err
	}
	// An empty table writes no file.
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDONLY, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(file.Chmod(0o600), file.Close())
}

func loadParquet(ctx context.Context, e *engine.Engine, path, table string) error {
	info, err := os.Stat(path)
	if err != nil || info.Size() == 0 {
		return err
	}
	if !e.Embedded() {
		file, err := os.Open(path)
		if err != nil {
			return err
		}
		defer func() { _ = file.Close() }()
		return upload(ctx, e, "INSERT INTO "+sqltext.Name(table)+" FORMAT Parquet", file)
	}
	structure, err := structureOf(ctx, e, table)
	if err != nil {
		return err
	}
	return e.Conn().Exec(e.WithFileAccess(ctx), "INSERT INTO "+sqltext.Name(table)+" SELECT * FROM file("+literal(path)+", 'Parquet', "+literal(structure)+")")
}

// structureOf gives the columns' types, which Parquet keeps in part only.
func structureOf(ctx context.Context, e *engine.Engine, table string) (string, error) {
	columns, err := columnsOf(ctx, e, table)
	if err != nil {
		return "", err
	}
	parts := make([]string, len(columns))
	for i, c := range columns {
		parts[i] = sqltext.Name(c.name) + " " + c.typ
	}
	return strings.Join(parts, ", "), nil
}

func literal(s string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(s) + "'"
}

// post sends a statement over HTTP without decoding rows on the way.
func post(ctx context.Context, e *engine.Engine, statement string, body io.Reader) (*http.Response, error) {
	o := e.ClientOptions()
	u := url.URL{Scheme: "http", Host: o.Addr[0], Path: "/"}
	if o.TLS != nil {
		u.Scheme = "https"
	}
	q := url.Values{"database": {o.Auth.Database}, "query": {statement}}
	for k, v := range o.Settings {
		q.Set(k, fmt.Sprint(v))
	}
	u.RawQuery = q.Encode()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, u.String(), body)
	if err != nil {
		return nil, err
	}
	r.SetBasicAuth(o.Auth.Username, o.Auth.Password)
	transport := &http.Transport{TLSClientConfig: o.TLS, DisableKeepAlives: true, DisableCompression: true}
	response, err := transport.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(response.Body, 4000))
		return nil, errors.Join(errors.New(strings.TrimSpace(string(text))), response.Body.Close())
	}
	return response, nil
}

func download(ctx context.Context, e *engine.Engine, query string, w io.Writer) error {
	response, err := post(ctx, e, query, http.NoBody)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	end := new(tail)
	if _, err := io.Copy(io.MultiWriter(w, end), response.Body); err != nil {
		return errors.Join(err, end.exception())
	}
	return end.exception()
}

func upload(ctx context.Context, e *engine.Engine, statement string, body io.Reader) error {
	response, err := post(ctx, e, statement, body)
	if err != nil {
		return err
	}
	return response.Body.Close()
}

// tail keeps the end of a result: a server that fails after the headers can
// only write its error there.
type tail struct{ text []byte }

const tailSize = 8 << 10

func (t *tail) Write(p []byte) (int, error) {
	t.text = append(t.text, p[max(0, len(p)-tailSize):]...)
	t.text = t.text[max(0, len(t.text)-tailSize):]
	return len(p), nil
}

func (t *tail) exception() error {
	if i := bytes.LastIndex(t.text, []byte("DB::Exception: ")); i >= 0 && bytes.HasSuffix(bytes.TrimSpace(t.text), []byte("__exception__")) {
		message, _, _ := bytes.Cut(t.text[i:], []byte("\n"))
		return errors.New(string(message))
	}
	return nil
}

// blockRows is how many rows go into a block; memory is bounded by it.
const blockRows = 65536

// copyRows writes a result as Native blocks, for the native protocol, where
// the client decodes rows.
func copyRows(ctx context.Context, e *engine.Engine, query string, w io.Writer) error {
	rows, err := e.Conn().Query(ctx, query)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	types := rows.ColumnTypes()
	block, err := newBlock(rows.Columns(), types)
	if err != nil {
		return err
	}
	flush := func() error {
		var b chproto.Buffer
		if err := block.Encode(&b, 0); err != nil {
			return err
		}
		if _, err := w.Write(b.Buf); err != nil {
			return err
		}
		block, err = newBlock(rows.Columns(), types)
		return err
	}
	targets, values := make([]any, len(types)), make([]any, len(types))
	for rows.Next() {
		for i, t := range types {
			targets[i] = reflect.New(t.ScanType()).Interface()
		}
		if err := rows.Scan(targets...); err != nil {
			return err
		}
		for i := range targets {
			values[i] = reflect.ValueOf(targets[i]).Elem().Interface()
		}
		if err := block.Append(values...); err != nil {
			return err
		}
		if block.Rows() >= blockRows {
			if err := flush(); err != nil {
				return err
			}
		}
	}
	if err := rows.Err(); err != nil {
		return err
	}
	if block.Rows() == 0 {
		return nil
	}
	return flush()
}

func newBlock(names []string, types []driver.ColumnType) (*proto.Block, error) {
	b := proto.NewBlock()
	for i, n := range names {
		if err := b.AddColumn(n, column.Type(types[i].DatabaseTypeName())); err != nil {
			return nil, err
		}
	}
	return b, nil
}

// insertBlocks sends Native blocks as batches, for the native protocol.
func insertBlocks(ctx context.Context, e *engine.Engine, table string, r io.Reader) error {
	reader := chproto.NewReader(r)
	for {
		block := proto.NewBlock()
		if err := block.Decode(reader, 0); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		batch, err := e.Conn().PrepareBatch(ctx, "INSERT INTO "+sqltext.Name(table))
		if err != nil {
			return err
		}
		values := make([]any, len(block.Columns))
		for i := range block.Rows() {
			for c, from := range block.Columns {
				values[c] = from.Row(i, false)
			}
			if err := batch.Append(values...); err != nil {
				return errors.Join(err, batch.Abort())
			}
		}
		if err := batch.Send(); err != nil {
			return err
		}
	}
}
