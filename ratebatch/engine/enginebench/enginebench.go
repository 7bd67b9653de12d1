// Package enginebench measures what the embedded engine's endpoint costs: the
// same rows, built and read by the same Go code, once through clickhouse-go and
// the endpoint in its process, and once pushed into the library in this process.
package enginebench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	chproto "github.com/ClickHouse/ch-go/proto"
	"github.com/ClickHouse/clickhouse-go/v2/lib/column"
	"github.com/ClickHouse/clickhouse-go/v2/lib/proto"
	"github.com/shopspring/decimal"

	"github.com/ratebatch/ratebatch/ratebatch/engine"
	"github.com/ratebatch/ratebatch/ratebatch/engine/install"
	"github.com/ratebatch/ratebatch/ratebatch/engine/internal/chdb"
)

// Figure is one measured value. Ratio compares it with something measured in
// the same run, Limit is what Ratio (or, without one, Value) must stay below.
type Figure struct {
	Name   string  `json:"name"`
	Value  float64 `json:"value"`
	Unit   string  `json:"unit"`
	Ratio  float64 `json:"ratio,omitempty"`
	Limit  float64 `json:"limit,omitempty"`
	Runs   int     `json:"runs"`
	Spread float64 `json:"spread"` // (greatest − least) ÷ median over the runs
}

// Options of Run; zero values mean a million rows and five runs.
type Options struct {
	Dir  string // an empty folder
	Rows int
	Runs int
}

const columns = "id UInt64, ts DateTime64(3, 'UTC'), project LowCardinality(String), name String, seconds UInt32, amount Decimal(38, 18), attributes Map(String, String)"

var (
	names = []string{"id", "ts", "project", "name", "seconds", "amount", "attributes"}
	types = []column.Type{"UInt64", "DateTime64(3, 'UTC')", "LowCardinality(String)", "String", "UInt32", "Decimal(38, 18)", "Map(String, String)"}
)

// row holds one row's values; it is reused, so reading allocates what the
// columns make and nothing else.
type row struct {
	id         uint64
	ts         time.Time
	project    string
	name       string
	seconds    uint32
	amount     decimal.Decimal
	attributes map[string]string
}

var (
	begin      = time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	amount     = decimal.RequireFromString("0.012345678901234567")
	attributes = map[string]string{"flavor": "m1.small"}
	projects   = func() (p [500]string) {
		for i := range p {
			p[i] = fmt.Sprintf("project-%d", i)
		}
		return p
	}()
)

func values(i int) []any {
	return []any{uint64(i), begin.Add(time.Duration(i) * time.Millisecond), projects[i%500], "instance-4420712345", uint32(i % 3600), amount, attributes}
}

func (r *row) targets() []any {
	return []any{&r.id, &r.ts, &r.project, &r.name, &r.seconds, &r.amount, &r.attributes}
}

// Run measures. It loads the engine's library into this process, so call it
// from a command that ends afterwards, not from a test of something else.
func Run(ctx context.Context, o Options) (figures []Figure, err error) {
	if o.Rows == 0 {
		o.Rows = 1_000_000
	}
	if o.Runs == 0 {
		o.Runs = 5
	}
	e, err := engine.Open(ctx, engine.Options{DataDir: filepath.Join(o.Dir, "endpoint"), Database: "bench", Create: true})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, e.Close()) }()
	direct, err := openDirect(filepath.Join(o.Dir, "direct"))
	if err != nil {
		return nil, err
	}
	defer direct.Close()

	var insert, insertDirect, read, readDirect []time.Duration
	for run := range o.Runs {
		table := fmt.Sprintf("t%d", run)
		for _, step := range []struct {
			into *[]time.Duration
			do   func() error
		}{
			{&insert, func() error { return insertThrough(ctx, e, table, o.Rows) }},
			{&insertDirect, func() error { return insertInto(direct, table, o.Rows) }},
			{&read, func() error { return readThrough(ctx, e, table, o.Rows) }},
			{&readDirect, func() error { return readFrom(direct, table, o.Rows) }},
		} {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			started := time.Now()
			if err := step.do(); err != nil {
				return nil, err
			}
			*step.into = append(*step.into, time.Since(started))
		}
		for _, drop := range []error{
			e.Conn().Exec(ctx, "DROP TABLE "+table+" SYNC"), direct.Exec("DROP TABLE bench." + table + " SYNC"),
		} {
			if drop != nil {
				return nil, drop
			}
		}
	}
	small, err := smallQueries(ctx, e, 100*o.Runs)
	if err != nil {
		return nil, err
	}
	perSecond := func(d time.Duration) float64 { return float64(o.Rows) / d.Seconds() }
	return []Figure{
		overhead("engine_insert_overhead", "rows/s", insert, insertDirect, perSecond),
		overhead("engine_read_overhead", "rows/s", read, readDirect, perSecond),
		{
			Name: "engine_small_query", Value: small[len(small)/2].Seconds() * 1000, Unit: "ms", Limit: 3, Runs: len(small),
			Spread: (small[len(small)*9/10] - small[len(small)/10]).Seconds() / small[len(small)/2].Seconds(),
		},
	}, nil
}

