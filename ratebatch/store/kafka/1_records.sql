-- table:   {{.Kind}}_records
-- purpose: What passes from the consumer to the three views; it holds nothing.
-- why:     a consumer starts as soon as one view reads it, and what it reads before the others are there is lost for them.
--          So the views read this table, and the consumer's own view comes last.
CREATE TABLE IF NOT EXISTS {{.Kind}}_records{{.OnCluster}} (record String, broken String, topic String, partition Int32, offset Int64, key String, at Int64)
ENGINE = Null
