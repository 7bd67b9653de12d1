#!/bin/sh
# Restores what backup.sh wrote, into a database that does not exist.
#
#   CLICKHOUSE_PASSWORD=… sh restore.sh "Disk('backups', 'ratebatch-2026-12-01')"
#
# Then: 'ratebatch migrate' (it makes what the backup leaves out; with --retention … if yours is not the default), 'ratebatch
# doctor', 'ratebatch reconcile --month …', and only then the schedule again. Usage that ingest wrote after the backup comes
# again from Kafka while the brokers keep it: set the consumer group back to two hours before the backup or earlier. The
# backup has no raw samples: the hour that was open then, and the one before it, are computed from what comes again. Samples
# that come twice count once.
set -eu
from=${1:?where from: Disk(…), File(…) or S3(…)}
printf 'RESTORE DATABASE %s FROM %s' "${CLICKHOUSE_DATABASE:-ratebatch}" "$from" |
  clickhouse-client --host "${CLICKHOUSE_HOST:-localhost}" --user "${CLICKHOUSE_USER:-admin}"
