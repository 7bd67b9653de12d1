-- name:    insert_ingest_loss
-- purpose: Notes records that a topic no longer held when ingest came for them.
-- params:  source, topic String, partition Int32, topic_id UUID, cause String, from_offset, to_offset Int64, detail String,
--          run_id UUID, found_at DateTime64(3, 'UTC')
INSERT INTO ingest_losses (source, topic, partition, topic_id, cause, from_offset, to_offset, detail, run_id, found_at)
SELECT {source:String}, {topic:String}, {partition:Int32}, {topic_id:UUID}, {cause:String}, {from_offset:Int64}, {to_offset:Int64}, {detail:String},
       {run_id:UUID}, {found_at:DateTime64(3, 'UTC')}
