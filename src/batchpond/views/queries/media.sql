-- What is shown with some items, in the order of their columns: `pictures` what fits as data, `elsewhere` the kind and
-- size of the rest; {items} has item_hash and metadata.
SELECT
  item_hash,
  coalesce(list(data ORDER BY place) FILTER (WHERE data IS NOT NULL), []) AS pictures,
  coalesce(list(what ORDER BY place) FILTER (WHERE data IS NULL), []) AS elsewhere
FROM (
  SELECT
    item_hash, place,
    concat_ws(' ', json_extract_string(media, '$.media_type'), json_extract_string(media, '$.url'), size_bytes || ' bytes')
      AS what,
    CASE WHEN blobs.media_type LIKE 'image/%' AND size_bytes <= {bytes_max}
         THEN 'data:' || blobs.media_type || ';base64,' || to_base64(content) END AS data
  FROM (
    SELECT DISTINCT
      item_hash, unnest(metadata -> '$.*') AS media, generate_subscripts(metadata -> '$.*', 1) AS place
    FROM {items}
  ) AS named
  LEFT JOIN blobs ON blobs.sha256 = json_extract_string(media, '$.sha256')
  WHERE json_type(media) = 'OBJECT' AND json_extract_string(media, '$.media_type') IS NOT NULL
) AS shown
GROUP BY item_hash
