// Package exportbench measures exports against the ClickHouse engine's own
// Parquet writer.
package exportbench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/google/uuid"

	"github.com/ratebatch/ratebatch/exporter"
	bucketfile "github.com/ratebatch/ratebatch/exporter/bucket/file"
	"github.com/ratebatch/ratebatch/fixtures/bench"
	"github.com/ratebatch/ratebatch/ratebatch/engine"
	"github.com/ratebatch/ratebatch/ratebatch/sqltext"
	"github.com/ratebatch/ratebatch/ratebatch/store"
)

// Limits of the two figures.
const (
	TimeLimit = 1.5
	SizeLimit = 1.1
)

// Month is what make bench exports, 14.4 million lines; MonthQuick is for make
// bench-quick.
var (
	Month      = Cloud{Month: "2026-03", Scopes: 500, Resources: 20, Hours: 720}
	MonthQuick = Cloud{Month: "2026-03", Scopes: 20, Resources: 20, Hours: 720}
)

// Measure generates a month in the engine's current database, which must be
// migrated and empty, and exports it runs times, each time followed by the
// engine writing the same rows and columns. The rows that the engine writes
// are prepared beforehand, line ids and currency included, so its time is
// reading and writing alone while ours has the commits, the check and the ids
// in it. dir takes the files and is emptied.
func Measure(ctx context.Context, e *engine.Engine, dir string, cloud Cloud, runs int) ([]bench.Figure, error) {
	s := store.New(e.Conn(), e.Database())
	if err := Generate(ctx, s, cloud); err != nil {
		return nil, fmt.Errorf("generate: %w", err)
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	month, err := cloud.begin()
	if err != nil {
		return nil, err
	}
	reference := filepath.Join(dir, "reference.parquet")
	access := e.WithFileAccess(ctx)
	var ours, theirs []time.Duration
	var ourBytes, theirBytes int64
	for run := range runs {
		to := filepath.Join(dir, "export")
		if err := os.RemoveAll(to); err != nil {
			return nil, err
		}
		b, err := bucketfile.New(to)
		if err != nil {
			return nil, err
		}
		begin := time.Now()
		result, err := exporter.Run(ctx, exporter.Input{Store: s, Bucket: b, Month: month, Now: month.Add(time.Duration(cloud.Hours+3) * time.Hour), Partition: exporter.Whole, RunID: uuid.New()})
		if err != nil {
			return nil, err
		}
		ours = append(ours, time.Since(begin))
		if result.Rows != cloud.Lines() {
			return nil, fmt.Errorf("%d rows were exported, %d generated", result.Rows, cloud.Lines())
		}
		ourBytes = int64(result.Bytes)
		if run == 0 {
			from := filepath.Join(to, filepath.Dir(result.Manifest), "delivery="+result.Delivery, "part-00000.parquet")
			if err := prepare(access, e, from); err != nil {
				return nil, err
			}
		}
		begin = time.Now()
		err = e.Conn().Exec(access, fmt.Sprintf(`INSERT INTO FUNCTION file(%s, 'Parquet')
SELECT * FROM export_reference ORDER BY scope, begin, metric, resource
SETTINGS output_format_parquet_compression_method = 'zstd', engine_file_truncate_on_insert = 1`, sqltext.String(reference)))
		if err != nil {
			return nil, fmt.Errorf("the engine's own export: %w", err)
		}
		theirs = append(theirs, time.Since(begin))
		info, err := os.Stat(reference)
		if err != nil {
			return nil, err
		}
		theirBytes = info.Size()
	}
	if theirBytes == 0 {
		return nil, errors.New("the engine wrote nothing")
	}
	median, spread := bench.Median(ours)
	return []bench.Figure{
		{Name: "export_vs_engine", Value: median.Seconds(), Unit: "s", Ratio: bench.MedianRatio(ours, theirs), Limit: TimeLimit, Runs: runs, Spread: spread},
		{Name: "export_size_vs_engine", Value: float64(ourBytes) / float64(cloud.Lines()), Unit: "bytes/line", Ratio: float64(ourBytes) / float64(theirBytes), Limit: SizeLimit, Runs: runs},
		{Name: "export_rate", Value: float64(cloud.Lines()) / median.Seconds(), Unit: "lines/s", Runs: runs, Spread: spread},
	}, nil
}

// prepare loads what was exported into a table of its own.
func prepare(ctx context.Context, e *engine.Engine, path string) error {
	for _, text := range []string{
		`CREATE OR REPLACE TABLE export_reference
(line_id String, region LowCardinality(String), scope LowCardinality(String), begin DateTime64(6, 'UTC'), end DateTime64(6, 'UTC'), metric LowCardinality(String), resource String,
 attributes String, unit LowCardinality(String), quantity Decimal(38, 18), price Decimal(38, 18), currency LowCardinality(String), rule LowCardinality(String),
 bucket LowCardinality(String), part Int64, revision Int64, corrects Nullable(String))
ENGINE = MergeTree ORDER BY (scope, begin, metric, resource)`,
		`INSERT INTO export_reference SELECT * FROM file(` + sqltext.String(path) + `, 'Parquet')`,
		`OPTIMIZE TABLE export_reference FINAL`,
	} {
		if err := e.Conn().Exec(ctx, text); err != nil {
			return fmt.Errorf("prepare the reference: %w", err)
		}
	}
	return nil
}
