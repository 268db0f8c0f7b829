-- What pictures of items were made into for earlier plans, where the lake still holds that.
SELECT DISTINCT shown.value
FROM (SELECT metadata FROM items WHERE metadata LIKE '%"made_of"%') AS those, json_each(those.metadata) AS shown
WHERE shown.type = 'OBJECT' AND shown.value ->> '$.made_of' IS NOT NULL
  AND shown.value ->> '$.sha256' IN (SELECT sha256 FROM blobs);
