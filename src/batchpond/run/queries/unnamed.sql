-- The blobs that no request's body and no item's metadata names; a mark in a body is `\/blob\/` and the digest.
WITH named AS (
  SELECT unnest(regexp_extract_all(body, '\\/blob\\/([0-9a-f]{64})', 1)) AS sha256
  FROM requests WHERE contains(body, '\/blob\/')
  UNION ALL
  SELECT unnest(regexp_extract_all(metadata, '"sha256":"([0-9a-f]{64})"', 1)) FROM items WHERE contains(metadata, '"sha256":"')
)
SELECT sha256 FROM blobs ANTI JOIN named USING (sha256)
