-- The texts of some items, what they answer (of an answer under pressure the talk that ends with it), and what is shown with
-- each, in the order of its columns; where one id has had several texts, all of them.
WITH chosen AS (
  SELECT
    item_id, item_hash, text, metadata,
    coalesce(
      CASE WHEN metadata ->> '$.turn_no' IS NOT NULL THEN metadata ->> '$.conversation' END,
      metadata ->> '$.input', metadata ->> '$.question', '') AS question
  FROM items
  WHERE item_id IN ({ids})
), named AS (
  SELECT DISTINCT
    item_hash, unnest(metadata -> '$.*') AS media, unnest(json_keys(metadata)) AS name,
    generate_subscripts(metadata -> '$.*', 1) AS place
  FROM chosen
), media AS (
  SELECT item_hash, list({{
    'sha256': blobs.sha256, 'media_type': coalesce(blobs.media_type, media ->> '$.media_type'), 'name': name,
    'url': media ->> '$.url', 'size_bytes': size_bytes
  }} ORDER BY place) AS shown
  FROM named LEFT JOIN blobs ON blobs.sha256 = media ->> '$.sha256'
  WHERE json_type(media) = 'OBJECT' AND (media ->> '$.media_type') IS NOT NULL
  GROUP BY item_hash
)
SELECT item_id, chosen.item_hash, text, question, shown FROM chosen LEFT JOIN media ON media.item_hash = chosen.item_hash
