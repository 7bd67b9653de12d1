#!/bin/sh
# Applies users.sql. Passwords come by the environment and go to the server as hashes, by stdin: they stand in no
# argument, no file and no query log.
#
#   CLICKHOUSE_HOST=db CLICKHOUSE_ADMIN_PASSWORD=… CLICKHOUSE_RATE_PASSWORD=… … sh users.sh
set -eu
hash() { printf '%s' "$1" | sha256sum | cut -d' ' -f1; }
export CLICKHOUSE_PASSWORD="${CLICKHOUSE_ADMIN_PASSWORD:?is missing}"
sed -e "s/@INGEST@/$(hash "${CLICKHOUSE_INGEST_PASSWORD:?is missing}")/" \
    -e "s/@RATE@/$(hash "${CLICKHOUSE_RATE_PASSWORD:?is missing}")/" \
    -e "s/@EXPORT@/$(hash "${CLICKHOUSE_EXPORT_PASSWORD:?is missing}")/" \
    -e "s/@READ@/$(hash "${CLICKHOUSE_READ_PASSWORD:?is missing}")/" "$(dirname "$0")/users.sql" |
  clickhouse-client --host "${CLICKHOUSE_HOST:-localhost}" --user "${CLICKHOUSE_ADMIN_USER:-admin}" --multiquery
