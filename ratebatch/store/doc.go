// Package store owns every table and every statement: the schema (schema/*.sql),
// the queries (queries/*.sql), and the typed reads and writes over them.
//
// One statement lives in one embedded file with its contract in the header, so
// that a question like "who reads rated_lines?" is answered by grep. Values
// reach SQL as {name:Type} parameters; identifiers that come from configuration
// are checked where they enter (package metric) and never pasted unchecked.
//
// Statements are never retried here. An INSERT … SELECT whose outcome is
// unknown may have written some of its blocks; whoever sent it ends it with
// Kill and starts again under a fresh run_id, whose rows are the only ones
// that a commit will name.
package store
