-- name:    insert_watermark
-- purpose: Says up to when a region's input is complete.
-- params:  region String, complete_until DateTime('UTC'), source String, note String
INSERT INTO watermarks (region, complete_until, source, note)
SELECT {region:String}, {complete_until:DateTime('UTC')}, {source:String}, {note:String}
