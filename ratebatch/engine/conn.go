package engine

import (
	"context"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
)

// watchedConn names the loss of the embedded engine in one clear error,
// instead of a broken pipe here and a refused connection there, and reads dates in
// UTC whatever the server's zone.
type watchedConn struct {
	driver.Conn
	engine *Engine
}

func (c *watchedConn) explain(err error) error {
	if err == nil || c.engine.embedded == nil {
		return err
	}
	return c.engine.embedded.explain(err)
}

// inUTC has the client read a Date as midnight in UTC. By the native protocol it
// is midnight in the server's own zone else: session_timezone is not asked, and the
// 1st of November of a server in Berlin is a moment in October.
func inUTC(ctx context.Context) context.Context {
	return clickhouse.Context(ctx, clickhouse.WithUserLocation(time.UTC))
}

func (c *watchedConn) Select(ctx context.Context, dest any, query string, args ...any) error {
	return c.explain(c.Conn.Select(inUTC(ctx), dest, query, args...))
}

func (c *watchedConn) Query(ctx context.Context, query string, args ...any) (driver.Rows, error) {
	rows, err := c.Conn.Query(inUTC(ctx), query, args...)
	if err != nil {
		return nil, c.explain(err)
	}
	return &watchedRows{rows, c}, nil
}

func (c *watchedConn) QueryRow(ctx context.Context, query string, args ...any) driver.Row {
	return &watchedRow{c.Conn.QueryRow(inUTC(ctx), query, args...), c}
}

func (c *watchedConn) PrepareBatch(ctx context.Context, query string, opts ...driver.PrepareBatchOption) (driver.Batch, error) {
	batch, err := c.Conn.PrepareBatch(inUTC(ctx), query, opts...)
	if err != nil {
		return nil, c.explain(err)
	}
	return &watchedBatch{batch, c}, nil
}

func (c *watchedConn) Exec(ctx context.Context, query string, args ...any) error {
	return c.explain(c.Conn.Exec(inUTC(ctx), query, args...))
}

func (c *watchedConn) AsyncInsert(ctx context.Context, query string, wait bool, args ...any) error {
	//nolint:staticcheck // the interface has it
	return c.explain(c.Conn.AsyncInsert(inUTC(ctx), query, wait, args...))
}

func (c *watchedConn) Ping(ctx context.Context) error { return c.explain(c.Conn.Ping(ctx)) }

type watchedRows struct {
	driver.Rows
	conn *watchedConn
}

func (r *watchedRows) Err() error                { return r.conn.explain(r.Rows.Err()) }
func (r *watchedRows) Close() error              { return r.conn.explain(r.Rows.Close()) }
func (r *watchedRows) Scan(dest ...any) error    { return r.conn.explain(r.Rows.Scan(dest...)) }
func (r *watchedRows) ScanStruct(dest any) error { return r.conn.explain(r.Rows.ScanStruct(dest)) }

type watchedRow struct {
	driver.Row
	conn *watchedConn
}

func (r *watchedRow) Err() error                { return r.conn.explain(r.Row.Err()) }
func (r *watchedRow) Scan(dest ...any) error    { return r.conn.explain(r.Row.Scan(dest...)) }
func (r *watchedRow) ScanStruct(dest any) error { return r.conn.explain(r.Row.ScanStruct(dest)) }

type watchedBatch struct {
	driver.Batch
	conn *watchedConn
}

func (b *watchedBatch) Flush() error { return b.conn.explain(b.Batch.Flush()) }
func (b *watchedBatch) Send() error  { return b.conn.explain(b.Batch.Send()) }
func (b *watchedBatch) Close() error { return b.conn.explain(b.Batch.Close()) }
