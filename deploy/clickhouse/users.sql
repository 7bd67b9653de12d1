-- Users with no more rights than they need, for clickhouse-client --multiquery. Agents have none: they write to Kafka.
-- Passwords come as parameters, by their hash: users.sh. Running it again changes passwords and brings the grants to this version.

-- Money rests on these; a user may not weaken them. compile_expressions: see docs/engine.md.
CREATE SETTINGS PROFILE IF NOT EXISTS ratebatch SETTINGS
    async_insert = 0 CONST, decimal_check_overflow = 1 CONST, compile_expressions = 0 CONST, session_timezone = 'UTC' CONST,
    max_memory_usage = 8589934592, max_threads = 0, max_bytes_before_external_group_by = 4294967296, max_bytes_before_external_sort = 4294967296;
CREATE SETTINGS PROFILE IF NOT EXISTS ratebatch_read SETTINGS
    readonly = 2, max_execution_time = 60, max_memory_usage = 2147483648, session_timezone = 'UTC';

CREATE USER IF NOT EXISTS ratebatch_ingest IDENTIFIED WITH sha256_hash BY '@INGEST@' SETTINGS PROFILE 'ratebatch';
CREATE USER IF NOT EXISTS ratebatch_rate   IDENTIFIED WITH sha256_hash BY '@RATE@'   SETTINGS PROFILE 'ratebatch';
CREATE USER IF NOT EXISTS ratebatch_export IDENTIFIED WITH sha256_hash BY '@EXPORT@' SETTINGS PROFILE 'ratebatch';
CREATE USER IF NOT EXISTS ratebatch_read   IDENTIFIED WITH sha256_hash BY '@READ@'   SETTINGS PROFILE 'ratebatch_read';
ALTER USER ratebatch_ingest IDENTIFIED WITH sha256_hash BY '@INGEST@';
ALTER USER ratebatch_rate   IDENTIFIED WITH sha256_hash BY '@RATE@';
ALTER USER ratebatch_export IDENTIFIED WITH sha256_hash BY '@EXPORT@';
ALTER USER ratebatch_read   IDENTIFIED WITH sha256_hash BY '@READ@';

-- ingest adds samples, what becomes of records, and how far it is, and never changes or deletes a row: whatever else bills rest on
-- it may only read. instances and hosts are filled by views of the samples. An earlier version granted more.
REVOKE INSERT ON ratebatch.* FROM ratebatch_ingest;
GRANT SELECT ON ratebatch.* TO ratebatch_ingest;
GRANT INSERT ON ratebatch.port_samples TO ratebatch_ingest;
GRANT INSERT ON ratebatch.instance_samples TO ratebatch_ingest;
GRANT INSERT ON ratebatch.disk_samples TO ratebatch_ingest;
GRANT INSERT ON ratebatch.instances TO ratebatch_ingest;
GRANT INSERT ON ratebatch.hosts TO ratebatch_ingest;
GRANT INSERT ON ratebatch.late_samples TO ratebatch_ingest;
GRANT INSERT ON ratebatch.rejected_records TO ratebatch_ingest;
GRANT INSERT ON ratebatch.ingest_progress TO ratebatch_ingest;
GRANT INSERT ON ratebatch.ingest_losses TO ratebatch_ingest;
GRANT INSERT ON ratebatch.ingest_counts TO ratebatch_ingest;
GRANT INSERT ON ratebatch.ingest_sequences TO ratebatch_ingest;
GRANT INSERT ON ratebatch.ingest_ranges TO ratebatch_ingest;
GRANT INSERT ON ratebatch.watermarks TO ratebatch_ingest;
GRANT INSERT ON ratebatch.job_runs TO ratebatch_ingest;

-- rate and the other jobs of the state. retention deletes; a pass of unknown outcome is killed by its query id.
GRANT SELECT, INSERT, ALTER DELETE, ALTER UPDATE, TRUNCATE ON ratebatch.* TO ratebatch_rate;
GRANT KILL QUERY ON *.* TO ratebatch_rate;
-- rate and rollup let the views that fill the tiers catch up, and wait for them.
GRANT SYSTEM VIEWS ON ratebatch.* TO ratebatch_rate;
GRANT CREATE TEMPORARY TABLE ON *.* TO ratebatch_rate;

-- export reads, and notes what it delivered.
GRANT SELECT ON ratebatch.* TO ratebatch_export;
GRANT INSERT ON ratebatch.exports TO ratebatch_export;
GRANT INSERT ON ratebatch.job_runs TO ratebatch_export;
GRANT INSERT ON ratebatch.leases TO ratebatch_export;

-- the dashboard and people with questions.
GRANT SELECT ON ratebatch.* TO ratebatch_read;

GRANT SELECT ON system.tables TO ratebatch_ingest, ratebatch_rate, ratebatch_export, ratebatch_read;
GRANT SELECT ON system.parts TO ratebatch_rate, ratebatch_read;
GRANT SELECT ON system.disks TO ratebatch_rate, ratebatch_read;
GRANT SELECT ON system.settings TO ratebatch_rate, ratebatch_read;
GRANT SELECT ON system.view_refreshes TO ratebatch_rate, ratebatch_read;
GRANT SELECT ON system.processes TO ratebatch_ingest, ratebatch_rate;
