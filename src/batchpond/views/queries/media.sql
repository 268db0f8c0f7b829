-- What is shown with some items, in the order of their columns: what it is, and its digest where its bytes are kept;
-- {items} has item_hash and metadata.
SELECT
  item_hash,
  list({{'sha256': sha256, 'name': name, 'what': what, 'is_picture': media_type LIKE 'image/%'}} ORDER BY place) AS shown
FROM (
  SELECT
    item_hash, place, name, sha256, blobs.media_type,
    concat_ws(' ', json_extract_string(media, '$.media_type'), json_extract_string(media, '$.url'),
              format('{{:,}} bytes', size_bytes)) AS what
  FROM (
    SELECT DISTINCT
      item_hash, unnest(metadata -> '$.*') AS media, unnest(json_keys(metadata)) AS name,
      generate_subscripts(metadata -> '$.*', 1) AS place
    FROM {items}
  ) AS named
  LEFT JOIN blobs ON blobs.sha256 = json_extract_string(media, '$.sha256')
  WHERE json_type(media) = 'OBJECT' AND json_extract_string(media, '$.media_type') IS NOT NULL
) AS shown
GROUP BY item_hash
