package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"reflect"

	"github.com/spf13/cobra"

	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/engine"
)

func newEngineSQLCmd(p *program) *cobra.Command {
	var query string
	cmd := &cobra.Command{
		Use:   "sql",
		Short: "Query ClickHouse",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if query == "" {
				return &ratebatch.ConfigError{Err: errors.New("no statement"), Hint: "give one with -q"}
			}
			o := p.engine
			e, err := p.openEngine(cmd, o)
			if err != nil {
				return err
			}
			err = printRows(cmd.Context(), e, query, p.stdout)
			return errors.Join(err, e.Close())
		},
	}
	cmd.Flags().StringVarP(&query, "query", "q", "", "statement to run")
	return cmd
}

func printRows(ctx context.Context, e *engine.Engine, query string, w io.Writer) error {
	rows, err := e.Conn().Query(ctx, query)
	if err != nil {
		return err
	}
	types := rows.ColumnTypes()
	for rows.Next() {
		values := make([]any, len(types))
		for i, t := range types {
			values[i] = reflect.New(t.ScanType()).Interface()
		}
		if err := rows.Scan(values...); err != nil {
			return err
		}
		for i, v := range values {
			if i > 0 {
				fmt.Fprint(w, "\t")
			}
			fmt.Fprint(w, reflect.ValueOf(v).Elem().Interface())
		}
		fmt.Fprintln(w)
	}
	return errors.Join(rows.Err(), rows.Close())
}