// overhead compares run by run, because a machine that is busy slows both.
func overhead(name, unit string, through, direct []time.Duration, value func(time.Duration) float64) Figure {
	ratios := make([]float64, len(through))
	for i := range through {
		ratios[i] = through[i].Seconds() / direct[i].Seconds()
	}
	slices.Sort(ratios)
	slices.Sort(through)
	middle := ratios[len(ratios)/2]
	return Figure{
		Name: name, Value: value(through[len(through)/2]), Unit: unit, Ratio: middle, Limit: 2,
		Runs: len(ratios), Spread: (ratios[len(ratios)-1] - ratios[0]) / middle,
	}
}

func insertThrough(ctx context.Context, e *engine.Engine, table string, rows int) error {
	if err := e.Conn().Exec(ctx, "CREATE TABLE "+table+" ("+columns+") ENGINE = MergeTree ORDER BY (project, ts)"); err != nil {
		return err
	}
	batch, err := e.Conn().PrepareBatch(ctx, "INSERT INTO "+table)
	if err != nil {
		return err
	}
	for i := range rows {
		if err := batch.Append(values(i)...); err != nil {
			return err
		}
	}
	return batch.Send()
}

func readThrough(ctx context.Context, e *engine.Engine, table string, rows int) error {
	result, err := e.Conn().Query(ctx, "SELECT * FROM "+table)
	if err != nil {
		return err
	}
	defer func() { _ = result.Close() }()
	var r row
	targets, n := r.targets(), 0
	for ; result.Next(); n++ {
		if err := result.Scan(targets...); err != nil {
			return err
		}
	}
	return errors.Join(result.Err(), sameCount(n, rows))
}

func sameCount(got, want int) error {
	if got != want {
		return fmt.Errorf("read %d rows of %d", got, want)
	}
	return nil
}

func openDirect(dir string) (*chdb.Conn, error) {
	lib, err := install.Find("")
	if err != nil {
		return nil, err
	}
	if err := chdb.Load(lib); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	conn, err := chdb.Open("--path=" + dir)
	if err != nil {
		return nil, err
	}
	return conn, conn.Exec("CREATE DATABASE IF NOT EXISTS bench")
}

func insertInto(conn *chdb.Conn, table string, rows int) error {
	if err := conn.Exec("CREATE TABLE bench." + table + " (" + columns + ") ENGINE = MergeTree ORDER BY (project, ts)"); err != nil {
		return err
	}
	block := proto.NewBlock()
	for i, name := range names {
		if err := block.AddColumn(name, types[i]); err != nil {
			return err
		}
	}
	for i := range rows {
		if err := block.Append(values(i)...); err != nil {
			return err
		}
	}
	var encoded chproto.Buffer
	if err := block.Encode(&encoded, 0); err != nil {
		return err
	}
	in, err := conn.Insert("INSERT INTO bench."+table, "Native", nil)
	if err != nil {
		return err
	}
	defer in.Close()
	if _, err := in.Write(encoded.Buf); err != nil {
		return err
	}
	_, err = in.Done()
	return err
}

func readFrom(conn *chdb.Conn, table string, rows int) error {
	stream, err := conn.Stream("SELECT * FROM bench."+table, "Native", nil)
	if err != nil {
		return err
	}
	defer stream.Close()
	var r row
	targets, n := r.targets(), 0
	for {
		piece, err := stream.Next()
		if err != nil {
			return err
		}
		if piece == nil {
			return sameCount(n, rows)
		}
		reader := chproto.NewReader(bytes.NewReader(piece))
		for {
			block := proto.NewBlock()
			if err := block.Decode(reader, 0); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				return err
			}
			for i := range block.Rows() {
				for c, from := range block.Columns {
					if err := from.ScanRow(targets[c], i); err != nil {
						return err
					}
				}
				n++
			}
		}
	}
}

// smallQueries gives how long each of n queries took, sorted.
func smallQueries(ctx context.Context, e *engine.Engine, n int) ([]time.Duration, error) {
	took := make([]time.Duration, n)
	for i := range took {
		started := time.Now()
		var one uint8
		if err := e.Conn().QueryRow(ctx, "SELECT 1").Scan(&one); err != nil {
			return nil, err
		}
		took[i] = time.Since(started)
	}
	slices.Sort(took)
	return took, nil
}
