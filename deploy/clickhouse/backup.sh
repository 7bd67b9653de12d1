#!/bin/sh
# Backs up Ratebatch's state, for one server (not for a cluster, which it refuses): lines, commits, plans, closes, the run log, and the tiers, from which periods
# that are not rated yet can still be rated. Raw samples are large and in the tiers already, but for the last two hours at
# most, which come again from Kafka (restore.sh); WITH_USAGE=1 takes them too.
#
#   CLICKHOUSE_PASSWORD=… sh backup.sh "Disk('backups', 'ratebatch-2026-12-01')"
#   CLICKHOUSE_PASSWORD=… sh backup.sh "S3('https://s3.example.org/backups/ratebatch-2026-12-01', 'KEY', 'SECRET')"   # see restore.sh
#
# Stop 'ratebatch schedule run' or the timers first, or take what is there: a commit whose lines came after the snapshot
# is found by 'ratebatch reconcile'. For the embedded engine: 'ratebatch engine dump'.
set -eu
to=${1:?where to: Disk(…), File(…) or S3(…)}
# The views that fill the tiers hold nothing, and RESTORE makes views that fail at each refresh ("UNION mode UNION_DEFAULT must
# be normalized", ClickHouse 26.7): 'ratebatch migrate' makes them again.
except="port_volume_5min_refresh instance_metrics_5min_refresh disk_metrics_5min_refresh
  port_volume_hourly_refresh instance_metrics_hourly_refresh disk_metrics_hourly_refresh"
if [ "${WITH_USAGE:-0}" != 1 ]; then except="$except port_samples instance_samples disk_samples"; fi
list=""
for table in $except; do list="$list${list:+, }${CLICKHOUSE_DATABASE:=ratebatch}.$table"; done
# By stdin: a secret in S3(…) would stand in the list of processes.
client() { clickhouse-client --host "${CLICKHOUSE_HOST:-localhost}" --user "${CLICKHOUSE_USER:-admin}"; }
# What this statement takes of a cluster is one server's part, and nothing would say so.
distributed=$(printf "SELECT count() FROM system.tables WHERE database = '%s' AND engine = 'Distributed'" "$CLICKHOUSE_DATABASE" | client)
if [ "$distributed" != 0 ]; then
  echo "backup.sh: database $CLICKHOUSE_DATABASE is a cluster's ($distributed Distributed tables), and this script would take one server's rows only: back up every shard, see deploy/README.md" >&2
  exit 1
fi
printf 'BACKUP DATABASE %s EXCEPT TABLES %s TO %s' "$CLICKHOUSE_DATABASE" "$list" "$to" | client
