-- purpose: Part of the three views: a record's fields, why it is refused ('' if it is not), and whether it is too late.
-- why:     the same rules as agent/wire, which is the reference and says more: fields that are missing, unknown or of another
--          type, the identity that comes with the version and only with it, times that cannot be.
{{define "record"}}WITH
    {{.Numbers}} AS numbers,
    {{.Nullable}} AS nullable,
    {{.Texts}} AS texts,
    ['ts', 'host', 'region_name', 'instance_uuid'{{range .Required}}, '{{.}}'{{end}}] AS required,
    ['begin_ms', 'end_ms', 'epoch', 'sequence'] AS identity,
    checked AS (
        SELECT *, toInt64(JSONExtractInt(record, 'ts')) AS seconds, versioned AND JSONExtractInt(record, 'v') = 1 AS ours,
               fromUnixTimestamp64Milli(if(ours, JSONExtractInt(record, 'end_ms'), seconds * 1000), 'UTC') AS ts,
               fromUnixTimestamp64Milli(if(ours, JSONExtractInt(record, 'begin_ms'), seconds * 1000), 'UTC') AS begin,
               JSONExtractString(record, 'region_name') AS region, JSONExtractString(record, 'host') AS host,
               JSONExtractUInt(record, 'epoch') AS epoch, JSONExtractUInt(record, 'sequence') AS sequence,
               toUUIDOrZero(JSONExtractString(record, 'instance_uuid')) AS instance_uuid,
               JSONExtractString(record, 'project_id') AS project_id, JSONExtractString(record, 'user_id') AS user_id, JSONExtractString(record, 'flavor_name') AS flavor_name,
               toUInt16(JSONExtractUInt(record, 'vcpus')) AS vcpus, JSONExtractString(record, 'image_id') AS image_id, JSONExtractString(record, 'instance_name') AS instance_name,
               JSONExtractString(record, 'domain_id') AS domain_id, JSONExtractString(record, 'agent_version') AS agent_version,
               least(begin, ts - INTERVAL 1 MILLISECOND) < {{.LateBefore}} AS late,
               multiIf(
                   broken != '', broken,
                   length(unknown) > 0, concat('field "', unknown[1], '": is not known'),
                   length(missing) > 0, concat('field "', missing[1], '": is missing'),
                   length(wrong) > 0, concat('field "', wrong[1], '": is not of its type'),
                   JSONExtractUInt(record, 'vcpus') > 65535, 'field "vcpus": is more than 65535',
                   versioned AND JSONExtractInt(record, 'v') != 1, 'field "v": another version than 1',
                   host = '' OR region = '', 'host or region_name is empty',
                   seconds < 1 OR seconds > 4287018000, 'field "ts": lies outside what the tiers hold',
                   seconds > toUnixTimestamp(now()) + 86400, 'field "ts": lies more than a day after the clock of the server',
                   ours AND (epoch = 0 OR sequence = 0), 'epoch or sequence is 0',
                   ours AND (begin >= ts OR intDiv(JSONExtractInt(record, 'end_ms'), 1000) != seconds OR ts - begin > 7948800), 'begin_ms, end_ms and ts do not fit together',
                   {{.Refuse}}'') AS reason
        FROM (
            SELECT *,
                   JSONHas(record, 'v') AS versioned, JSONExtractKeys(record) AS keys,
                   arrayFilter(k -> NOT has(arrayConcat(numbers, nullable, texts, identity, ['v', 'ts'{{range .Others}}, '{{.}}'{{end}}]), k), keys) AS unknown,
                   arrayFilter(k -> NOT has(keys, k), if(versioned, arrayConcat(required, identity), required)) AS missing,
                   arrayConcat(
                       arrayFilter(k -> has(keys, k) AND (JSONType(record, k) NOT IN ('Int64', 'UInt64') OR startsWith(JSONExtractRaw(record, k), '-')), arrayConcat(numbers, identity, ['v', 'ts'])),
                       arrayFilter(k -> has(keys, k) AND JSONType(record, k) NOT IN ('Int64', 'UInt64', 'Null'), nullable),
                       arrayFilter(k -> has(keys, k) AND JSONType(record, k) != 'String', texts),
                       if(versioned, [], arrayFilter(k -> has(keys, k), identity))) AS wrong
            FROM {{.Kind}}_records)){{end}}
