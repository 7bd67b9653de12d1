#!/bin/sh
# Backs up Ratebatch's state, for a server: lines, commits, plans, closes, the run log, and the tiers, from which periods
# that are not rated yet can still be rated. Raw samples are large and in the tiers already, but for the last minutes;
# WITH_USAGE=1 takes them too.
#
#   CLICKHOUSE_PASSWORD=… sh backup.sh "Disk('backups', 'ratebatch-2026-12-01')"
#   CLICKHOUSE_PASSWORD=… sh backup.sh "S3('https://s3.example.org/backups/ratebatch-2026-12-01', 'KEY', 'SECRET')"   # see restore.sh
#
# Stop 'ratebatch schedule run' or the timers first, or take what is there: a commit whose lines came after the snapshot
# is found by 'ratebatch reconcile'. For the embedded engine: 'ratebatch engine dump'.
set -eu
to=${1:?where to: Disk(…), File(…) or S3(…)}
except="EXCEPT TABLES ${CLICKHOUSE_DATABASE:=ratebatch}.port_samples, $CLICKHOUSE_DATABASE.instance_samples, $CLICKHOUSE_DATABASE.disk_samples"
if [ "${WITH_USAGE:-0}" = 1 ]; then except=""; fi
# By stdin: a secret in S3(…) would stand in the list of processes.
printf 'BACKUP DATABASE %s %s TO %s' "$CLICKHOUSE_DATABASE" "$except" "$to" |
  clickhouse-client --host "${CLICKHOUSE_HOST:-localhost}" --user "${CLICKHOUSE_USER:-admin}"
